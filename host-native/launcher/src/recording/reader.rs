//! Bytes into records, of which nothing is believed.

use std::io::Read;

use hydrant_core::Limits;

use super::{FRAME, MAGIC, PREAMBLE, RECORD_MAX, Record, RecordingError, VERSION};

/// Reads a recording, one record after the other.
#[derive(Debug)]
pub struct Reader<R> {
    from: R,
    begin: Begin,
    /// The record that was read last, as bytes.
    record: Vec<u8>,
    /// Of the next frame.
    offset: u64,
    inputs: u64,
    outputs: u64,
    /// The end has been read.
    ended: bool,
}

/// What a recording begins with: [`Record::Begin`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Begin {
    /// Who recorded.
    pub program: String,
    /// What the core was made with.
    pub limits: Limits,
    /// The same.
    pub seed: u32,
}

/// A record and where it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'r> {
    /// Of its frame, in bytes from the beginning.
    pub offset: u64,
    /// What it says.
    pub record: Record<'r>,
}

impl<R: Read> Reader<R> {
    /// Begins to read, up to the first step. Many small reads follow.
    ///
    /// # Errors
    /// It is no recording, or one of another version, or not whole up to there.
    pub fn new(mut from: R) -> Result<Reader<R>, RecordingError> {
        let mut preamble = [0; PREAMBLE];
        let len = fill(&mut from, &mut preamble)?;
        let (magic, version) = preamble.split_at(MAGIC.len());
        if len < PREAMBLE {
            let begins = MAGIC.starts_with(&magic[..len.min(MAGIC.len())]);
            let truncated = RecordingError::Truncated { offset: len as u64, within: true };
            return Err(if begins { truncated } else { RecordingError::Foreign });
        }
        let version = u16::from_le_bytes([version[0], version[1]]);
        match (magic == MAGIC, version) {
            (false, _) => return Err(RecordingError::Foreign),
            (true, VERSION) => {}
            (true, other) => return Err(RecordingError::Version(other)),
        }
        let offset = PREAMBLE as u64;
        let begin = Begin { program: String::new(), limits: Limits::NONE, seed: 0 };
        let mut reader =
            Reader { from, begin, record: Vec::new(), offset, inputs: 0, outputs: 0, ended: false };
        if let Some(Entry { record: Record::Begin { program, limits, seed }, .. }) = reader.next_record()? {
            reader.begin = Begin { program: program.to_owned(), limits, seed };
        }
        Ok(reader)
    }

    /// What it began with.
    pub fn begin(&self) -> &Begin {
        &self.begin
    }

    /// The next record behind [`Record::Begin`]; none behind [`Record::End`].
    ///
    /// # Errors
    /// The recording is not whole up to there. What was read before is good.
    pub fn next_record(&mut self) -> Result<Option<Entry<'_>>, RecordingError> {
        let offset = self.offset;
        let damaged = |what| RecordingError::Damaged { offset, what };
        let mut head = [0; FRAME];
        let truncated = |at: usize| RecordingError::Truncated { offset: offset + at as u64, within: at > 0 };
        match fill(&mut self.from, &mut head)? {
            0 if self.ended => return Ok(None),
            _ if self.ended => return Err(damaged("bytes behind the end")),
            FRAME => {}
            short => return Err(truncated(short)),
        }
        let [a, b, c, d, sum @ ..] = head;
        let len = u32::from_le_bytes([a, b, c, d]) as usize;
        if len > RECORD_MAX {
            return Err(damaged("the length of a record cannot be"));
        }
        self.record.clear();
        let read = (&mut self.from).take(len as u64).read_to_end(&mut self.record)?;
        if read < len {
            return Err(truncated(FRAME + read));
        }
        if crc32fast::hash(&self.record) != u32::from_le_bytes(sum) {
            return Err(damaged("the checksum of a record is wrong"));
        }
        let record = match postcard::take_from_bytes(&self.record) {
            Ok((record, [])) => record,
            _ => return Err(damaged("a record cannot be understood")),
        };
        let first = offset == PREAMBLE as u64;
        match record {
            Record::Begin { .. } if first => {}
            Record::Begin { .. } => return Err(damaged("a second beginning")),
            _ if first => return Err(damaged("a recording without a beginning")),
            Record::Input { .. } => self.inputs += 1,
            Record::Output(_) => self.outputs += 1,
            Record::End { inputs, outputs } if (inputs, outputs) != (self.inputs, self.outputs) => {
                return Err(damaged("records are missing before the end"));
            }
            Record::End { .. } => self.ended = true,
            _ => {}
        }
        self.offset += (FRAME + len) as u64;
        Ok(Some(Entry { offset, record }))
    }
}

/// Reads until `buf` is full or nothing is left; how much was read.
fn fill(from: &mut impl Read, buf: &mut [u8]) -> Result<usize, RecordingError> {
    let mut len = 0;
    while len < buf.len() {
        match from.read(&mut buf[len..]) {
            Ok(0) => break,
            Ok(read) => len += read,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(len)
}
