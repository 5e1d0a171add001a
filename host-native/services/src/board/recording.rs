//! Recording of a board's server, received over a connection of its own.

use std::fs::File;
use std::io::{self, BufWriter};
use std::net::{Shutdown, TcpStream};
use std::path::{Path, PathBuf};

use hydrant_record::{Record, WriteError, Writer, create_file};

use super::{Connection, ConnectionError};

/// Writes the records that a board sends to a file.
#[derive(Debug)]
pub(super) struct BoardRecording {
    link: Connection,
    path: PathBuf,
    writer: Writer<BufWriter<File>>,
    record: Vec<u8>,
    /// The board has sent the last record.
    complete: bool,
}

impl BoardRecording {
    /// Creates the file. The board has agreed to send its records over `link`.
    pub(super) fn new(link: Connection, path: &Path) -> Result<BoardRecording, WriteError> {
        let writer = create_file(path).map_err(|source| WriteError { path: path.to_owned(), source })?;
        Ok(BoardRecording { link, path: path.to_owned(), writer, record: Vec::new(), complete: false })
    }

    /// Returns the connection.
    pub(super) fn stream(&self) -> &TcpStream {
        self.link.stream()
    }

    /// Writes all records that have arrived. Returns false after the last one.
    pub(super) fn receive(&mut self) -> Result<bool, WriteError> {
        self.write_received().map_err(|source| WriteError { path: self.path.clone(), source })
    }

    fn write_received(&mut self) -> io::Result<bool> {
        match self.link.fill() {
            Ok(()) => {}
            Err(ConnectionError::Io(error)) => return Err(error),
            Err(other) => return Err(io::Error::other(other)),
        }
        while self.link.next_recorded(&mut self.record) {
            let record: Record<'_> = postcard::from_bytes(&self.record)
                .map_err(|_| io::Error::other("malformed record from the board"))?;
            if let Record::End { .. } = record {
                self.complete = true;
                self.writer.finish()?;
            } else {
                self.writer.write(&record)?;
            }
        }
        match (self.link.is_ended(), self.complete) {
            (_, true) => Ok(false),
            (true, false) => Err(io::Error::other("the board closed the connection before the last record")),
            (false, false) => Ok(true),
        }
    }

    /// Requests the last record from the board.
    pub(super) fn end(&self) -> io::Result<()> {
        self.link.stream().shutdown(Shutdown::Write)
    }
}
