//! Requests of a server to its host that are neither queries nor messages of PMI.

use super::Integers;

/// Beginning of such a request.
const COMMAND: &[u8] = b"cmd=pmix-host;";
/// Byte after it: which request it is.
const FILE: u8 = 0;
const SYSLOG: u8 = 1;

/// Request to the host of a job with the attribute `pmix.query`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostCall<'a> {
    /// Look at the file of this path on the rank's host. The answer is a [`FileState`].
    File(&'a [u8]),
    /// Write a text to the log of the system. The answer is the body of the reply to the client: a STATUS.
    Syslog {
        /// Encoding of the client's integers.
        integers: Integers,
        /// Whether the log is that of the head's host, and not of the rank's.
        global: bool,
        /// Priority, from 0 (emergency) to 7 (debug).
        priority: u8,
        /// The text.
        text: &'a [u8],
    },
}

impl<'a> HostCall<'a> {
    /// Writes the request to the front of `buf`. Returns its length, or `None` if it does not fit.
    pub fn write(&self, buf: &mut [u8]) -> Option<usize> {
        let (kind, options, text) = match *self {
            HostCall::File(path) => (FILE, &[][..], path),
            HostCall::Syslog { integers, global, priority, text } => {
                (SYSLOG, &[integers as u8, u8::from(global), priority][..], text)
            }
        };
        let mut len = 0;
        for part in [COMMAND, &[kind], options, text] {
            buf.get_mut(len..len + part.len())?.copy_from_slice(part);
            len += part.len();
        }
        Some(len)
    }

    /// Reads a request. Returns `None` for another one.
    pub fn read(request: &'a [u8]) -> Option<HostCall<'a>> {
        match request.strip_prefix(COMMAND)?.split_first()? {
            (&FILE, path) => Some(HostCall::File(path)),
            (&SYSLOG, &[integers, global, priority, ref text @ ..]) => {
                let integers = Integers::of_byte(integers)?;
                Some(HostCall::Syslog { integers, global: global != 0, priority, text })
            }
            _ => None,
        }
    }
}

/// What changes in a file while its writer lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileState {
    /// Length in bytes.
    pub size: u64,
    /// Time of the last access, in the host's units.
    pub accessed: u64,
    /// Time of the last modification.
    pub modified: u64,
}

impl FileState {
    /// Returns the answer to [`HostCall::File`].
    pub fn to_bytes(self) -> [u8; 24] {
        let mut bytes = [0; 24];
        for (room, number) in bytes.chunks_exact_mut(8).zip([self.size, self.accessed, self.modified]) {
            room.copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    /// Reads such an answer.
    pub fn read(bytes: &[u8]) -> Option<FileState> {
        let mut rest = bytes;
        let mut next = || {
            let (number, after) = rest.split_first_chunk::<8>()?;
            rest = after;
            Some(u64::from_le_bytes(*number))
        };
        let (size, accessed, modified) = (next()?, next()?, next()?);
        rest.is_empty().then_some(FileState { size, accessed, modified })
    }
}
