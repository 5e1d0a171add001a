//! Folder of a run on a host for files that the head has sent (`--preload-files`).

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

use hydrant_reactor::random_u64;

/// A folder that other users cannot enter. It is removed with this value, and by the guardian after this process has been killed.
#[derive(Debug)]
pub(crate) struct JobFolder(PathBuf);

/// The path of a new folder of this process. Its name is unpredictable, so that no other user makes it first.
pub fn new_job_folder() -> PathBuf {
    let number = random_u64().unwrap_or_default();
    std::env::temp_dir().join(format!("hydrant-files-{}-{number:016x}", std::process::id()))
}

/// Whether a name leads to a place in the folder: it is relative, and each of its parts is a name.
pub fn is_in_job_folder(name: &Path) -> bool {
    let mut parts = name.components().peekable();
    parts.peek().is_some() && parts.all(|part| matches!(part, Component::Normal(_)))
}

impl JobFolder {
    /// Makes the folder.
    pub(crate) fn create(path: PathBuf) -> io::Result<JobFolder> {
        DirBuilder::new().mode(0o700).create(&path)?;
        Ok(JobFolder(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Makes a new file in the folder, and the folders on its way.
    pub(crate) fn file(&self, name: &Path) -> io::Result<File> {
        if !is_in_job_folder(name) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the name leads out of the job's folder",
            ));
        }
        let path = self.0.join(name);
        if let Some(parent) = path.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
        }
        OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)
    }

    /// Sets the mode of a complete file: ranks may write it, and execute it if its owner may execute the one that was sent.
    pub(crate) fn finish(file: &File, mode: u32) -> io::Result<()> {
        file.set_permissions(Permissions::from_mode(if mode & 0o100 != 0 { 0o700 } else { 0o600 }))
    }
}

impl Drop for JobFolder {
    fn drop(&mut self) {
        // A rank may have removed it.
        drop(fs::remove_dir_all(&self.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_in_the_folder() {
        for name in ["a", "a/b", "a/./b", ".hidden", "a..b"] {
            assert!(is_in_job_folder(Path::new(name)), "{name}");
        }
        for name in ["", "/", "/a", "..", "../a", "a/../b", "a/..", "."] {
            assert!(!is_in_job_folder(Path::new(name)), "{name}");
        }
    }

    #[test]
    fn the_folder_is_the_users_own_and_is_removed() {
        let path = new_job_folder();
        let folder = JobFolder::create(path.clone()).unwrap();
        assert!(JobFolder::create(path.clone()).is_err(), "it is another's");
        folder.file(Path::new("a/b/c")).unwrap();
        assert!(folder.file(Path::new("a/b/c")).is_err(), "names are taken once");
        assert!(folder.file(Path::new("../c")).is_err());
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
        drop(folder);
        assert!(!path.exists());
    }
}
