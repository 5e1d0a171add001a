//! Temporary file for unit tests, removed on drop.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

pub(crate) struct TestFile(PathBuf);

impl TestFile {
    pub(crate) fn new(text: &[u8]) -> TestFile {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("hydrant-placement-{}-{number}", std::process::id()));
        std::fs::write(&path, text).expect("a temporary file");
        TestFile(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn name(&self) -> &str {
        self.0.to_str().expect("a path of ASCII")
    }
}

impl Drop for TestFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
