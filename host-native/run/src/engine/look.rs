//! Files that PMIx clients monitor (`PMIX_MONITOR_FILE`).
//!
//! A thread looks at them: a network file system whose server does not answer holds up the other files, and nothing else. It has
//! one request for each monitor at most.

use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::{fs, thread};

use hydrant_core::wire::pmix::FileState;
use hydrant_core::{Input, Refusal, Time, UpcallId};
use hydrant_reactor::signals::with_all_blocked;
use hydrant_reactor::{Interest, Poller};

use super::Engine;
use super::token::Token;
use crate::error::RunError;

/// Thread that looks at files.
pub(super) struct Looker {
    requests: Sender<(UpcallId, PathBuf)>,
    answers: Receiver<(UpcallId, io::Result<FileState>)>,
    /// Has a byte for each answer.
    wakes: UnixStream,
}

impl Looker {
    fn start(poller: &Poller) -> Result<Looker, io::Error> {
        let (wakes, mut waker) = UnixStream::pair()?;
        wakes.set_nonblocking(true)?;
        let (requests, asked) = channel::<(UpcallId, PathBuf)>();
        let (answer, answers) = channel();
        let look = move || {
            // The other ends close when the run is over.
            for (upcall, path) in asked {
                if answer.send((upcall, look(&path))).is_err() || waker.write_all(&[0]).is_err() {
                    break;
                }
            }
        };
        with_all_blocked(|| thread::Builder::new().name("looker".to_owned()).spawn(look))?;
        poller.add(&wakes, Token::Looks, Interest::Read).map_err(io::Error::other)?;
        Ok(Looker { requests, answers, wakes })
    }
}

impl Engine<'_> {
    /// Has the file of a monitor looked at.
    pub(super) fn ask_for_look(&mut self, upcall: UpcallId, path: PathBuf) -> Result<(), RunError> {
        if self.looker.is_none() {
            self.looker = Looker::start(&self.poller).ok();
        }
        let asked = self.looker.as_ref().is_some_and(|looker| looker.requests.send((upcall, path)).is_ok());
        // Without a thread the monitor learns nothing, as of a file that is not there.
        if asked { Ok(()) } else { self.answer_look(upcall, Err(io::ErrorKind::OutOfMemory.into())) }
    }

    /// Passes on what the thread has seen.
    pub(super) fn take_looks(&mut self) -> Result<(), RunError> {
        let Some(looker) = &mut self.looker else { return Ok(()) };
        // Each byte follows its answer, and answers without their byte may be taken with others.
        while matches!(looker.wakes.read(&mut [0; 64]), Ok(1..)) {}
        let seen: Vec<_> = looker.answers.try_iter().collect();
        seen.into_iter().try_for_each(|(upcall, file)| self.answer_look(upcall, file))
    }

    fn answer_look(&mut self, upcall: UpcallId, file: io::Result<FileState>) -> Result<(), RunError> {
        let (rc, text) = match file {
            Ok(file) => (0, file.to_bytes().to_vec()),
            Err(_) => (Refusal::NoName.rc(), Vec::new()),
        };
        let now = Time(self.now());
        Ok(self.core.handle(now, Input::UpcallComplete { upcall, rc, text: &text })?)
    }
}

/// Returns what changes in a file. Times are nanoseconds, so that changes within a second count.
fn look(path: &Path) -> io::Result<FileState> {
    let file = fs::metadata(path)?;
    let nanos = |seconds: i64, nanos: i64| seconds.wrapping_mul(1_000_000_000).wrapping_add(nanos) as u64;
    Ok(FileState {
        size: file.size(),
        accessed: nanos(file.atime(), file.atime_nsec()),
        modified: nanos(file.mtime(), file.mtime_nsec()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_grows_looks_different() {
        let path = std::env::temp_dir().join(format!("hydrant-look-{}", std::process::id()));
        assert!(look(&path).is_err());
        fs::write(&path, b"1").unwrap();
        let before = look(&path).unwrap();
        assert_eq!(look(&path).unwrap(), before);
        fs::write(&path, b"12").unwrap();
        assert_eq!((before.size, look(&path).unwrap().size), (1, 2));
        fs::remove_file(&path).unwrap();
    }
}
