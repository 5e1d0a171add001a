//! The smallest host of the core: connections without sockets.

use std::collections::{BTreeMap, BTreeSet};

use hydrant_core::limits::{Limits, MESSAGE_MAX};
use hydrant_core::server::{Consumed, Inbox, Input, JobSpec, Output};
use hydrant_core::wire::decode_spawn;
use hydrant_core::{ConnId, Fault, JobId, Rank, Server, Time, UpcallId};
use hydrant_driver::MappedStorage;

/// The job that [`Host::job`] opens.
pub const JOB: JobId = JobId(0);

/// A spawn that the server asks its host for.
#[derive(Debug)]
pub struct Spawned {
    /// Which one.
    pub spawn: UpcallId,
    /// How many ranks of each program.
    pub ranks: Vec<u32>,
}

/// A server, its clients' bytes that it has not consumed, and what it said.
#[derive(Debug)]
pub struct Host<'s> {
    /// The server.
    pub server: Server<'s>,
    /// Replies to each connection that the test has not taken yet.
    pub replies: BTreeMap<ConnId, Vec<Vec<u8>>>,
    /// Everything else that it said.
    pub events: Vec<String>,
    /// Spawns that it asked for and the test has not answered.
    pub spawns: Vec<Spawned>,
    /// The present time.
    pub now: Time,
    inboxes: BTreeMap<ConnId, Inbox<Vec<u8>>>,
    buffer: Box<[u8]>,
}

impl<'s> Host<'s> {
    /// A server in that memory.
    ///
    /// # Errors
    /// The server's own.
    pub fn new(limits: Limits, memory: &'s mut MappedStorage) -> Result<Host<'s>, Fault> {
        Ok(Host {
            server: Server::new(limits, memory.lend(), 7)?,
            replies: BTreeMap::new(),
            events: Vec::new(),
            spawns: Vec::new(),
            now: Time(0),
            inboxes: BTreeMap::new(),
            buffer: vec![0; limits.output_max()].into(),
        })
    }

    /// Opens a job of one node, with the attribute that tells so.
    ///
    /// # Errors
    /// The server's own.
    pub fn job(&mut self, name: &str, size: u32) -> Result<(), Fault> {
        let mapping = format!("(vector,(0,1,{size}))");
        let spec = JobSpec { universe_size: Some(size), ..JobSpec::new(JOB, name, size) };
        self.tell(Input::RegisterJob(spec))?;
        self.tell(Input::Attr { job: JOB, key: b"PMI_process_mapping", value: mapping.as_bytes() })?;
        Ok(())
    }

    /// Opens a connection, whose number is the rank's where that is known.
    ///
    /// # Errors
    /// The server's own.
    pub fn open(&mut self, conn: u32, rank: Option<u32>) -> Result<(), Fault> {
        let conn = ConnId(conn);
        self.inboxes.remove(&conn);
        self.tell(Input::Opened { conn, job: JOB, rank: rank.map(Rank) }).map(drop)
    }

    /// Tells the server something, and takes down what it has to say.
    ///
    /// # Errors
    /// The server's own.
    pub fn tell(&mut self, input: Input<'_>) -> Result<Consumed, Fault> {
        let consumed = self.server.handle(self.now, input)?;
        self.collect()?;
        Ok(consumed)
    }

    /// Takes down what the server has to say. The connections that got a reply.
    fn collect(&mut self) -> Result<BTreeSet<ConnId>, Fault> {
        let mut replied = BTreeSet::new();
        while let Some(output) = self.server.poll(&mut self.buffer)? {
            match output {
                Output::Bytes { conn, bytes } => {
                    self.replies.entry(conn).or_default().push(bytes.to_vec());
                    replied.insert(conn);
                }
                Output::Joined { .. } => {}
                Output::Spawn { spawn, protocol, request, .. } => {
                    let request = decode_spawn(protocol, request).expect("the server has read it before");
                    let ranks = request.programs().map(|program| program.maxprocs()).collect();
                    self.spawns.push(Spawned { spawn, ranks });
                }
                other => self.events.push(format!("{other:?}")),
            }
        }
        Ok(replied)
    }

    /// A client's bytes arrive.
    ///
    /// # Errors
    /// The server's own.
    pub fn arrive(&mut self, conn: u32, bytes: &[u8]) -> Result<(), Fault> {
        let conn = ConnId(conn);
        let new = || Inbox::new(vec![0; 2 * MESSAGE_MAX as usize]);
        let mut inbox = self.inboxes.remove(&conn).unwrap_or_else(new);
        inbox.space()[..bytes.len()].copy_from_slice(bytes);
        let mut result = inbox.receive(conn, bytes.len(), |input| self.server.handle(self.now, input));
        // Replies are taken at once, so a message that waits for that can go on.
        while result.is_ok() && self.collect()?.contains(&conn) {
            result = inbox.resume(conn, |input| self.server.handle(self.now, input));
        }
        self.inboxes.insert(conn, inbox);
        result
    }

    /// The replies to a connection since the last time.
    pub fn take(&mut self, conn: u32) -> Vec<Vec<u8>> {
        self.replies.remove(&ConnId(conn)).unwrap_or_default()
    }

    /// How many bytes of a connection the server has not consumed.
    pub fn unconsumed(&self, conn: u32) -> usize {
        self.inboxes.get(&ConnId(conn)).map_or(0, |inbox| inbox.held().len())
    }

    /// Says one message, and gives the one reply that it must get at once.
    pub fn ask(&mut self, conn: u32, bytes: &[u8]) -> Vec<u8> {
        self.arrive(conn, bytes).expect("the connection is open");
        let mut replies = self.take(conn);
        let shown = bytes.escape_ascii();
        assert_eq!(replies.len(), 1, "one reply to {shown}, not {replies:?} ({:?})", self.events);
        replies.remove(0)
    }

    /// The whole state as bytes.
    pub fn snapshot(&self, room: usize) -> Vec<u8> {
        let mut buf = vec![0; room];
        self.server.snapshot(&mut buf).expect("the test made room").to_vec()
    }
}

/// A PMI-2 message with its count.
pub fn counted(body: &str) -> Vec<u8> {
    format!("{:<6}{body}", body.len()).into_bytes()
}
