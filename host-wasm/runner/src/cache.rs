//! Cache of compiled plugins on disk.
//!
//! Compiled code runs in this process without a further check. Folder and files must therefore belong to this user and be
//! writable by this user alone. Both are checked on the open descriptors that are read. A file's name is the digest of the
//! plugin and of the compiler's version. Its last bytes are the digest of the code.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{self, AtFlags, CWD, FileType, Mode, OFlags};
use sha2::{Digest, Sha256};

/// Maximum length of compiled code in bytes.
const CODE_MAX: u64 = 64 << 20;
const DIGEST: usize = 32;

/// Cache folder, which only this user can write to.
#[derive(Debug)]
pub(crate) struct Cache {
    dir: OwnedFd,
}

impl Cache {
    /// Opens the folder. Creates it if it is missing.
    ///
    /// # Errors
    /// An I/O error, `PermissionDenied` if others can write to the folder.
    pub(crate) fn open(dir: &Path) -> io::Result<Cache> {
        if let Some(parent) = dir.parent() {
            std::fs::create_dir_all(parent)?;
        }
        match fs::mkdir(dir, Mode::RWXU) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let dir = fs::openat(CWD, dir, flags, Mode::empty())?;
        check_owner(&dir, FileType::Directory)?;
        Ok(Cache { dir })
    }

    /// Loads code.
    ///
    /// # Errors
    /// An I/O error, `PermissionDenied` if others can write to the file, `InvalidData` if it is incomplete or damaged.
    pub(crate) fn load(&self, name: &str) -> io::Result<Vec<u8>> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = fs::openat(&self.dir, name, flags, Mode::empty())?;
        check_owner(&file, FileType::RegularFile)?;
        let mut bytes = Vec::new();
        File::from(file).take(CODE_MAX).read_to_end(&mut bytes)?;
        let intact = bytes.split_last_chunk::<DIGEST>().is_some_and(|(code, end)| digest(&[code]) == *end);
        if !intact {
            return Err(io::ErrorKind::InvalidData.into());
        }
        bytes.truncate(bytes.len() - DIGEST);
        Ok(bytes)
    }

    /// Stores code atomically.
    ///
    /// # Errors
    /// An I/O error.
    pub(crate) fn store(&self, name: &str, code: &[u8]) -> io::Result<()> {
        let temporary = format!("{name}.{}", std::process::id());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = fs::openat(&self.dir, &temporary, flags, Mode::RUSR | Mode::WUSR)?;
        let mut file = File::from(file);
        let written = file.write_all(code).and_then(|()| file.write_all(&digest(&[code])));
        let stored = written.and_then(|()| Ok(fs::renameat(&self.dir, &temporary, &self.dir, name)?));
        if stored.is_err() {
            // An error here adds nothing to the one that is returned.
            let _ = fs::unlinkat(&self.dir, &temporary, AtFlags::empty());
        }
        stored
    }
}

/// Returns the name for code that is compiled from `parts`.
pub(crate) fn name(parts: &[&[u8]]) -> String {
    digest(parts).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn digest(parts: &[&[u8]]) -> [u8; DIGEST] {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update((part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    hasher.finalize().into()
}

/// Checks that a file is of this kind, belongs to this user and is writable by no other.
fn check_owner(file: impl AsFd, kind: FileType) -> io::Result<()> {
    let stat = fs::fstat(file)?;
    let others = Mode::from_raw_mode(stat.st_mode) & (Mode::WGRP | Mode::WOTH);
    let mine = stat.st_uid == rustix::process::geteuid().as_raw();
    if mine && others.is_empty() && FileType::from_raw_mode(stat.st_mode) == kind {
        Ok(())
    } else {
        Err(io::ErrorKind::PermissionDenied.into())
    }
}
