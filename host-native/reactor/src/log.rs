//! Log lines on standard error that a slow reader does not delay.

use std::os::fd::AsFd;
use std::time::Duration;

use crate::{Error, Key, Poller, Writer, printable};

/// Time that pending lines wait for their reader when the log is dropped.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// Log of a server. At most 256 KiB are pending, further lines are counted and dropped.
#[derive(Debug)]
pub struct Log {
    writer: Writer,
    /// Before each line.
    prefix: &'static str,
    key: Key,
    /// Number of lines dropped since the last written line.
    lost: u64,
}

impl Log {
    /// Creates a log on standard error whose lines begin with `prefix`. The poller reports `key` when
    /// [`flush`](Log::flush) has something to do.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub fn stderr(prefix: &'static str, key: impl Into<Key>) -> Result<Log, Error> {
        let writer =
            Writer::shared(rustix::stdio::stderr()).map_err(Error::during("cannot use standard error"))?;
        Ok(Log { writer, prefix, key: key.into(), lost: 0 })
    }

    /// Creates a log on any descriptor.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub fn on(fd: impl AsFd, prefix: &'static str, key: impl Into<Key>) -> Result<Log, Error> {
        let writer = Writer::shared(fd.as_fd()).map_err(Error::during("cannot use the log's file"))?;
        Ok(Log { writer, prefix, key: key.into(), lost: 0 })
    }

    /// Writes a line. Counts it as lost if 256 KiB are pending.
    pub fn line(&mut self, line: &str, poller: &Poller) {
        if self.writer.is_full() {
            self.lost = self.lost.saturating_add(1);
            return;
        }
        let (lost, prefix) = (std::mem::take(&mut self.lost), self.prefix);
        if lost > 0 {
            let notice = format!("{prefix}: {lost} lines are missing here, for want of a reader\n");
            self.writer.push(notice.as_bytes());
        }
        let line = printable(line);
        self.writer.push(format!("{prefix}: {line}\n").as_bytes());
        self.flush(poller);
    }

    /// Writes pending lines.
    pub fn flush(&mut self, poller: &Poller) {
        self.writer.flush(self.key, poller);
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.writer.drain(DRAIN_TIMEOUT);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, pipe};

    use super::*;

    #[test]
    fn lines_without_a_reader_are_counted() {
        let poller = Poller::new().unwrap();
        let (mut read, write) = pipe().unwrap();
        let mut log = Log::on(&write, "server", Key(0)).unwrap();
        drop(write);
        let mut kept = 0;
        while log.lost < 3 {
            kept += u64::from(log.lost == 0);
            log.line("pending", &poller);
        }
        let mut text = String::new();
        let mut drain = |log: &mut Log| {
            while !log.writer.is_empty() {
                let mut bytes = [0; 4096];
                let len = read.read(&mut bytes).unwrap();
                text.push_str(std::str::from_utf8(&bytes[..len]).unwrap());
                log.flush(&poller);
            }
        };
        drain(&mut log);
        log.line("later", &poller);
        drain(&mut log);
        drop(log);
        read.read_to_string(&mut text).unwrap();
        let (first, last) = text.split_at("server: pending\n".len() * (kept as usize - 1));
        assert!(first.lines().all(|line| line == "server: pending"));
        assert_eq!(last, "server: 3 lines are missing here, for want of a reader\nserver: later\n");
    }
}
