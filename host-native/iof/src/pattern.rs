//! Patterns: names of files, and texts before lines, which name a rank.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

/// A job, as labels and patterns name it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NamedJob {
    /// 0 for the job of the command line. Spawned jobs count from 1.
    pub ordinal: u32,
    /// The task of a job array that it belongs to.
    pub task: Option<u32>,
}

/// Returns the text of a pattern for a rank: a file name, or what precedes a line.
///
/// # Errors
/// The letter behind a percent sign that has no meaning.
pub fn expand(
    pattern: &OsStr,
    (job, rank): (NamedJob, u32),
    appnum: u32,
    host: &str,
    mut pid: impl FnMut() -> u32,
) -> Result<OsString, String> {
    let mut path = OsString::with_capacity(pattern.len() + 8);
    let mut parts = pattern.as_bytes().split(|&byte| byte == b'%');
    path.push(OsStr::from_bytes(parts.next().unwrap_or_default()));
    while let Some(part) = parts.next() {
        match part.first() {
            Some(b'r') => path.push(rank.to_string()),
            Some(b'g') => path.push(job.ordinal.to_string()),
            Some(b'I') => path.push(job.task.unwrap_or(0).to_string()),
            Some(b'h') => path.push(host),
            Some(b'p') => path.push(pid().to_string()),
            Some(b'a') => path.push(appnum.to_string()),
            // Between two percent signs.
            None => {
                let behind = parts.next().ok_or_else(String::new)?;
                path.push("%");
                path.push(OsStr::from_bytes(behind));
                continue;
            }
            Some(_) => return Err(String::from_utf8_lossy(part).chars().take(1).collect()),
        }
        path.push(OsStr::from_bytes(&part[1..]));
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_name_files() {
        let task = |task| NamedJob { ordinal: 0, task };
        let name = |pattern: &str| expand(pattern.as_ref(), (task(None), 3), 1, "node7", || 42);
        assert_eq!(name("out.%r-%g-%h-%p-%a.100%%").unwrap(), "out.3-0-node7-42-1.100%");
        assert_eq!(name("%%%%r%rx%%").unwrap(), "%%r3x%");
        assert_eq!(name("plain").unwrap(), "plain");
        let of_task = expand("%I/%r".as_ref(), (task(Some(8)), 3), 1, "node7", || 42);
        assert_eq!((of_task.unwrap(), name("%I").unwrap()), ("8/3".into(), "0".into()));
        assert_eq!(name("%x"), Err("x".to_owned()));
        assert_eq!(name("%"), Err(String::new()));
    }
}
