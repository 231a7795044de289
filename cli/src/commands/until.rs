//! `run --until-empty`: when nothing is waiting, delayed or in flight.

use std::{collections::BTreeSet, time::Duration};

use postroom::{
    Node,
    ops::{self, OpsError},
};

use crate::output::{Output, progress::Progress};

/// The pause between two looks.
const PAUSE: Duration = Duration::from_millis(100);
/// Messages move between places while they are counted one after the other, so one look is not enough.
const LOOKS: u32 = 2;

/// Resolves when the transports are empty. What a broker cannot say is left out, and named.
pub(crate) async fn empty(node: &Node, output: Output, transports: &[String]) {
    let mut progress: Option<(Progress, u64)> = None;
    let (mut looks, mut unknown) = (0, BTreeSet::new());
    while looks < LOOKS {
        tokio::time::sleep(PAUSE).await;
        let left = left(node, transports, &mut unknown).await;
        looks = if left == Some(0) { looks + 1 } else { 0 };
        if let Some(left) = left {
            let (bar, most) = progress.get_or_insert_with(|| (Progress::new(output, "handled", Some(left)), left));
            *most = (*most).max(left);
            bar.set(most.saturating_sub(left));
        }
    }
    if let Some((progress, _)) = progress {
        progress.finish();
    }
    for name in unknown {
        output.note(&format!("note: {name}, so --until-empty did not wait for it"));
    }
}

/// What is left, as far as it can be known just now.
async fn left(node: &Node, transports: &[String], unknown: &mut BTreeSet<String>) -> Option<u64> {
    let mut sum = 0;
    for name in transports {
        let transport = node.transport(name)?;
        match ops::stats(&transport, None).await {
            Ok(lines) => {
                for stats in lines {
                    let (left, missing) = stats.backlog();
                    sum += left;
                    unknown.extend(missing.iter().map(|figure| format!("the broker of `{name}` cannot tell {figure}")));
                }
            }
            Err(OpsError::Transport(error)) if super::run::is_missing(error.kind()) => {}
            // A broker that is away says nothing about its messages.
            Err(_) => return None,
        }
    }
    Some(sum)
}
