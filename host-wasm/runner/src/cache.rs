//! Compiled plugins, kept between runs.
//!
//! Compiled code is loaded as it is and then runs in this process, so only this user may be able to write it: the
//! folder and the files must be the user's own and nobody else's to write, which is asked of the very descriptors that
//! are read. A file's name says what it was compiled from and by what, its end says that it is whole.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{self, AtFlags, CWD, FileType, Mode, OFlags};
use sha2::{Digest, Sha256};

/// Longest compiled plugin in bytes.
const CODE_MAX: u64 = 64 << 20;
const DIGEST: usize = 32;

/// A folder of this user's own.
#[derive(Debug)]
pub(crate) struct Cache {
    dir: OwnedFd,
}

impl Cache {
    /// Opens the folder, which is made where it is missing.
    ///
    /// # Errors
    /// The system's, and `PermissionDenied` where others could write there.
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
        own(&dir, FileType::Directory)?;
        Ok(Cache { dir })
    }

    /// What was kept under that name.
    ///
    /// # Errors
    /// The system's; `PermissionDenied` for a file that others could write, `InvalidData` for one that is not whole.
    pub(crate) fn load(&self, name: &str) -> io::Result<Vec<u8>> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = fs::openat(&self.dir, name, flags, Mode::empty())?;
        own(&file, FileType::RegularFile)?;
        let mut bytes = Vec::new();
        File::from(file).take(CODE_MAX).read_to_end(&mut bytes)?;
        let whole = bytes.split_last_chunk::<DIGEST>().is_some_and(|(code, end)| digest(&[code]) == *end);
        if !whole {
            return Err(io::ErrorKind::InvalidData.into());
        }
        bytes.truncate(bytes.len() - DIGEST);
        Ok(bytes)
    }

    /// Keeps something under a name, whole or not at all.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn store(&self, name: &str, code: &[u8]) -> io::Result<()> {
        let made = format!("{name}.{}", std::process::id());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = fs::openat(&self.dir, &made, flags, Mode::RUSR | Mode::WUSR)?;
        let mut file = File::from(file);
        let written = file.write_all(code).and_then(|()| file.write_all(&digest(&[code])));
        let kept = written.and_then(|()| Ok(fs::renameat(&self.dir, &made, &self.dir, name)?));
        if kept.is_err() {
            // There is nothing to be done about a file that cannot be removed either.
            let _ = fs::unlinkat(&self.dir, &made, AtFlags::empty());
        }
        kept
    }
}

/// Names what is compiled of `parts`.
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

/// Whether a file is of that kind, this user's, and for nobody else to write.
fn own(file: impl AsFd, kind: FileType) -> io::Result<()> {
    let stat = fs::fstat(file)?;
    let others = Mode::from_raw_mode(stat.st_mode) & (Mode::WGRP | Mode::WOTH);
    let mine = stat.st_uid == rustix::process::geteuid().as_raw();
    if mine && others.is_empty() && FileType::from_raw_mode(stat.st_mode) == kind {
        Ok(())
    } else {
        Err(io::ErrorKind::PermissionDenied.into())
    }
}
