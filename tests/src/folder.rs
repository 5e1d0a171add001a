//! A folder of one test, removed when the test ends.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

/// A folder for temporary files, removed with this value.
#[derive(Debug)]
pub struct Folder(pub PathBuf);

impl Folder {
    /// Creates an empty folder. `name` shows up in its path. The path is short, so that a socket in it fits 108 bytes.
    pub fn new(name: &str) -> Folder {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("hydrant-{name}-{}-{number}", std::process::id()));
        fs::create_dir_all(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
        Folder(folder)
    }

    /// The path of an entry, as text.
    pub fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("the folder for temporary files is text").to_owned()
    }

    /// Writes a file and returns its path.
    pub fn file(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        fs::write(&path, text).unwrap_or_else(|e| panic!("{path}: {e}"));
        path
    }

    /// Writes a file that may be executed and returns its path.
    pub fn executable(&self, name: &str, text: &str) -> String {
        let path = self.file(name, text);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))
            .unwrap_or_else(|e| panic!("{path}: {e}"));
        path
    }

    /// Creates a named pipe and returns its path.
    pub fn fifo(&self, name: &str) -> String {
        let path = self.path(name);
        let made = std::process::Command::new("mkfifo").arg(&path).status();
        assert!(made.as_ref().is_ok_and(|status| status.success()), "mkfifo {path}: {made:?}");
        path
    }

    /// The text of a file.
    pub fn read(&self, name: &str) -> String {
        let path = self.path(name);
        fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let removed = fs::remove_dir_all(&self.0);
        // The test may have removed it already.
        if let Err(error) = removed
            && error.kind() != ErrorKind::NotFound
        {
            eprintln!("not removed: {}: {error}", self.0.display());
        }
    }
}
