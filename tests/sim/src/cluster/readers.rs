//! Clients of other runs, which read at the head what a rank has told them of.

use hydrant_core::{ConnId, Input, JobId};

use super::node::{Client, Item, Node, Owner, Reader};
use super::plan::MS;
use super::world::{Event, SOCKET, World};
use crate::rank::{self, KEYS};

impl World<'_> {
    /// A rank has left a meeting, and tells another run of it now and then.
    pub(super) fn tell_reader(&mut self, pid: u32) {
        if self.plan.liar.is_some() || self.readers_random.u32(..3) > 0 {
            return;
        }
        let process = &self.processes[pid as usize];
        let Some(checks) = self.checks.get(&process.ordinal) else { return };
        let known = checks.known_to(process.rank);
        let key = (self.readers_random.u32(..known.len() as u32), self.readers_random.u32(..KEYS));
        let (job, ordinal) = (process.job, process.ordinal);
        self.readers.push(Reader { job, ordinal, known, key, replies: 0 });
        let reader = self.readers.len() as u32 - 1;
        let later = SOCKET + self.readers_random.u64(..MS);
        self.later(later, Event::Item(0, Item::Reader(reader)));
    }

    /// A reader connects, unless the job is over or too many others are connected.
    pub(super) fn admit_reader(&mut self, number: u32) {
        let Reader { job, ordinal, .. } = self.readers[number as usize];
        let now = self.now;
        let node = &mut self.nodes[0];
        if node.jobs.get(&job).is_none_or(|local| local.ordinal != ordinal) {
            return;
        }
        let Some(conn) = node.open_query(now, job, Owner::Reader(number)) else { return };
        let body = "cmd=fullinit;pmirank=0;";
        let hello = format!("cmd=init pmi_version=2 pmi_subversion=0\n{:6}{body}", body.len());
        node.receive(now, conn, hello.as_bytes());
    }

    /// Handles a reply to a reader.
    pub(super) fn reader_reply(&mut self, conn: ConnId, number: u32, bytes: &[u8]) {
        let now = self.now;
        let reader = &mut self.readers[number as usize];
        reader.replies += 1;
        let reply = &*String::from_utf8_lossy(bytes);
        let (of, key) = reader.key;
        assert_eq!(rank::field(reply, "rc"), Some("0"), "a reader is refused: {reply}");
        match reader.replies {
            1 => {}
            2 => {
                let body = format!("cmd=kvs-get;key=k{of}.{key};");
                self.nodes[0].receive(now, conn, format!("{:6}{body}", body.len()).as_bytes());
            }
            _ => {
                if let Some(checks) = self.checks.get(&reader.ordinal) {
                    checks.found("a reader", &reader.known, (of, key), rank::round(reply));
                    self.read += 1;
                }
                self.nodes[0].close(now, conn);
            }
        }
    }
}

impl Node<'_> {
    /// Opens a query connection, if there is room for one.
    fn open_query(&mut self, now: u64, job: JobId, owner: Owner) -> Option<ConnId> {
        let conn = self.free_conn()?;
        self.clients.insert(conn, Client::new(owner, job));
        self.tell(now, Input::OpenedQuery { conn, job });
        Some(conn)
    }
}
