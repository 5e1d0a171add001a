//! The log of a server: lines on standard error. Who does not read them holds nobody up.

use std::time::Duration;

use super::poller::{Poller, Token};
use super::sink::Sinks;
use crate::error::RunError;

/// How long the last lines wait for their reader when the server ends.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Lines that are written as they are read.
#[derive(Debug)]
pub(crate) struct Log {
    sinks: Sinks,
    /// Lines that there was no room for.
    lost: u64,
}

impl Log {
    /// Over standard error.
    pub(crate) fn new() -> Result<Log, RunError> {
        let sinks = Sinks::new().map_err(RunError::system("cannot use standard error"))?;
        Ok(Log { sinks, lost: 0 })
    }

    /// Adds a line; where 256 KiB wait to be read already, it is only counted.
    pub(crate) fn say(&mut self, line: &str, poller: &Poller) {
        if self.sinks.get(self.sinks.stderr()).is_full() {
            self.lost = self.lost.saturating_add(1);
            return;
        }
        let lost = std::mem::take(&mut self.lost);
        if lost > 0 {
            self.sinks.note("hydrant serve", &format!("{lost} lines are missing here, for want of a reader"));
        }
        self.sinks.note("hydrant serve", line);
        self.sinks.flush(poller);
    }

    /// Goes on writing where that was waited for.
    pub(crate) fn ready(&mut self, token: Token, poller: &Poller) {
        if let Token::Sink(sink) = token {
            self.sinks.flush_one(sink as usize, poller);
        }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.sinks.drain(LAST_WORDS);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, pipe};

    use super::super::sink::sinks_over;
    use super::*;

    #[test]
    fn lines_without_a_reader_are_counted_in_the_end() {
        let poller = Poller::new().unwrap();
        let (mut read, error) = pipe().unwrap();
        let mut log = Log { sinks: sinks_over(&error, &error), lost: 0 };
        drop(error);
        let mut kept = 0;
        while log.lost < 3 {
            kept += u64::from(log.lost == 0);
            log.say("what nobody reads for now", &poller);
        }
        let mut said = String::new();
        let mut go_on = |log: &mut Log| {
            while !log.sinks.are_empty() {
                let mut bytes = [0; 4096];
                let len = read.read(&mut bytes).unwrap();
                said.push_str(std::str::from_utf8(&bytes[..len]).unwrap());
                log.ready(Token::Sink(0), &poller);
            }
        };
        go_on(&mut log);
        log.say("and now", &poller);
        go_on(&mut log);
        drop(log);
        read.read_to_string(&mut said).unwrap();
        let (first, last) =
            said.split_at("hydrant serve: what nobody reads for now\n".len() * (kept as usize - 1));
        assert!(first.lines().all(|line| line == "hydrant serve: what nobody reads for now"));
        assert_eq!(
            last,
            "hydrant serve: 3 lines are missing here, for want of a reader\nhydrant serve: and now\n"
        );
    }
}
