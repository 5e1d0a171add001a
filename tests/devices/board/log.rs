//! The board's log: defmt's frames from the serial line, decoded with what the firmware's file says of them.

use std::fs;
use std::path::{Path, PathBuf};

use defmt_decoder::{DecodeError, Table};

/// A log that is being written.
pub(crate) struct Log {
    path: PathBuf,
    table: Table,
    lines: Vec<String>,
    /// How many bytes have been decoded.
    decoded: usize,
    /// How many lines have been looked at.
    seen: usize,
}

impl Log {
    /// The log of that firmware, in that file.
    pub(crate) fn new(elf: &Path, path: PathBuf) -> Log {
        let bytes = fs::read(elf).unwrap_or_else(|e| panic!("{}: {e}", elf.display()));
        let table = Table::parse(&bytes).expect("the firmware has a log's table");
        Log { path, table: table.expect("the firmware logs"), lines: Vec::new(), decoded: 0, seen: 0 }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The next line that holds `text`. Everything before it counts as seen.
    pub(crate) fn find(&mut self, text: &str) -> Option<String> {
        self.read();
        let at = self.lines[self.seen..].iter().position(|line| line.contains(text))?;
        self.seen += at + 1;
        Some(self.lines[self.seen - 1].clone())
    }

    /// All lines.
    pub(crate) fn text(&self) -> String {
        self.lines.join("\n")
    }

    fn read(&mut self) {
        let bytes = fs::read(&self.path).unwrap_or_else(|e| panic!("{}: {e}", self.path.display()));
        // Frames end with a zero; the last one may still be on its way.
        let Some(end) = bytes.iter().rposition(|&byte| byte == 0) else { return };
        if end < self.decoded {
            return;
        }
        let mut decoder = self.table.new_stream_decoder();
        decoder.received(&bytes[self.decoded..=end]);
        self.decoded = end + 1;
        loop {
            match decoder.decode() {
                Ok(frame) => self.lines.push(frame.display(false).to_string()),
                Err(DecodeError::UnexpectedEof) => return,
                Err(DecodeError::Malformed) => {
                    self.lines.push("ERROR a frame that cannot be read".to_owned())
                }
            }
        }
    }
}
