//! Recording of a board's server, received over a connection of its own.

use std::fs::File;
use std::io::{self, BufWriter};
use std::net::{Shutdown, TcpStream};
use std::path::{Path, PathBuf};

use hydrant_record::{Record, WriteError, Writer, create_file};

use super::{Connection, ConnectionError};

/// Size in bytes at which a recording ends.
const SIZE_MAX: u64 = 1 << 30;

/// Writes the records that a board sends to a file.
#[derive(Debug)]
pub(super) struct BoardRecording {
    link: Connection,
    path: PathBuf,
    writer: Writer<BufWriter<File>>,
    record: Vec<u8>,
    /// Bytes that the file may still hold.
    room: u64,
    /// The board has sent the last record.
    complete: bool,
}

impl BoardRecording {
    /// Creates the file. The board has agreed to send its records over `link`.
    pub(super) fn new(link: Connection, path: &Path) -> Result<BoardRecording, WriteError> {
        let writer = create_file(path).map_err(|source| WriteError { path: path.to_owned(), source })?;
        Ok(BoardRecording {
            link,
            path: path.to_owned(),
            writer,
            record: Vec::new(),
            room: SIZE_MAX,
            complete: false,
        })
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
            self.room = self.room.checked_sub(self.record.len() as u64).ok_or_else(|| {
                io::Error::new(
                    io::ErrorKind::FileTooLarge,
                    format!("a recording has at most {} MiB", SIZE_MAX >> 20),
                )
            })?;
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

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;

    use hydrant_core::{Input, Time};
    use postcard::to_stdvec;

    use super::*;

    #[test]
    fn a_recording_ends_at_its_largest_size() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut board = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let link = Connection::of_host(listener.accept().unwrap().0, None).unwrap();
        let path = std::env::temp_dir().join(format!("hydrant-size-{}.rec", std::process::id()));
        let mut recording = BoardRecording::new(link, &path).unwrap();
        recording.room = 1000;
        let record = to_stdvec(&Record::Input { now: Time(1), input: Input::Timeout }).unwrap();
        let mut bytes = (record.len() as u16).to_le_bytes().to_vec();
        bytes.extend(&record);
        board.write_all(&bytes.repeat(1000 / record.len())).unwrap();
        board.write_all(&bytes).unwrap();
        let why = loop {
            match recording.receive() {
                Ok(more) => assert!(more),
                Err(why) => break why.to_string(),
            }
        };
        assert!(why.contains("a recording has at most 1024 MiB"), "{why}");
        let size = std::fs::metadata(&path).unwrap().len();
        std::fs::remove_file(&path).unwrap();
        assert!(size < 100_000, "{size} bytes");
    }
}
