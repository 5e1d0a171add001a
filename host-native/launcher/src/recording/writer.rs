//! Records into bytes.

use std::io::{self, Write};

use super::{FRAME, MAGIC, RECORD_MAX, Record, VERSION};

/// Writes a recording. Each record is one `write_all`, so buffering is the business of whoever lends the place.
#[derive(Debug)]
pub struct Writer<W> {
    to: W,
    frame: Vec<u8>,
    inputs: u64,
    outputs: u64,
}

impl<W: Write> Writer<W> {
    /// Begins a recording.
    ///
    /// # Errors
    /// What the place says.
    pub fn new(mut to: W) -> io::Result<Writer<W>> {
        to.write_all(&MAGIC)?;
        to.write_all(&VERSION.to_le_bytes())?;
        Ok(Writer { to, frame: Vec::new(), inputs: 0, outputs: 0 })
    }

    /// Writes a record; [`Record::Begin`] comes first.
    ///
    /// # Errors
    /// What the place says, or that the record is longer than [`RECORD_MAX`].
    pub fn write(&mut self, record: &Record<'_>) -> io::Result<()> {
        self.inputs += u64::from(matches!(record, Record::Input { .. }));
        self.outputs += u64::from(matches!(record, Record::Output(_)));
        let mut frame = std::mem::take(&mut self.frame);
        frame.clear();
        frame.resize(FRAME, 0);
        self.frame = postcard::to_extend(record, frame).map_err(io::Error::other)?;
        let (head, body) = self.frame.split_at_mut(FRAME);
        let len = u32::try_from(body.len()).ok().filter(|&len| len as usize <= RECORD_MAX);
        let len = len.ok_or_else(|| io::Error::other("a record of more than 16 MiB"))?;
        head[..4].copy_from_slice(&len.to_le_bytes());
        head[4..].copy_from_slice(&crc32fast::hash(body).to_le_bytes());
        self.to.write_all(&self.frame)
    }

    /// Has the place write what it holds back.
    ///
    /// # Errors
    /// What the place says.
    pub fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }

    /// Says that nothing is missing, and has the place write what it holds back.
    ///
    /// # Errors
    /// What the place says.
    pub fn finish(&mut self) -> io::Result<()> {
        self.write(&Record::End { inputs: self.inputs, outputs: self.outputs })?;
        self.flush()
    }

    /// Gives the place back.
    pub(super) fn into_inner(self) -> W {
        self.to
    }
}
