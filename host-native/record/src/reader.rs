//! Decoding of untrusted recordings.

use std::io::Read;

use hydrant_core::Limits;

use crate::{FRAME, MAGIC, PREAMBLE, RECORD_MAX, Record, RecordError, VERSION};

/// Reads a recording record by record. Every frame is validated.
#[derive(Debug)]
pub struct Reader<R> {
    from: R,
    begin: Begin,
    /// Bytes of the last record.
    record: Vec<u8>,
    /// Offset of the next frame.
    offset: u64,
    inputs: u64,
    outputs: u64,
    /// [`Record::End`] has been read.
    ended: bool,
}

/// Contents of [`Record::Begin`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Begin {
    /// Name and version of the recording program.
    pub program: String,
    /// Limits of the server.
    pub limits: Limits,
    /// Seed of the server.
    pub seed: u32,
}

/// Record and its offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'r> {
    /// Offset of the record's frame in bytes.
    pub offset: u64,
    /// The record.
    pub record: Record<'r>,
}

impl<R: Read> Reader<R> {
    /// Reads the beginning of a recording. Reads are small: `from` should be buffered.
    ///
    /// # Errors
    /// [`RecordError`] if `from` is not a recording of this version, or is damaged or truncated up to here.
    pub fn new(mut from: R) -> Result<Reader<R>, RecordError> {
        let mut preamble = [0; PREAMBLE];
        let len = fill(&mut from, &mut preamble)?;
        let (magic, version) = preamble.split_at(MAGIC.len());
        if len < PREAMBLE {
            let prefix = MAGIC.starts_with(&magic[..len.min(MAGIC.len())]);
            let truncated = RecordError::Truncated { offset: len as u64, inside_record: true };
            return Err(if prefix { truncated } else { RecordError::NotARecording });
        }
        let version = u16::from_le_bytes([version[0], version[1]]);
        match (magic == MAGIC, version) {
            (false, _) => return Err(RecordError::NotARecording),
            (true, VERSION) => {}
            (true, other) => return Err(RecordError::Version(other)),
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

    /// Returns the contents of the first record.
    pub fn begin(&self) -> &Begin {
        &self.begin
    }

    /// Returns the next record after [`Record::Begin`], or `None` after [`Record::End`].
    ///
    /// # Errors
    /// [`RecordError`] if the recording is damaged or truncated here. Earlier records are valid.
    pub fn next_record(&mut self) -> Result<Option<Entry<'_>>, RecordError> {
        let offset = self.offset;
        let damaged = |problem| RecordError::Damaged { offset, problem };
        let mut head = [0; FRAME];
        let truncated =
            |at: usize| RecordError::Truncated { offset: offset + at as u64, inside_record: at > 0 };
        match fill(&mut self.from, &mut head)? {
            0 if self.ended => return Ok(None),
            _ if self.ended => return Err(damaged("data after the end record")),
            FRAME => {}
            short => return Err(truncated(short)),
        }
        let [a, b, c, d, sum @ ..] = head;
        let len = u32::from_le_bytes([a, b, c, d]) as usize;
        if len > RECORD_MAX {
            return Err(damaged("record too long"));
        }
        self.record.clear();
        let read = (&mut self.from).take(len as u64).read_to_end(&mut self.record)?;
        if read < len {
            return Err(truncated(FRAME + read));
        }
        if crc32fast::hash(&self.record) != u32::from_le_bytes(sum) {
            return Err(damaged("wrong checksum"));
        }
        let record = match postcard::take_from_bytes(&self.record) {
            Ok((record, [])) => record,
            _ => return Err(damaged("malformed record")),
        };
        let first = offset == PREAMBLE as u64;
        match record {
            Record::Begin { .. } if first => {}
            Record::Begin { .. } => return Err(damaged("second begin record")),
            _ if first => return Err(damaged("no begin record")),
            Record::Input { .. } => self.inputs += 1,
            Record::Output(_) => self.outputs += 1,
            Record::End { inputs, outputs } if (inputs, outputs) != (self.inputs, self.outputs) => {
                return Err(damaged("records missing before the end record"));
            }
            Record::End { .. } => self.ended = true,
            _ => {}
        }
        self.offset += (FRAME + len) as u64;
        Ok(Some(Entry { offset, record }))
    }
}

/// Reads until `buf` is full or at the end. Returns the number of bytes.
fn fill(from: &mut impl Read, buf: &mut [u8]) -> Result<usize, RecordError> {
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
