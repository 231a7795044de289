//! `postroom setup`.

use postroom_core::DeclareMode;
use serde_json::json;

use crate::{
    args::Cli,
    exit::{Exit, Failure},
    output::Output,
    session::Session,
};

/// Creates what every transport of the config needs.
pub(crate) async fn setup(cli: &Cli, output: Output) -> Result<Exit, Failure> {
    let mut session = Session::new(cli, [])?.creating();
    let mut exit = Exit::Done;
    for name in session.names() {
        match declare(&mut session, &name).await {
            Ok(place) => output.answer(
                &json!({"transport": name, "place": place, "ready": true}),
                &format!("{name}: {place} is there"),
            )?,
            Err(failure) => {
                output.failure(&failure);
                exit = exit.and(failure.exit);
            }
        }
    }
    session.close().await;
    Ok(exit)
}

async fn declare(session: &mut Session, name: &str) -> Result<String, Failure> {
    let handle = session.transport(name).await?;
    handle.declare(DeclareMode::Create).await?;
    Ok(handle.place().to_string())
}
