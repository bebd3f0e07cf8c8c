//! `SHA256SUMS`, as `sha256sum --check` reads it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// Writes the sums of these files of `directory` into it, and gives the path.
pub(super) fn write(directory: &Path, files: &[&PathBuf]) -> Result<PathBuf> {
    let names = files.iter().filter_map(|file| file.file_name());
    let output = Command::new("sha256sum")
        .current_dir(directory)
        .args(names)
        .output()
        .context("the program `sha256sum` cannot be started; it belongs to coreutils")?;
    if !output.status.success() {
        bail!(
            "sha256sum failed: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    let path = directory.join("SHA256SUMS");
    std::fs::write(&path, &output.stdout).with_context(|| format!("{} cannot be written", path.display()))?;
    Ok(path)
}
