//! Recordings of boards' servers: of all that a board serves, over a connection of its own, and of a node, among its reports.

use std::io::{self, BufWriter};
use std::net::{Shutdown, TcpStream};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use crate::manage::{Connection, ConnectionError, INBOX_MAX};
use hydrant_core::manage::BadRecord;
use hydrant_reactor::file::Output;
use hydrant_record::{Record, RecordingFile, WriteError, Writer, create_file};

/// Size in bytes at which a recording of a board ends.
pub const RECORDING_MAX: u64 = 1 << 30;

/// Writes the records that a board sends to a file.
#[derive(Debug)]
pub(crate) struct BoardRecording {
    link: Connection,
    path: PathBuf,
    writer: Writer<BufWriter<Output>>,
    record: Vec<u8>,
    /// Bytes that the file may still hold.
    room: u64,
    /// The board has sent the last record.
    complete: bool,
}

impl BoardRecording {
    /// Creates the file. The board has agreed to send its records over `link`.
    pub(crate) fn new(link: Connection, path: &Path) -> Result<BoardRecording, WriteError> {
        let writer = create_file(path).map_err(|source| WriteError { path: path.to_owned(), source })?;
        Ok(BoardRecording {
            link,
            path: path.to_owned(),
            writer,
            record: Vec::new(),
            room: RECORDING_MAX,
            complete: false,
        })
    }

    /// Returns the connection.
    pub(crate) fn stream(&self) -> &TcpStream {
        self.link.stream()
    }

    /// Writes all records that have arrived. Returns false after the last one.
    pub(crate) fn receive(&mut self) -> Result<bool, WriteError> {
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
                    format!("a recording has at most {} MiB", RECORDING_MAX >> 20),
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
    pub(crate) fn end(&self) -> io::Result<()> {
        self.link.stream().shutdown(Shutdown::Write)
    }
}

/// Writes the records of a node that its board sends in pieces to a file.
#[derive(Debug)]
pub(crate) struct NodeRecording {
    file: Rc<RecordingFile>,
    /// Beginning of the next record.
    rest: Vec<u8>,
}

impl NodeRecording {
    pub(crate) fn new(file: Rc<RecordingFile>) -> NodeRecording {
        NodeRecording { file, rest: Vec::new() }
    }

    /// Writes the records that end in the next piece.
    pub(crate) fn take(&mut self, piece: &[u8]) -> Result<(), BadRecord> {
        self.rest.extend_from_slice(piece);
        let mut rest = &self.rest[..];
        loop {
            match postcard::take_from_bytes(rest) {
                // The host writes these.
                Ok((Record::Begin { .. } | Record::End { .. }, _)) => return Err(BadRecord::Malformed),
                Ok((record, behind)) => {
                    self.file.write(&record);
                    rest = behind;
                }
                Err(postcard::Error::DeserializeUnexpectedEnd) if rest.len() < INBOX_MAX => break,
                Err(_) => return Err(BadRecord::Malformed),
            }
        }
        let taken = self.rest.len() - rest.len();
        self.rest.drain(..taken);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;

    use hydrant_core::server::Consumed;
    use hydrant_core::{ConnId, Input, Limits, Time};
    use hydrant_record::Reader;
    use postcard::to_stdvec;

    use std::fs::File;

    use super::*;

    #[test]
    fn records_of_a_node_come_in_pieces_of_any_length() {
        let input = Record::Input { now: Time(1), input: Input::Timeout };
        let took = Record::Took { consumed: Consumed::default(), wake: Some(Time(5)) };
        let bytes = [to_stdvec(&input).unwrap(), to_stdvec(&took).unwrap()].concat().repeat(3);
        for len in 1..=bytes.len() {
            let path = std::env::temp_dir().join(format!("hydrant-node-{}.rec", std::process::id()));
            let file = RecordingFile::create(&path, "test", &Limits::NONE, 7).unwrap();
            let mut recording = NodeRecording::new(file);
            assert_eq!(bytes.chunks(len).try_for_each(|piece| recording.take(piece)), Ok(()));
            drop(recording);
            let mut reader = Reader::new(File::open(&path).unwrap()).unwrap();
            let mut records = Vec::new();
            while let Some(entry) = reader.next_record().unwrap() {
                records.push(format!("{:?}", entry.record));
            }
            std::fs::remove_file(&path).unwrap();
            let expected = [input, took].repeat(3);
            let expected: Vec<_> = expected.iter().map(|record| format!("{record:?}")).collect();
            assert_eq!(records[..6], expected, "pieces of {len} bytes");
        }
    }

    #[test]
    fn what_is_no_record_of_a_node_is_refused() {
        let end = to_stdvec(&Record::End { inputs: 0, outputs: 0 }).unwrap();
        let input = Input::Bytes { conn: ConnId(0), bytes: &vec![b'x'; INBOX_MAX], full: false };
        let mut endless = to_stdvec(&Record::Input { now: Time(1), input }).unwrap();
        endless.pop();
        for bytes in [&end[..], &[0xff; 5], &endless] {
            let path = std::env::temp_dir().join(format!("hydrant-no-node-{}.rec", std::process::id()));
            let file = RecordingFile::create(&path, "test", &Limits::NONE, 7).unwrap();
            assert_eq!(NodeRecording::new(file).take(bytes), Err(BadRecord::Malformed));
            std::fs::remove_file(&path).unwrap();
        }
    }

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
