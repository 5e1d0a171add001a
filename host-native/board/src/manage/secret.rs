//! Secret of a management server and its hosts.

use std::fmt;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use blake2::{Blake2s256, Digest};
use hydrant_reactor::file::{FileError, Input, Taken};
use rustix::process::geteuid;
use zeroize::{Zeroize, ZeroizeOnDrop};

/// First bytes of a connection with a secret. The last byte is the version. No record begins with these bytes: its length would
/// be above the limit.
pub(crate) const MAGIC: [u8; 8] = *b"hydrant\x81";
/// Fewest bytes of a secret.
const SECRET_MIN: usize = 16;
/// Most bytes of a file with a secret.
const FILE_MAX: u64 = 4096;

/// Secret of a management server and its hosts. Wiped when dropped.
#[derive(Clone, PartialEq, Eq, Zeroize, ZeroizeOnDrop)]
pub struct Secret([u8; 32]);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl Secret {
    /// Derives a secret from a text. Blanks at both ends are ignored.
    ///
    /// # Errors
    /// The text is shorter than 16 bytes.
    pub fn from_text(text: &[u8]) -> Result<Secret, SecretError> {
        let text = text.trim_ascii();
        if text.len() < SECRET_MIN {
            return Err(SecretError::Short);
        }
        Ok(Secret(Blake2s256::new_with_prefix(MAGIC).chain_update(text).finalize().into()))
    }

    /// Returns the bytes of the secret, for other hosts of the same run.
    pub fn to_bytes(&self) -> [u8; 32] {
        self.0
    }

    /// Returns the secret with these [bytes](Secret::to_bytes).
    pub fn from_bytes(bytes: [u8; 32]) -> Secret {
        Secret(bytes)
    }

    /// Reads a secret from a file of at most 4,096 bytes that other users cannot read.
    ///
    /// # Errors
    /// The file cannot be read, is no such file, or holds less than 16 bytes.
    pub fn read(path: &Path) -> Result<Secret, SecretError> {
        let failed = |why: io::Error| SecretError::Read { path: path.to_owned(), why };
        let not_regular = || SecretError::NotRegular { path: path.to_owned() };
        let file = Input::open(path, Taken::Regular).map_err(|error| match error {
            FileError::Kind(..) => not_regular(),
            error => failed(error.into()),
        })?;
        let found = file.metadata().map_err(failed)?;
        if found.len() > FILE_MAX {
            return Err(not_regular());
        }
        if is_exposed(found.mode(), found.uid() == geteuid().as_raw()) {
            return Err(SecretError::Exposed { path: path.to_owned() });
        }
        let mut text = Vec::new();
        file.take(FILE_MAX).read_to_end(&mut text).map_err(failed)?;
        let secret = Secret::from_text(&text).map_err(|_| SecretError::ShortFile { path: path.to_owned() });
        text.zeroize();
        secret
    }

    /// The bytes in place, which leaves no copy.
    pub(crate) fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

/// Whether a file of this mode is for others than the user who reads it. `own` is whether this user owns it.
///
/// Of another user's file the bits of the group are not looked at. They may be the mask of an access control list: systemd gives
/// credentials to a service as files of root, with an entry for the user of the service.
fn is_exposed(mode: u32, own: bool) -> bool {
    mode & if own { 0o077 } else { 0o007 } != 0
}

/// Error of a secret.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SecretError {
    /// The text is too short.
    #[error("a secret has at least {SECRET_MIN} bytes")]
    Short,
    /// The file cannot be read.
    #[error("cannot read {}: {why}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Reason given by the operating system.
        why: io::Error,
    },
    /// The file is too long, or no regular file.
    #[error("{} is no regular file of at most {FILE_MAX} bytes", path.display())]
    NotRegular {
        /// The file.
        path: PathBuf,
    },
    /// Other users may read the file.
    #[error("other users may read {}; set its mode to 600", path.display())]
    Exposed {
        /// The file.
        path: PathBuf,
    },
    /// The text in the file is too short.
    #[error("{}: a secret has at least {SECRET_MIN} bytes", path.display())]
    ShortFile {
        /// The file.
        path: PathBuf,
    },
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_credential_of_systemd_is_private() {
        assert!(!is_exposed(0o100_440, false) && !is_exposed(0o100_400, true));
        assert!(is_exposed(0o100_444, false) && is_exposed(0o100_440, true));
    }

    #[test]
    fn a_secret_comes_from_a_private_file() {
        let path = std::env::temp_dir().join(format!("hydrant-secret-{}", std::process::id()));
        let write = |text: &str, mode| {
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        write("0123456789abcdef\n", 0o600);
        let read = || Secret::read(&path).map_err(|error| error.to_string());
        assert_eq!(read(), Ok(Secret::from_text(b"0123456789abcdef").unwrap()));
        write("0123456789abcdef\n", 0o640);
        assert!(read().unwrap_err().contains("set its mode to 600"));
        write("short", 0o600);
        assert!(read().unwrap_err().contains("at least 16 bytes"));
        write(&"x".repeat(5000), 0o600);
        assert!(read().unwrap_err().contains("4096"));
        std::fs::remove_file(&path).unwrap();
        assert!(read().unwrap_err().starts_with("cannot read"));
    }
}
