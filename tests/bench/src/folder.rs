//! Folder for temporary files of a measurement.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Folder that is removed at the end.
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// Makes a folder of this process for `purpose`.
    pub(crate) fn new(purpose: &str) -> Result<Folder> {
        let path = std::env::temp_dir().join(format!("hydrant-bench-{purpose}-{}", std::process::id()));
        std::fs::create_dir(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Folder(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Measured programs may have left files. A folder that stays does no harm.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
