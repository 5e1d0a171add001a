//! `hydrant attach`: the output of a job from now on, in whole lines with labels.

use std::collections::BTreeMap;
use std::io::{self, Write};

use hydrant_run::messages;
use hydrant_status::client::{self, Connection};
use hydrant_status::{Error, Reply, Request};

use super::{AttachOptions, ObserveError};

/// Longest line that is kept whole, in bytes.
const LINE_MAX: usize = 64 * 1024;

/// Follows the output of a job until its end. Returns the exit code of the job, or 0 if it is unknown.
pub(super) fn attach(options: &AttachOptions) -> Result<u8, ObserveError> {
    let mut connection = Connection::open(&client::find(&options.job)?)?;
    connection.ask(&Request::Attach)?;
    messages::print(
        messages::HYDRANT,
        format_args!(
            "following the output of job {}; Ctrl-C ends this command, not the job",
            connection.pid()
        ),
    );
    let mut lines = Lines::default();
    loop {
        match connection.receive(None) {
            Ok(Reply::Output { job, rank, stderr, bytes }) => lines.add((job, rank, stderr), &bytes)?,
            Ok(Reply::Lost(bytes)) => {
                lines.end()?;
                messages::print(
                    messages::HYDRANT,
                    format_args!("about {bytes} bytes of output are missing here"),
                );
            }
            Ok(Reply::Ended(code)) => {
                lines.end()?;
                return Ok(code);
            }
            Ok(_) => return Err(Error::Reply { pid: connection.pid() }.into()),
            Err(Error::Closed { .. }) => {
                lines.end()?;
                messages::print(messages::HYDRANT, format_args!("job {} has ended", connection.pid()));
                return Ok(0);
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// A stream of a rank: ordinal of its job, the rank, and whether it is standard error.
type Stream = (u32, u32, bool);

/// Unfinished lines of all streams.
#[derive(Debug, Default)]
struct Lines(BTreeMap<Stream, Vec<u8>>);

impl Lines {
    /// Writes the lines that are complete.
    fn add(&mut self, stream: Stream, bytes: &[u8]) -> io::Result<()> {
        let partial = self.0.entry(stream).or_default();
        partial.extend_from_slice(bytes);
        let complete = match memchr::memrchr(b'\n', partial) {
            Some(end) => end + 1,
            None if partial.len() >= LINE_MAX => partial.len(),
            None => return Ok(()),
        };
        let lines: Vec<u8> = partial.drain(..complete).collect();
        write(stream, &labelled(stream, &lines))
    }

    /// Writes and ends the lines that are not complete.
    fn end(&mut self) -> io::Result<()> {
        for (stream, partial) in std::mem::take(&mut self.0) {
            if !partial.is_empty() {
                write(stream, &labelled(stream, &partial))?;
            }
        }
        Ok(())
    }
}

/// Lines with the label of `-l` before each, and a line end behind the last.
fn labelled((job, rank, _): Stream, lines: &[u8]) -> Vec<u8> {
    let label = if job == 0 { format!("[{rank}] ") } else { format!("[{job}:{rank}] ") };
    let mut text = Vec::new();
    for line in lines.split_inclusive(|&byte| byte == b'\n') {
        text.extend(label.as_bytes());
        text.extend(line);
    }
    if text.last() != Some(&b'\n') {
        text.push(b'\n');
    }
    text
}

fn write((_, _, stderr): Stream, text: &[u8]) -> io::Result<()> {
    if stderr {
        return io::stderr().write_all(text);
    }
    let mut out = io::stdout().lock();
    out.write_all(text)?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_has_a_label() {
        assert_eq!(labelled((0, 3, false), b"a\n\nb"), b"[3] a\n[3] \n[3] b\n");
        assert_eq!(labelled((2, 3, true), b"a\n"), b"[2:3] a\n");
    }
}
