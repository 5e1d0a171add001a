//! Room for the job's descriptors.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::error::RunError;

/// The soft limit of open files, raised for the launcher alone: ranks get the one that the user gave, since programs
/// that use `select` fail on descriptors over 1,023.
#[derive(Debug)]
pub(crate) struct OpenFiles {
    before: Rlimit,
    raised: Option<Rlimit>,
}

impl OpenFiles {
    /// Makes room for `needed` descriptors, or says that there is none.
    pub(crate) fn reserve(ranks: u32, needed: u64) -> Result<OpenFiles, RunError> {
        let mut files = OpenFiles { before: getrlimit(Resource::Nofile), raised: None };
        files.grow(ranks, needed)?;
        Ok(files)
    }

    /// Makes room for `needed` descriptors in all, or says that there is none; what there is stays.
    pub(crate) fn grow(&mut self, ranks: u32, needed: u64) -> Result<(), RunError> {
        let raised =
            raise(self.before, needed).map_err(|limit| RunError::OpenFiles { ranks, needed, limit })?;
        let now = self.raised.and_then(|limit| limit.current);
        if let Some(limit) = raised.filter(|limit| limit.current > now) {
            setrlimit(Resource::Nofile, limit).map_err(RunError::system("setrlimit"))?;
            self.raised = raised;
        }
        Ok(())
    }

    /// The limit that ranks get, where it is not the launcher's own.
    pub(crate) fn of_child(&self) -> Option<libc::rlimit> {
        let number = |limit: Option<u64>| limit.unwrap_or(libc::RLIM_INFINITY);
        let Rlimit { current, maximum } = self.before;
        self.raised.map(|_| libc::rlimit { rlim_cur: number(current), rlim_max: number(maximum) })
    }
}

/// The limit to set, if any; the hard limit where that is too low.
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
