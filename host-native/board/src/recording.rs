//! Recordings of the servers of nodes, which their boards send among the reports.

use std::rc::Rc;

use crate::manage::INBOX_MAX;
use hydrant_core::manage::BadRecord;
use hydrant_record::{Record, RecordingFile};

/// Size in bytes at which a recording of a board ends.
pub const RECORDING_MAX: u64 = 1 << 30;

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
}
