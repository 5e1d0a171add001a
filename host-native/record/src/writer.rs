//! Encoding of recordings.

use std::io::{self, Write};

use crate::{FRAME, MAGIC, PREAMBLE, RECORD_MAX, Record, VERSION};

/// Writes a recording. Each record is one `write_all`: `to` should be buffered.
#[derive(Debug)]
pub struct Writer<W> {
    to: W,
    frame: Vec<u8>,
    inputs: u64,
    outputs: u64,
    /// Length of the recording in bytes.
    len: u64,
}

impl<W: Write> Writer<W> {
    /// Writes the file header.
    ///
    /// # Errors
    /// An I/O error.
    pub fn new(mut to: W) -> io::Result<Writer<W>> {
        to.write_all(&MAGIC)?;
        to.write_all(&VERSION.to_le_bytes())?;
        Ok(Writer { to, frame: Vec::new(), inputs: 0, outputs: 0, len: PREAMBLE as u64 })
    }

    /// Writes a record. The first one must be [`Record::Begin`].
    ///
    /// # Errors
    /// An I/O error, also if the record is longer than [`RECORD_MAX`].
    pub fn write(&mut self, record: &Record<'_>) -> io::Result<()> {
        self.inputs += u64::from(matches!(record, Record::Input { .. }));
        self.outputs += u64::from(matches!(record, Record::Output(_)));
        let mut frame = std::mem::take(&mut self.frame);
        frame.clear();
        frame.resize(FRAME, 0);
        self.frame = postcard::to_extend(record, frame).map_err(io::Error::other)?;
        let (head, body) = self.frame.split_at_mut(FRAME);
        let len = u32::try_from(body.len()).ok().filter(|&len| len as usize <= RECORD_MAX);
        let len = len.ok_or_else(|| io::Error::other("record longer than 16 MiB"))?;
        head[..4].copy_from_slice(&len.to_le_bytes());
        head[4..].copy_from_slice(&crc32fast::hash(body).to_le_bytes());
        self.len += self.frame.len() as u64;
        self.to.write_all(&self.frame)
    }

    /// Returns the length of the recording so far in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Flushes the underlying writer.
    ///
    /// # Errors
    /// An I/O error.
    pub fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }

    /// Writes [`Record::End`] and flushes the underlying writer.
    ///
    /// # Errors
    /// An I/O error.
    pub fn finish(&mut self) -> io::Result<()> {
        self.write(&Record::End { inputs: self.inputs, outputs: self.outputs })?;
        self.flush()
    }

    /// Returns the underlying writer.
    pub fn into_inner(self) -> W {
        self.to
    }
}
