//! Open files: their limit, and which of them child processes inherit.

use std::ffi::OsString;
use std::os::fd::RawFd;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::{Error, sys};

/// The soft limit of open files, raised for this process alone. Child processes get back the limit that the user set,
/// because programs that use `select` fail on descriptors above 1023.
#[derive(Debug)]
pub struct OpenFiles {
    before: Rlimit,
    raised: Option<Rlimit>,
    /// Most descriptors that were needed, without those that were added.
    needed: u64,
    /// Descriptors that were added.
    added: u64,
}

/// Error of a reservation of open files.
#[derive(Debug, thiserror::Error)]
pub enum OpenFilesError {
    /// The hard limit is too low.
    #[error("{needed} open files are needed, but the hard limit is {limit}")]
    HardLimit {
        /// Descriptors that are needed.
        needed: u64,
        /// The hard limit `RLIMIT_NOFILE`.
        limit: u64,
    },
    /// The limit cannot be set.
    #[error(transparent)]
    System(#[from] Error),
}

impl OpenFilesError {
    /// Remedy, if there is a specific one.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            OpenFilesError::HardLimit { .. } => {
                Some("raise the limit (ulimit -Hn, or LimitNOFILE of a systemd service)")
            }
            OpenFilesError::System(_) => None,
        }
    }
}

impl OpenFiles {
    /// Makes room for `needed` descriptors.
    ///
    /// # Errors
    /// The hard limit is lower.
    pub fn reserve(needed: u64) -> Result<OpenFiles, OpenFilesError> {
        let mut files = OpenFiles { before: getrlimit(Resource::Nofile), raised: None, needed: 0, added: 0 };
        files.grow(needed)?;
        Ok(files)
    }

    /// Makes room for `needed` descriptors in all, and for those that were [added](OpenFiles::add). The limit never shrinks.
    ///
    /// # Errors
    /// The hard limit is lower.
    pub fn grow(&mut self, needed: u64) -> Result<(), OpenFilesError> {
        self.raise(needed.saturating_add(self.added))?;
        self.needed = self.needed.max(needed);
        Ok(())
    }

    /// Makes room for more descriptors than are needed, now and later.
    ///
    /// # Errors
    /// The hard limit is lower.
    pub fn add(&mut self, more: u64) -> Result<(), OpenFilesError> {
        self.raise(self.needed.saturating_add(self.added).saturating_add(more))?;
        self.added = self.added.saturating_add(more);
        Ok(())
    }

    fn raise(&mut self, needed: u64) -> Result<(), OpenFilesError> {
        let raised =
            raise(self.before, needed).map_err(|limit| OpenFilesError::HardLimit { needed, limit })?;
        let now = self.raised.and_then(|limit| limit.current);
        if let Some(limit) = raised.filter(|limit| limit.current > now) {
            setrlimit(Resource::Nofile, limit).map_err(Error::during("setrlimit"))?;
            self.raised = raised;
        }
        Ok(())
    }

    /// Returns the limit for child processes, if it differs from this process's own.
    pub fn of_child(&self) -> Option<libc::rlimit> {
        let number = |limit: Option<u64>| {
            limit.and_then(|limit| sys::RawLimit::try_from(limit).ok()).unwrap_or(libc::RLIM_INFINITY)
        };
        let Rlimit { current, maximum } = self.before;
        self.raised.map(|_| libc::rlimit { rlim_cur: number(current), rlim_max: number(maximum) })
    }
}

/// Descriptors of a process manager around this process, which are no business of the ranks.
const OF_OTHERS: [&str; 2] = ["PMI_FD", "HYDI_CONTROL_FD"];

/// Marks every descriptor above standard error close-on-exec, so that child processes inherit none that this process was
/// given.
///
/// # Errors
/// The open descriptors cannot be listed.
pub fn set_close_on_exec() -> Result<(), Error> {
    sys::mark_close_on_exec().map_err(Error::during("cannot list the open descriptors"))
}

/// As [`set_close_on_exec`]. Returns the descriptors that the user has passed to this process, in order: those that it was
/// given, without the sockets of a process manager that it is a rank of.
///
/// # Errors
/// The open descriptors cannot be listed.
pub fn take_inherited() -> Result<Vec<RawFd>, Error> {
    let of_other = |name: &&str| std::env::var(name).ok()?.parse::<RawFd>().ok();
    let others: Vec<RawFd> = OF_OTHERS.iter().filter_map(of_other).collect();
    let mut inherited: Vec<RawFd> = match std::fs::read_dir("/dev/fd") {
        Ok(entries) => {
            let number = |name: OsString| name.to_str()?.parse().ok();
            entries.flatten().filter_map(|entry| number(entry.file_name())).collect()
        }
        // A machine without /dev or /proc.
        Err(_) => (3..SCANNED).collect(),
    };
    // SAFETY: the call reads a flag, and fails on a number that is not open.
    let is_passed = |fd: &RawFd| unsafe { libc::fcntl(*fd, libc::F_GETFD) } == 0;
    inherited.retain(|fd| *fd > 2 && !others.contains(fd) && is_passed(fd));
    inherited.sort_unstable();
    set_close_on_exec()?;
    Ok(inherited)
}

/// Numbers of descriptors that are tried where the system does not list them.
const SCANNED: RawFd = 256;

/// Returns the limit to set, if any. Fails with the hard limit if that is too low.
fn raise(before: Rlimit, needed: u64) -> Result<Option<Rlimit>, u64> {
    match before {
        Rlimit { current: None, .. } => Ok(None),
        Rlimit { current: Some(soft), .. } if soft >= needed => Ok(None),
        Rlimit { maximum: Some(hard), .. } if hard < needed => Err(hard),
        Rlimit { maximum, .. } => Ok(Some(Rlimit { current: Some(needed), maximum })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_grows_up_to_the_hard_one() {
        let limit = |current, maximum| Rlimit { current, maximum };
        assert_eq!(raise(limit(Some(1024), Some(4096)), 1024), Ok(None));
        assert_eq!(raise(limit(Some(1024), Some(4096)), 4096), Ok(Some(limit(Some(4096), Some(4096)))));
        assert_eq!(raise(limit(Some(1024), None), 5000), Ok(Some(limit(Some(5000), None))));
        assert_eq!(raise(limit(Some(1024), Some(4096)), 4097), Err(4096));
        assert_eq!(raise(limit(None, None), u64::MAX), Ok(None));
    }
}
