//! Rendezvous files, by which tools of PMIx find a run.
//!
//! libpmix searches the folder for temporary files and all folders below for names that begin with `pmix.HOST.tool`, and with the
//! process id of the launcher or a namespace behind that if the user has named one. The first line of such a file is the address of
//! the server, and the second one its version of PMIx.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use hydrant_driver::PMIX_VERSION_FOR_TOOLS;
use hydrant_reactor::process::Guardian;
use hydrant_reactor::random_u64;
use rustix::process::{getegid, geteuid};

/// Variables with the folder for temporary files. libpmix takes the first that is set.
const VARIABLES: [&str; 4] = ["PMIX_SYSTEM_TMPDIR", "TMPDIR", "TEMP", "TMP"];

/// Returns the path of a new folder for rendezvous files of this process. Its name is unpredictable, so that no other user makes it
/// first.
pub(crate) fn new_folder() -> PathBuf {
    let base = VARIABLES.into_iter().find_map(std::env::var_os).unwrap_or_else(|| OsString::from("/tmp"));
    let number = random_u64().unwrap_or_default();
    Path::new(&base).join(format!("hydrant-tools-{}-{number:016x}", std::process::id()))
}

/// Rendezvous files of a run, in a folder that other users cannot enter. Both are removed with this value, and by the guardian
/// after this process has been killed.
#[derive(Debug)]
pub(crate) struct Rendezvous {
    folder: PathBuf,
    /// Removes the folder, if no other guardian does.
    _guardian: Option<Guardian>,
}

impl Rendezvous {
    /// Makes the folder, and in it a file for each name behind `pmix.HOST.tool.`.
    ///
    /// # Errors
    /// The folder for temporary files is not there or not writable.
    pub(crate) fn create(
        folder: PathBuf,
        guardian: Option<Guardian>,
        (host, uri): (&str, &str),
        names: &[&str],
    ) -> io::Result<Rendezvous> {
        DirBuilder::new().mode(0o700).create(&folder)?;
        let files = Rendezvous { folder, _guardian: guardian };
        let (user, group) = (geteuid().as_raw(), getegid().as_raw());
        let text = format!("{uri}\n{PMIX_VERSION_FOR_TOOLS}\n{}\n{user}:{group}\n", std::process::id());
        // libpmix cuts the name of the host that the system reports at its first dot.
        let short = host.split_once('.').map(|(short, _)| short).filter(|short| !short.is_empty());
        for host in [host].into_iter().chain(short) {
            for name in names {
                let path = files.folder.join(format!("pmix.{host}.tool.{name}"));
                let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
                file.write_all(text.as_bytes())?;
            }
        }
        Ok(files)
    }
}

impl Drop for Rendezvous {
    fn drop(&mut self) {
        // A user may have removed it.
        drop(fs::remove_dir_all(&self.folder));
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn other_users_cannot_enter_the_folder_which_is_removed() {
        let folder = new_folder();
        let names = ["4711", "kvs_1"];
        let files =
            Rendezvous::create(folder.clone(), None, ("node.example", "a.0;tcp4://b"), &names).unwrap();
        assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
        for name in ["node.example.tool.4711", "node.tool.4711", "node.tool.kvs_1"] {
            let text = fs::read_to_string(folder.join(format!("pmix.{name}"))).unwrap();
            assert!(text.starts_with("a.0;tcp4://b\n4.1.0\n"), "{text}");
        }
        assert!(Rendezvous::create(folder.clone(), None, ("node", ""), &names).is_err(), "it is another's");
        drop(files);
        assert!(!folder.exists());
    }
}
