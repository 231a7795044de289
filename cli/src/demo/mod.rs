//! stub
pub(crate) mod worker;
use std::path::Path;
use crate::{exit::{Exit, Failure}, output::Output};
pub(crate) async fn demo(_output: Output, _dir: Option<&Path>) -> Result<Exit, Failure> { Ok(Exit::Done) }
