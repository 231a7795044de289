//! The scenarios of the bare contract. What settles twice, or settles what was never received, is not here: the
//! registry above the contract answers that.

mod batches;
mod browsing;
mod bytes;
mod closing;
mod counting;
mod foreign;
mod leases;
mod operations;
mod places;
mod pull;
mod settling;
mod topics;
mod volume;

use crate::{Subject, scenario::Scenario};

/// All of them.
pub(crate) fn all<S: Subject>() -> Vec<Scenario<S>> {
    let mut all = settling::all();
    all.extend(closing::all());
    all.extend(batches::all());
    all.extend(leases::all());
    all.extend(pull::all());
    all.extend(volume::all());
    all.extend(topics::all());
    all.extend(bytes::all());
    all.extend(foreign::all());
    all.extend(operations::all());
    all.extend(counting::all());
    all.extend(browsing::all());
    all.extend(places::all());
    all
}
