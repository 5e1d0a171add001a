//! Requests of a server to its host that PMIx clients cause.

use super::command::{Command, decode};
use super::{Info, Infos, Integers, Queries, Reader, Writer};

/// Beginning of such a request. The byte after it says which one it is.
const BEGINNING: &[u8] = b"cmd=pmix-host;";
const FILE: u8 = 0;
const SYSLOG: u8 = 1;
const QUERY: u8 = 2;
const COMMAND: u8 = 3;
const HELP: u8 = 4;
const WAITS: u8 = 5;

/// Request to the host of a job with the attribute `pmix.query`. Where nothing else is said, the answer is the body of the
/// reply to the client, which begins with a STATUS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostCall<'a> {
    /// Look at the file of this path on the rank's host. The answer is a [`FileState`].
    File(&'a [u8]),
    /// Write a text to the log of the system.
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
    /// Answer queries. The STATUS is followed by an array of INFOs with the answers of the server and of the host.
    Query(HostQuery<'a>),
    /// Carry out a command that the server passes on as it is.
    Command {
        /// Encoding of the client's integers.
        integers: Integers,
        /// The command.
        command: Command<'a>,
    },
    /// Print a help text, unless it has been printed in this run.
    Help {
        /// Encoding of the client's integers.
        integers: Integers,
        /// The text.
        text: HelpText<'a>,
    },
    /// Take note that the rank waits for a debugger. No client gets the answer.
    Waits {
        /// Encoding of the rank's integers.
        integers: Integers,
    },
}

/// Help text of a client, which other clients may send too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HelpText<'a> {
    /// File of help texts (`PMIX_LOG_KEY`), at most 255 bytes.
    pub file: &'a [u8],
    /// Topic in the file (`PMIX_LOG_VAL`), at most 255 bytes. Texts of the same file and topic count as equal.
    pub topic: &'a [u8],
    /// The text.
    pub text: &'a [u8],
    /// Whether the text is for standard output, and not for standard error.
    pub to_stdout: bool,
}

impl<'a> HostCall<'a> {
    /// Writes a request for the state of a file to the front of `buf`. Returns its length, or `None` if it does not fit.
    pub fn write_file(path: &[u8], buf: &mut [u8]) -> Option<usize> {
        write(&[&[FILE], path], buf)
    }

    /// Writes a request for a line in the log of the system, with the fields of [`Syslog`](Self::Syslog).
    pub fn write_syslog(
        integers: Integers,
        global: bool,
        priority: u8,
        text: &[u8],
        buf: &mut [u8],
    ) -> Option<usize> {
        write(&[&[SYSLOG, integers as u8, u8::from(global), priority], text], buf)
    }

    /// Writes a request with the body of a client's message.
    pub fn write_command(integers: Integers, body: &[u8], buf: &mut [u8]) -> Option<usize> {
        write(&[&[COMMAND, integers as u8], body], buf)
    }

    /// Writes a request for a help text.
    pub fn write_help(integers: Integers, text: &HelpText<'_>, buf: &mut [u8]) -> Option<usize> {
        let HelpText { file, topic, text, to_stdout } = *text;
        let lens = (u8::try_from(file.len()).ok()?, u8::try_from(topic.len()).ok()?);
        write(&[&[HELP, integers as u8, u8::from(to_stdout), lens.0, lens.1], file, topic, text], buf)
    }

    /// Writes a request to take note of a rank that waits for a debugger.
    pub fn write_waits(integers: Integers, buf: &mut [u8]) -> Option<usize> {
        write(&[&[WAITS, integers as u8]], buf)
    }

    /// Returns whether the text of an upcall is such a request, and not one that a name service may carry out.
    pub fn is(request: &[u8]) -> bool {
        request.starts_with(BEGINNING)
    }

    /// Reads a request. Returns `None` for another one.
    pub fn read(request: &'a [u8]) -> Option<HostCall<'a>> {
        let (&kind, rest) = request.strip_prefix(BEGINNING)?.split_first()?;
        if kind == FILE {
            return Some(HostCall::File(rest));
        }
        let (&integers, rest) = rest.split_first()?;
        let integers = Integers::of_byte(integers)?;
        match (kind, rest) {
            (SYSLOG, &[global, priority, ref text @ ..]) => {
                Some(HostCall::Syslog { integers, global: global != 0, priority, text })
            }
            (WAITS, []) => Some(HostCall::Waits { integers }),
            (QUERY, body) => Some(HostCall::Query(HostQuery::read(integers, body)?)),
            (COMMAND, body) => {
                Some(HostCall::Command { integers, command: decode(integers, body).ok()?.ok()? })
            }
            (HELP, &[to_stdout, file, topic, ref texts @ ..]) => {
                let (file, texts) = texts.split_at_checked(file.into())?;
                let (topic, text) = texts.split_at_checked(topic.into())?;
                let text = HelpText { file, topic, text, to_stdout: to_stdout != 0 };
                Some(HostCall::Help { integers, text })
            }
            _ => None,
        }
    }
}

fn write(parts: &[&[u8]], buf: &mut [u8]) -> Option<usize> {
    let mut len = 0;
    for part in [BEGINNING].iter().chain(parts) {
        buf.get_mut(len..len + part.len())?.copy_from_slice(part);
        len += part.len();
    }
    Some(len)
}

/// Queries of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostQuery<'a> {
    /// Encoding of the client's integers.
    pub integers: Integers,
    /// What the server has answered itself.
    pub answered: Infos<'a>,
    /// All queries.
    pub queries: Queries<'a>,
}

impl<'a> HostQuery<'a> {
    /// Starts a request at the front of `buf`, with room for this number of answers. They follow, and then
    /// [`finish`](Self::finish).
    pub fn begin(integers: Integers, answers: u32, buf: &mut [u8]) -> Writer<'_> {
        let mut writer = Writer::new(integers, buf);
        writer.raw(BEGINNING);
        writer.byte(QUERY);
        writer.byte(integers as u8);
        writer.array(answers);
        writer
    }

    /// Ends a request with the queries of the client. Returns its length, or `None` if it does not fit.
    pub fn finish(writer: &mut Writer<'_>, queries: &Queries<'_>) -> Option<usize> {
        writer.array(queries.len());
        writer.raw(queries.as_bytes());
        writer.finish()
    }

    /// Writes a request with a monitor as its query and first qualifier. Returns its length, or `None` if it does not fit.
    pub fn write_one(
        integers: Integers,
        monitor: &Info<'_>,
        infos: &Infos<'_>,
        buf: &mut [u8],
    ) -> Option<usize> {
        let mut writer = HostQuery::begin(integers, 0, buf);
        writer.array(1);
        writer.count(1);
        writer.string(monitor.key);
        writer.size(1 + u64::from(infos.len()));
        writer.info(monitor.key, monitor.kind);
        writer.raw(monitor.value);
        writer.raw(infos.as_bytes());
        writer.finish()
    }

    fn read(integers: Integers, body: &'a [u8]) -> Option<HostQuery<'a>> {
        let mut reader = Reader::new(integers, body);
        Some(HostQuery { integers, answered: reader.infos()?, queries: reader.queries()? })
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
