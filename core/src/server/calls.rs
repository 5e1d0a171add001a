//! The calls of every host: creation, inputs, and when an input is due. `poll.rs` has the outputs.

use super::Server;
use super::io::{Consumed, Input};
use crate::fault::{Fault, Slab};
use crate::limits::Limits;
use crate::peer::links::Links;
use crate::storage::{Bulk, Layout, Storage, short};
use crate::store::{Log, Ready, Slots, log};
use crate::tables::connect::Connections;
use crate::tables::fence::Groups;
use crate::tables::kvs::Kvs;
use crate::tables::messages::Messages;
use crate::tables::modex::Modex;
use crate::tables::names::Names;
use crate::tables::psets::Psets;
use crate::tables::upcalls::Upcalls;
use crate::time::Time;

impl<'s> Server<'s> {
    /// Creates a server without jobs. `seed` randomizes the hash table of keys. Every value is valid.
    ///
    /// # Errors
    /// [`Fault::InsufficientStorage`] when a slab is shorter than [`Layout::of`] requires for `limits`.
    pub fn new(limits: Limits, storage: Storage<'s>, seed: u32) -> Result<Server<'s>, Fault> {
        if let Some(index) = storage.bulk.index.get(..Layout::of(&limits).index) {
            log::wipe(index);
        }
        Server::new_zeroed(limits, storage, seed)
    }

    /// Creates a server as [`Server::new`] does, in storage whose index holds zeros. The index is not read or written,
    /// so that lazily mapped memory is not committed.
    ///
    /// # Errors
    /// As [`Server::new`].
    pub fn new_zeroed(limits: Limits, storage: Storage<'s>, seed: u32) -> Result<Server<'s>, Fault> {
        let layout = Layout::of(&limits);
        let Storage { jobs, ranks, conns, groups, names, upcalls, psets, links, bits, bulk, .. } =
            storage.cut(&layout)?;
        let Bulk { log, index, requests } = bulk;
        // `cut` has given each table the length that its part requires.
        let short = |slab, len| short(slab, len, len);
        let short_index = short(Slab::Index, layout.index);
        let short_requests = short(Slab::Requests, layout.requests);
        let short_bits = short(Slab::Bits, layout.bits);
        let of_upcalls = limits.spawns as usize * limits.spawn_bytes as usize;
        let (requests, messages) = requests.split_at_mut_checked(of_upcalls).ok_or(short_requests)?;
        let (ready, bits) = bits.split_at_mut(Ready::words(limits.conns) as usize);
        let (group_sets, bits) = bits.split_at_mut(Groups::words(limits.groups, limits.ranks) as usize);
        let (pset_sets, bits) = bits.split_at_mut(Psets::words(limits.psets, limits.ranks) as usize);
        let (asked, rows) = bits.split_at_mut(Modex::words(limits.links, limits.ranks) as usize);
        Ok(Server {
            limits,
            output_max: u32::try_from(limits.output_max()).unwrap_or(u32::MAX),
            jobs: Slots::new(jobs),
            ranks,
            conns,
            conns_end: 0,
            ranks_end: 0,
            kvs: Kvs::new(Log::new(log, index, limits.keys, seed).ok_or(short_index)?, &limits),
            groups: Groups::new(groups, group_sets, limits.ranks).ok_or(short_bits)?,
            names: {
                let names = Names::new(names);
                #[cfg(all(feature = "pmix", feature = "cluster"))]
                let names = names.with_remote(super::pmix::publisher_in);
                names
            },
            upcalls: Upcalls::new(upcalls, requests, limits.spawn_bytes).ok_or(short_requests)?,
            messages: Messages::new(messages, &limits).ok_or(short_requests)?,
            psets: Psets::new(psets, pset_sets, limits.ranks).ok_or(short_bits)?,
            connections: Connections::new(rows, limits.jobs).ok_or(short_bits)?,
            links: Links::new(links),
            modex: Modex::new(asked, limits.links, limits.ranks).ok_or(short_bits)?,
            exits: 0,
            ready: Ready::new(ready, limits.conns).ok_or(short_bits)?,
            events_pending: false,
            wake: None,
            contexts: 0,
            notices: 0,
            gets: 0,
            hit: 0,
            unserved: 0,
        })
    }

    /// Applies one input.
    ///
    /// # Errors
    /// [`Fault`] if the host violates the contract or a limit is reached. The server is then unchanged. Errors of
    /// clients are not faults: the client gets an error reply, or [`Output::Close`](super::Output::Close) follows.
    pub fn handle(&mut self, now: Time, input: Input<'_>) -> Result<Consumed, Fault> {
        if let Input::Bytes { conn, bytes, full } = input {
            return self.bytes(now, conn, bytes, full);
        }
        self.handle_event(now, input)
    }

    /// Applies every input but the bytes of clients.
    #[cold]
    fn handle_event(&mut self, now: Time, input: Input<'_>) -> Result<Consumed, Fault> {
        match input {
            // `handle` has applied it.
            Input::Bytes { .. } => {}
            Input::Node { node, nodes, radix } => self.join_nodes(node, nodes, radix)?,
            Input::RegisterJob(spec) => self.register_job(&spec)?,
            Input::MapRanks { job, first, count, node } => self.map_ranks(job, first, count, node)?,
            Input::Preput { job, key, value } => self.preput(job, key, value)?,
            Input::Define { job, name, members, other } => self.define(job, name, members, other)?,
            Input::Connected { job, other, connected } => self.connected(job, other, connected)?,
            Input::StalledFence { job } => self.report_missing(job)?,
            Input::Peer { node, bytes } => self.receive_message(now, node, bytes)?,
            Input::PeerBlocked { node } => self.links.set_blocked(node, true).ok_or(Fault::BadNode)?,
            Input::PeerWritable { node } => self.links.set_blocked(node, false).ok_or(Fault::BadNode)?,
            Input::Program { job, first, count, appnum } => self.set_program(job, first, count, appnum)?,
            Input::Attr { job, key, value } => self.set_attr(job, key, value)?,
            Input::Pset { job, name, first, count } => self.host_pset(job, name, first, count)?,
            Input::SpawnComplete { spawn, started, full, codes } => {
                self.complete_spawn(spawn, started, full, codes)?
            }
            Input::UpcallComplete { upcall, rc, text } => self.complete_upcall(upcall, rc, text)?,
            Input::Opened { conn, job, rank } => self.open_conn(conn, job, rank)?,
            Input::OpenedQuery { conn, job } => self.open_query(conn, job)?,
            Input::Blocked { conn } => {
                self.conn_mut(conn)?.blocked = true;
                self.ready.remove(conn.0);
            }
            Input::Writable { conn } => {
                self.conn_mut(conn)?.blocked = false;
                self.check_ready(conn);
            }
            Input::Closed { conn } => self.close_conn(now, conn)?,
            Input::Exited { job, rank, exit } => self.exit(now, job, rank, exit)?,
            Input::DeregisterJob { job } => self.deregister_job(job)?,
            Input::Timeout => self.handle_timeout(now),
            Input::Verified { conn } => self.conn_mut(conn)?.verified = true,
            Input::PsetRequest { job, rank, request } => self.pset_request(job, rank, request)?,
            #[cfg(feature = "cluster")]
            Input::NodeLost { epoch, node } => self.lose_node(now, epoch, node)?,
            #[cfg(feature = "cluster")]
            Input::NodeJoined { epoch, node } => self.admit_node(epoch, node)?,
            #[cfg(not(feature = "cluster"))]
            Input::NodeLost { .. } | Input::NodeJoined { .. } => return Err(Fault::BadNode),
        }
        Ok(Consumed::default())
    }

    /// Returns when [`Input::Timeout`] is due, or `None` when it is not.
    #[must_use]
    pub fn poll_at(&self) -> Option<Time> {
        self.wake
    }

    /// Returns whether [`Server::poll`] may return an output.
    #[must_use]
    pub fn has_output(&self) -> bool {
        self.events_pending || self.ready.len() > 0 || self.links.are_any() && self.links.are_ready()
    }
}
