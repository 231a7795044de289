//! Handlers that are commands.
//!
//! - [`shim`]: the hidden sub-command that is a command's parent, so that a command never outlives the runtime;
//! - [`link`]: the runtime's side of it;
//! - [`environment`]: what a command learns from its environment;
//! - [`process`]: a process a message;
//! - [`lines`]: one long-lived process a slot, which speaks [`talk`].

pub(crate) mod environment;
pub(crate) mod lines;
pub(crate) mod link;
pub(crate) mod process;
pub(crate) mod shim;
pub(crate) mod talk;

use std::path::{Path, PathBuf};

/// A command, ready to be started.
#[derive(Clone, Debug)]
pub(crate) struct Spec {
    /// The program and its arguments.
    pub(crate) command: Vec<String>,
    /// Where it runs: the config's folder.
    pub(crate) folder: PathBuf,
}

impl Spec {
    /// A command of a config. A program with a `/` in it is a path from the config's folder; others are looked up in
    /// `PATH`.
    pub(crate) fn new(command: &[String], folder: &Path) -> Self {
        let mut command = command.to_vec();
        if let Some(program) = command.first_mut()
            && program.contains('/')
        {
            *program = folder.join(program.trim_start_matches("./")).to_string_lossy().into_owned();
        }
        Self { command, folder: folder.to_path_buf() }
    }

    /// The program, for logs and errors.
    pub(crate) fn program(&self) -> &str {
        self.command.first().map_or("", String::as_str)
    }

    /// Why it cannot be started, where that is plain to see already.
    pub(crate) fn trouble(&self) -> Option<String> {
        use std::os::unix::fs::PermissionsExt;
        let program = self.program();
        if !program.contains('/') {
            let path = std::env::var_os("PATH")?;
            let found = std::env::split_paths(&path).any(|folder| folder.join(program).is_file());
            return (!found).then(|| format!("`{program}` is in no folder of PATH"));
        }
        match std::fs::metadata(program) {
            Err(error) => Some(format!("`{program}`: {error}")),
            Ok(meta) if meta.is_dir() => Some(format!("`{program}` is a folder")),
            Ok(meta) if meta.permissions().mode() & 0o111 == 0 => {
                Some(format!("`{program}` is not executable; chmod +x it"))
            }
            Ok(_) => None,
        }
    }
}
