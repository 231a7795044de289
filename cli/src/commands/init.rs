//! `postroom init`.

use std::{
    io::Write,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use serde_json::json;

use crate::{
    exit::{Exit, Failure},
    output::Output,
};

const CONFIG: &str = include_str!("init.toml");
const SCRIPT: &str = include_str!("init.sh");

/// Writes a config and a sample handler.
pub(crate) fn init(output: Output, folder: &Path) -> Result<Exit, Failure> {
    let files: [(PathBuf, &str, u32); 2] =
        [(folder.join("postroom.toml"), CONFIG, 0o644), (folder.join("handle.sh"), SCRIPT, 0o755)];
    // Both are looked at before one is written.
    for (path, ..) in &files {
        if path.symlink_metadata().is_ok() {
            let text = format!("{} exists and is not overwritten; choose another folder, or remove it", path.display());
            return Err(Failure::new("exists", Exit::Usage, text));
        }
    }
    std::fs::create_dir_all(folder).map_err(|error| Failure::file("create", folder, &error))?;
    for (path, text, mode) in &files {
        let opened = std::fs::OpenOptions::new().write(true).create_new(true).mode(*mode).open(path);
        opened
            .and_then(|mut file| file.write_all(text.as_bytes()))
            .map_err(|error| Failure::file("write", path, &error))?;
    }
    let written: Vec<String> = files.iter().map(|(path, ..)| path.display().to_string()).collect();
    let text = format!(
        "wrote {}\nnext:\n  postroom send jobs '{{\"hello\":\"world\"}}' --type job.hello\n  postroom run --until-empty",
        written.join(" and ")
    );
    output.answer(&json!({ "written": written }), &text)?;
    Ok(Exit::Done)
}
