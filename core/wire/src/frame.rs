//! Framing: the boundaries between messages.
//!
//! Framing has no state. It examines all bytes that are not consumed, so the result does not depend on how they were
//! split. Bytes that cannot become a message are reported at once, before a buffer is full.

use memchr::memchr;

use super::scan;
use crate::Malformed;
use crate::limits::MESSAGE_MAX;

/// Length of the prefix of a PMI-2 message.
pub(super) const PREFIX: u32 = 6;
/// Start of every message except PMI-1 blocks.
const CMD: &[u8] = b"cmd=";
/// Start of a PMI-1 block.
const MCMD: &[u8] = b"mcmd=";

/// Framing of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// Lines, and blocks of lines from `mcmd=` to `endcmd`: PMI-1, and `init` and its reply in PMI-2.
    Line,
    /// PMI-2 after `init`: the length as six characters, decimal, right- or left-aligned, followed by that many bytes.
    /// Lines that start with `cmd=` are accepted too, for another `init`.
    Counted,
}

/// Kind of framing of a [`Frame`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One line, without its line feed.
    Line,
    /// Several lines: all `mcmd=` blocks of one spawn, or the four lines of the reply to `initack`.
    Block,
    /// A counted message, truncated at the first NUL.
    Counted,
}

/// A complete message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Message without framing. It starts with `cmd=` or `mcmd=`.
    pub body: &'a [u8],
    /// Length in bytes with framing: the start of the next message.
    pub len: u32,
    /// Kind of framing.
    pub kind: Kind,
}

/// Returns the first message in `bytes`, or `None` if it is incomplete.
///
/// `bytes` starts at the end of the previous frame. At most [`MESSAGE_MAX`] bytes are examined.
///
/// # Errors
/// [`Malformed`] if the bytes cannot become a message. The connection must then be closed.
pub fn next_frame(bytes: &[u8], framing: Framing) -> Result<Option<Frame<'_>>, Malformed> {
    match framing {
        // Slurm's library sends another `init`, as a line, when PMI2_Init is called twice.
        Framing::Counted if may_begin(bytes, CMD) => line(bytes),
        Framing::Counted => counted(bytes),
        Framing::Line if bytes.starts_with(MCMD) => block(bytes),
        Framing::Line if may_begin(bytes, CMD) || may_begin(bytes, MCMD) => line(bytes),
        Framing::Line => Err(Malformed::NoCommand),
    }
}

/// Returns the count in front of a message with this length, right-aligned as MPICH does. It has the last six digits.
pub(super) fn count(len: usize) -> [u8; PREFIX as usize] {
    let mut rest = len as u32;
    let mut count = [b' '; PREFIX as usize];
    for place in count.iter_mut().rev() {
        *place = if rest > 0 { b'0' + (rest % 10) as u8 } else { b' ' };
        rest /= 10;
    }
    count
}

/// Returns the first reply in `bytes`, for clients. The reply to `initack` is a frame of four lines, or of one line if
/// it is a refusal.
///
/// # Errors
/// As [`next_frame`].
pub fn next_reply(bytes: &[u8], framing: Framing) -> Result<Option<Frame<'_>>, Malformed> {
    let first = match next_frame(bytes, framing)? {
        Some(frame) if frame.kind == Kind::Line => frame,
        other => return Ok(other),
    };
    let mut words = first.body.split(|&b| b == b' ');
    if words.next() != Some(b"cmd=initack") || words.any(|word| word.starts_with(b"rc=") && word != b"rc=0") {
        return Ok(Some(first));
    }
    let mut end = first.len as usize;
    for _ in 0..3 {
        let rest = bytes.get(end..).unwrap_or_default();
        if !may_begin(rest, b"cmd=set ") {
            return Err(Malformed::Structure);
        }
        match line(rest)? {
            Some(next) => end += next.len as usize,
            None => return Ok(None),
        }
    }
    frame(bytes, end - 1, end, Kind::Block).map(Some)
}

/// Returns whether `bytes` and `word` agree up to the length of the shorter one.
fn may_begin(bytes: &[u8], word: &[u8]) -> bool {
    bytes.starts_with(word) || word.starts_with(bytes)
}

fn frame(bytes: &[u8], body: usize, len: usize, kind: Kind) -> Result<Frame<'_>, Malformed> {
    match u32::try_from(len) {
        Ok(len) if len <= MESSAGE_MAX => Ok(Frame { body: bytes.get(..body).unwrap_or_default(), len, kind }),
        _ => Err(Malformed::TooLong),
    }
}

/// Returns the bytes that may belong to one message.
fn window(bytes: &[u8]) -> &[u8] {
    bytes.get(..MESSAGE_MAX as usize).unwrap_or(bytes)
}

fn line(bytes: &[u8]) -> Result<Option<Frame<'_>>, Malformed> {
    match memchr(b'\n', window(bytes)) {
        Some(end) => frame(bytes, end, end + 1, Kind::Line).map(Some),
        None if bytes.len() >= MESSAGE_MAX as usize => Err(Malformed::TooLong),
        None => Ok(None),
    }
}

/// Returns the blocks of one spawn. Each contains their number as `totspawns`. A block without it is the only one.
fn block(bytes: &[u8]) -> Result<Option<Frame<'_>>, Malformed> {
    let mut total = None;
    let mut ended = 0;
    let mut within = false;
    let mut at = 0;
    loop {
        let rest = window(bytes).get(at..).unwrap_or_default();
        if !within && !may_begin(rest, MCMD) {
            return Err(Malformed::Structure);
        }
        let Some(len) = memchr(b'\n', rest) else {
            let full = bytes.len() >= MESSAGE_MAX as usize;
            return if full { Err(Malformed::TooLong) } else { Ok(None) };
        };
        let line = rest.get(..len).unwrap_or_default();
        at += len + 1;
        within = true;
        if let Some(digits) = line.strip_prefix(b"totspawns=") {
            let number = scan::number(digits).filter(|&n| n > 0).ok_or(Malformed::Structure)?;
            if *total.get_or_insert(number) != number {
                return Err(Malformed::Structure);
            }
        } else if line == b"endcmd" {
            ended += 1;
            within = false;
            if ended >= total.unwrap_or(1) {
                return frame(bytes, at, at, Kind::Block).map(Some);
            }
        }
    }
}

fn counted(bytes: &[u8]) -> Result<Option<Frame<'_>>, Malformed> {
    let (prefix, rest) = bytes.split_at(bytes.len().min(PREFIX as usize));
    let Some(len) = length(prefix)? else { return Ok(None) };
    if len > MESSAGE_MAX - PREFIX {
        return Err(Malformed::TooLong);
    }
    if (len as usize) < CMD.len() || !may_begin(rest, CMD) {
        return Err(Malformed::NoCommand);
    }
    let Some(body) = rest.get(..len as usize) else { return Ok(None) };
    // MPICH 4.0.2 counts six bytes too many, and sends the memory after the message: `20    cmd=kvs-fence;\0;valu`.
    let end = memchr(0, body).unwrap_or(body.len());
    Ok(Some(Frame { body: body.get(..end).unwrap_or_default(), len: PREFIX + len, kind: Kind::Counted }))
}

/// Parses the length in `prefix`. Returns `None` if there are fewer than six characters.
///
/// MPICH sends `    14`, Slurm `14    `.
fn length(prefix: &[u8]) -> Result<Option<u32>, Malformed> {
    // Six digits do not overflow.
    let (mut number, mut digits, mut ended) = (0, 0, false);
    for &byte in prefix {
        match byte {
            b'0'..=b'9' if !ended => {
                number = number * 10 + u32::from(byte - b'0');
                digits += 1;
            }
            b' ' => ended = digits > 0,
            _ => return Err(Malformed::Length),
        }
    }
    match digits {
        _ if prefix.len() < PREFIX as usize => Ok(None),
        0 => Err(Malformed::Length),
        _ => Ok(Some(number)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn whole(bytes: &[u8], framing: Framing) -> Frame<'_> {
        next_frame(bytes, framing).unwrap().unwrap()
    }

    // Shows: pmi2.h, Constants and types | `PMII_COMMANDLEN_SIZE` | six characters of length before each message | done:
    // left- and right-aligned
    #[test]
    fn lengths_of_either_alignment() {
        for bytes in [&b"    14cmd=job-getid;    13cmd"[..], b"14    cmd=job-getid;", b"000014cmd=job-getid;"]
        {
            let frame = whole(bytes, Framing::Counted);
            assert_eq!((frame.body, frame.len), (&b"cmd=job-getid;"[..], 20));
        }
    }

    #[test]
    fn mpich_402_counts_six_bytes_too_many() {
        for bytes in [&b"20    cmd=kvs-fence;\x00;valu"[..], b"20    cmd=kvs-fence;\0\0\0\0\0\0"] {
            let frame = whole(bytes, Framing::Counted);
            assert_eq!((frame.body, frame.len as usize), (&b"cmd=kvs-fence;"[..], bytes.len()));
        }
    }

    #[test]
    fn rubbish_is_told_at_once() {
        for (bytes, why) in [
            (&b"G"[..], Malformed::Length),
            (b"14x", Malformed::Length),
            (b"-1", Malformed::Length),
            (b"1 4   ", Malformed::Length),
            (b"1 4", Malformed::Length),
            (b"      ", Malformed::Length),
            (b"     3", Malformed::NoCommand),
            (b"    14c=", Malformed::NoCommand),
            (b" 65531", Malformed::TooLong),
            (b"999999", Malformed::TooLong),
        ] {
            assert_eq!(next_frame(bytes, Framing::Counted), Err(why), "{}", bytes.escape_ascii());
        }
        for bytes in [&b"G"[..], b"cmx", b"mcmd\n", b"\n", b"\0", b" cmd=init\n", b"    14cmd"] {
            assert_eq!(next_frame(bytes, Framing::Line), Err(Malformed::NoCommand));
        }
    }

    // Shows: pmi2.h, Constants and types | `PMII_MAX_COMMAND_LEN` | messages of up to 64 KiB | done, with the six
    // characters of length; firmware: up to 2,304 bytes
    // Also: launch `dynamic::an_oversize_message_costs_only_its_sender`
    #[test]
    fn a_message_has_a_longest_length() {
        let mut line = std::vec![b'x'; MESSAGE_MAX as usize];
        line[..4].copy_from_slice(b"cmd=");
        assert_eq!(next_frame(&line[..line.len() - 1], Framing::Line), Ok(None));
        assert_eq!(next_frame(&line, Framing::Line), Err(Malformed::TooLong));
        *line.last_mut().unwrap() = b'\n';
        assert_eq!(whole(&line, Framing::Line).len, MESSAGE_MAX);

        let mut block = Vec::from(&b"mcmd=spawn\n"[..]);
        block.resize(MESSAGE_MAX as usize, b'\n');
        assert_eq!(next_frame(&block, Framing::Line), Err(Malformed::TooLong));

        let mut counted = Vec::from(&b" 65530cmd="[..]);
        assert_eq!(next_frame(&counted, Framing::Counted), Ok(None));
        counted.resize(MESSAGE_MAX as usize, b'x');
        assert_eq!(whole(&counted, Framing::Counted).len, MESSAGE_MAX);
    }

    #[test]
    fn one_spawn_is_one_frame() {
        let one = "mcmd=spawn\nnprocs=1\nexecname=endcmd\ntotspawns=2\nspawnssofar=1\nendcmd\n";
        let two = "mcmd=spawn\ntotspawns=2\nspawnssofar=2\nendcmd\n";
        let both = std::format!("{one}{two}cmd=finalize\n");
        let frame = whole(both.as_bytes(), Framing::Line);
        assert_eq!((frame.kind, frame.len as usize), (Kind::Block, one.len() + two.len()));
        for end in 0..one.len() + two.len() {
            assert_eq!(next_frame(&both.as_bytes()[..end], Framing::Line), Ok(None), "{end}");
        }
        let alone = whole(b"mcmd=spawn\nendcmd\ncmd=finalize\n", Framing::Line);
        assert_eq!(alone.len, 18);
    }

    #[test]
    fn blocks_that_contradict_each_other() {
        for block in [
            &b"mcmd=spawn\ntotspawns=2\nendcmd\ncmd=fin"[..],
            b"mcmd=spawn\ntotspawns=2\nendcmd\nmcmd=spawn\ntotspawns=3\n",
            b"mcmd=spawn\ntotspawns=0\n",
            b"mcmd=spawn\ntotspawns=x\n",
        ] {
            assert_eq!(next_frame(block, Framing::Line), Err(Malformed::Structure));
        }
    }

    #[test]
    fn the_answer_to_initack_is_four_lines() {
        let lines = b"cmd=initack rc=0\ncmd=set size=2\ncmd=set rank=1\ncmd=set debug=0\n";
        let mut more = lines.to_vec();
        more.extend_from_slice(b"cmd=response");
        assert_eq!(next_reply(&more, Framing::Line).unwrap().unwrap().len as usize, lines.len());
        for end in 0..lines.len() {
            assert_eq!(next_reply(&lines[..end], Framing::Line), Ok(None));
        }
        let refusal = b"cmd=initack rc=3 msg=no_such_rank\n";
        assert_eq!(next_reply(refusal, Framing::Line).unwrap().unwrap().len as usize, refusal.len());
        let other = b"cmd=initack rc=0\ncmd=response";
        assert_eq!(next_reply(other, Framing::Line), Err(Malformed::Structure));
    }
}
