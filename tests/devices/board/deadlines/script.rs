//! Sequences of inputs for a board, as its benchmark reads them, and a server that plays along.

use std::collections::BTreeMap;

use hydrant_core::server::{Consumed, Record};
use hydrant_core::wire::pmix::Integers;
use hydrant_core::{ConnId, Fault, Input, Limits, Output, Server, Time};
use hydrant_driver::MappedStorage;

use super::kinds;

/// An input of a script.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// Its kind; none for one that no board gets.
    pub(super) kind: Option<&'static str>,
    pub(super) sequence: String,
    /// Number of ranks of a directed sequence.
    pub(super) ranks: Option<u32>,
    /// Bytes of the replies to it.
    pub(super) said: usize,
}

/// Sequences, each of which begins with a new server.
#[derive(Debug)]
pub(super) struct Script {
    pub(super) limits: Limits,
    pub(super) bytes: Vec<u8>,
    pub(super) entries: Vec<Entry>,
    sequence: (String, Option<u32>),
    /// Encodings of connections that speak PMIx.
    pmix: BTreeMap<ConnId, Integers>,
}

impl Script {
    pub(super) fn new(limits: Limits) -> Script {
        let (bytes, entries) = (Vec::new(), Vec::new());
        Script { limits, bytes, entries, sequence: (String::new(), None), pmix: BTreeMap::new() }
    }

    fn write(&mut self, record: &Record<'_>) {
        let record = postcard::to_stdvec(record).expect("there is memory");
        self.bytes.extend((record.len() as u32).to_le_bytes());
        self.bytes.extend(record);
    }

    /// Begins a sequence.
    pub(super) fn begin(&mut self, sequence: &str, ranks: Option<u32>) {
        self.sequence = (sequence.to_owned(), ranks);
        self.pmix.clear();
        self.write(&Record::Begin { program: sequence, limits: self.limits, seed: 0 });
    }

    /// Appends an input that a server has consumed so far and answered with `said` bytes.
    pub(super) fn input(&mut self, now: Time, input: &Input<'_>, consumed: usize, said: usize) {
        let conn = match *input {
            Input::Opened { conn, .. } => {
                self.pmix.remove(&conn);
                None
            }
            Input::Bytes { conn, bytes, .. } => {
                self.pmix.extend(kinds::integers(bytes).map(|integers| (conn, integers)));
                Some(conn)
            }
            _ => None,
        };
        let integers = conn.and_then(|conn| self.pmix.get(&conn).copied());
        let kind = kinds::kind(input, consumed, integers);
        let (sequence, ranks) = self.sequence.clone();
        self.entries.push(Entry { kind, sequence, ranks, said });
        self.write(&Record::Input { now, input: *input });
    }
}

/// A server with the limits of the board, and what it said.
pub(super) struct Board<'s> {
    server: Server<'s>,
    script: &'s mut Script,
    pub(super) now: u64,
    /// All replies to each connection.
    pub(super) replies: BTreeMap<u32, Vec<Vec<u8>>>,
    buffer: Vec<u8>,
}

impl<'s> Board<'s> {
    /// Begins a sequence of a job of so many ranks.
    pub(super) fn begin(
        script: &'s mut Script,
        memory: &'s mut MappedStorage,
        sequence: &str,
        ranks: u32,
    ) -> Board<'s> {
        script.begin(sequence, Some(ranks));
        let server = Server::new(script.limits, memory.lend(), 7).expect("the memory is as the limits say");
        let buffer = vec![0; script.limits.output_max()];
        Board { server, script, now: 0, replies: BTreeMap::new(), buffer }
    }

    /// Gives the server an input and takes what it says. Closes the connections that it closes.
    pub(super) fn tell(&mut self, input: Input<'_>) -> Result<Consumed, Fault> {
        let now = Time(self.now);
        let result = self.server.handle(now, input);
        let (mut said, mut closed) = (0, Vec::new());
        while let Some(output) = self.server.poll(&mut self.buffer).expect("the buffer is long enough") {
            match output {
                Output::Bytes { conn, bytes } => {
                    said += bytes.len();
                    self.replies.entry(conn.0).or_default().push(bytes.to_vec());
                }
                Output::Close { conn, .. } => closed.push(conn),
                _ => {}
            }
        }
        let consumed = result.map_or(0, |consumed| consumed.bytes as usize);
        self.script.input(now, &input, consumed, said);
        for conn in closed {
            self.tell(Input::Closed { conn }).expect("it was open");
        }
        result
    }

    /// Passes bytes of a client, and what is left of them when there are replies. Returns the last reply.
    pub(super) fn say(&mut self, conn: u32, bytes: &[u8]) -> Vec<u8> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let input = Input::Bytes { conn: ConnId(conn), bytes: rest, full: false };
            match self.tell(input) {
                Ok(Consumed { bytes: taken @ 1.., .. }) => rest = &rest[taken as usize..],
                _ => break,
            }
        }
        self.replies.get(&conn).and_then(|replies| replies.last().cloned()).unwrap_or_default()
    }

    /// Says a line of PMI-1.
    pub(super) fn line(&mut self, conn: u32, line: &str) -> Vec<u8> {
        self.say(conn, format!("{line}\n").as_bytes())
    }

    /// Says a message of PMI-2.
    pub(super) fn counted(&mut self, conn: u32, body: &str) -> Vec<u8> {
        self.say(conn, &hydrant_tests::host::counted(body))
    }

    /// Lets the server's next deadline pass.
    pub(super) fn wait(&mut self) {
        let wake = self.server.poll_at().expect("it waits for something");
        self.now = wake.0;
        self.tell(Input::Timeout).expect("time may pass");
    }

    /// Whether the server waits for a time.
    pub(super) fn waits(&self) -> bool {
        self.server.poll_at().is_some()
    }
}
