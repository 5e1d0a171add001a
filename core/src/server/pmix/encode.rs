//! Replies to PMIx clients.

use super::super::Server;
use super::data::{self, PARENT, PLACES};
use super::groups::CONTEXT;
use super::hosts;
use crate::ids::{ConnId, JobId, Rank, UpcallId};
use crate::limits::{
    COMMIT_HEADER, HOST_FACTS, OVERSUBSCRIBED_ATTR, STOP_ATTRS, TARGET_ATTR, TEXT_ATTR_PREFIX,
};
use crate::state::{Dialect, Job, PmixResponse, RankSlot, Response};
use crate::tables::upcalls::Stage;
use crate::wire::pmix::{self, HEADER_LEN, WILDCARD, Writer, keys, kind, status};
use crate::wire::{Op, RankRanges, decimal, number};

/// Bytes of a reply about a job that are not its list of ranks.
const LIST_REST: usize = 2048;
/// Ranks of a job up to which each of them is told about all. libpmix looks there for the hosts of other ranks, and does
/// not ask the server.
const RANKS_TOLD: u32 = 64;
/// Programs of a job up to which its ranks are told about the size of each.
const PROGRAMS_TOLD: usize = 32;
/// Bytes of a reply about a job for each rank, with the longest name of a host twice.
const RANK_ROOM: usize = 832;
/// Text with the name of the server.
const SERVER: &[u8] = b"pmix.srv.nspace";
/// That name for ranks, as their hosts put it into their environment.
const SERVER_OF_RANKS: &[u8] = b"hydrant";
/// Bytes of a rank's place on its host in addition to the text.
const PLACE_REST: usize = 32;

impl Server<'_> {
    /// Writes a reply. Returns its length.
    pub(in super::super) fn encode_pmix(
        &self,
        id: ConnId,
        at: usize,
        dialect: Dialect,
        answer: Response,
        buf: &mut [u8],
    ) -> usize {
        if let Response::Pmix(PmixResponse::Hello(status)) = answer {
            return pmix::write_hello_reply(status, id.0, buf).unwrap_or(0);
        }
        if let Response::Pmix(PmixResponse::ToolHello { names_it }) = answer {
            return self.encode_tool_hello(id, names_it, buf).unwrap_or(0);
        }
        let tag = self.conns[id.index()].replies.get(at).and_then(|reply| reply.thrid.first_chunk::<4>());
        let tag = match answer {
            Response::Pmix(PmixResponse::Notice(notice)) => self.notice_tag(notice),
            _ => tag.map_or(0, |tag| u32::from_be_bytes(*tag)),
        };
        let integers = dialect.integers;
        let Some((header, body)) = buf.split_first_chunk_mut::<HEADER_LEN>() else { return 0 };
        let mut writer = Writer::new(integers, body);
        self.write_answer(id, answer, &mut writer);
        let len = writer.finish().unwrap_or_else(|| {
            // Every commit within its limit fits.
            let mut writer = Writer::new(integers, body);
            writer.status(status::OUT_OF_RESOURCE);
            writer.len()
        });
        *header = pmix::write_header(tag, len as u32);
        HEADER_LEN + len
    }

    /// Writes the reply to the handshake of a tool, or to that of a rank that uses its functions.
    fn encode_tool_hello(&self, id: ConnId, names_it: bool, buf: &mut [u8]) -> Option<usize> {
        let job = &self.jobs[self.requester(id)?.job.index()];
        let namespace = names_it.then_some(job.name.as_bytes());
        pmix::write_tool_reply(namespace, self.text_of(job, SERVER, None).unwrap_or(SERVER_OF_RANKS), buf)
    }

    fn write_answer(&self, id: ConnId, answer: Response, writer: &mut Writer<'_>) {
        match answer {
            Response::Pmix(answer) => self.write_response(id, answer, writer),
            Response::Refused(_, why) => writer.status(why.pmix_status()),
            Response::Fence(_) | Response::Done(_) => writer.status(status::SUCCESS),
            Response::Missing(_) => writer.status(status::NOT_FOUND),
            Response::Port(name) => self.write_published(name, writer),
            Response::Upcall(Op::Spawn, spawn) => self.write_spawned(spawn, writer),
            Response::Upcall(op, upcall) => self.write_shared(op, upcall, writer),
            Response::PsetMembers(which, _) => self.write_members(id, which, writer),
            _ => writer.status(status::ERROR),
        }
    }

    fn write_response(&self, id: ConnId, answer: PmixResponse, writer: &mut Writer<'_>) {
        let (job, rank) = match answer {
            PmixResponse::Status(status) => return writer.status(status),
            PmixResponse::Group { context, members } => {
                return self.write_group(id, context, members, writer);
            }
            PmixResponse::Connected { jobs } => return self.write_connected(id, jobs, writer),
            PmixResponse::PeersOn(job, node) => return self.write_peers_on(job, node, writer),
            PmixResponse::HostsOf(job) => return self.write_hosts_of(job, writer),
            PmixResponse::Context(context) => {
                writer.status(status::SUCCESS);
                writer.array(1);
                writer.info(CONTEXT, kind::SIZE);
                return writer.size(context.into());
            }
            PmixResponse::Psets { names, count } => return self.write_psets(id, (names, count), writer),
            PmixResponse::Published { slots } => return self.write_several(slots, writer),
            PmixResponse::Died(job, rank) => return self.write_death(id, job, rank, writer),
            PmixResponse::Notice(notice) => return self.write_notice(notice, writer),
            PmixResponse::Report(report) => return self.write_report(id, report, writer),
            PmixResponse::SetChanged { which, retired } => {
                return self.write_set_change(id, which, retired, writer);
            }
            PmixResponse::JobInfo => return self.write_job_info(id, writer),
            PmixResponse::NoInfos => {
                writer.status(status::SUCCESS);
                return writer.array(0);
            }
            PmixResponse::Refreshed { record } => {
                writer.status(status::SUCCESS);
                return writer.raw(record.map_or(&[], |record| self.committed_data(record)));
            }
            _ => match answer.about() {
                Some((job, rank)) => (job, rank.map_or(WILDCARD, |rank| rank.0)),
                // A handshake has no tag, and is written elsewhere.
                None => return writer.status(status::ERROR),
            },
        };
        // Data about a rank, or about all ranks of a job.
        let of = &self.jobs[job.index()];
        writer.status(status::SUCCESS);
        writer.single();
        writer.blob_of(|writer| {
            writer.single();
            writer.proc(of.name.as_bytes(), rank);
            match answer {
                PmixResponse::JobData(_) => self.write_job_data(id, job, writer),
                PmixResponse::Identity(_) if HOST_FACTS => {
                    writer.key(data::JOB_NAME, kind::STRING);
                    writer.string(of.name.as_bytes());
                    writer.key(data::OFFSET, kind::PROC_RANK);
                    writer.uint32(0);
                }
                PmixResponse::Text(_, record) if HOST_FACTS => {
                    let name = self.kvs.record(record).map_or(&[][..], |record| record.key);
                    let key = name.strip_prefix(TEXT_ATTR_PREFIX.as_bytes()).unwrap_or_default();
                    writer.key(key, kind::STRING);
                    self.write_text(of, key, writer);
                }
                PmixResponse::Hosts(_) => self.write_hosts(of, writer),
                PmixResponse::Host(_, node) => self.write_host(of, node, writer),
                PmixResponse::HostSizes(_, node) if HOST_FACTS => {
                    self.write_host_sizes(of, node, writer);
                }
                PmixResponse::Program(_, appnum) if HOST_FACTS => {
                    self.write_program(of, appnum, self.wdir(of, appnum), writer);
                }
                PmixResponse::Processes(_) => self.write_processes(of, writer),
                PmixResponse::SetsOf(job, rank) if HOST_FACTS => self.write_sets_of(job, rank, writer),
                PmixResponse::RankData(_, rank) => self.write_rank_data(job, rank, writer),
                PmixResponse::Restarts(..) if HOST_FACTS => writer.key_uint32(data::RESTARTS, 0),
                PmixResponse::Commit { record, .. } => writer.raw(self.committed_data(record)),
                PmixResponse::Given { record, context, .. } => {
                    self.write_given(record, context, writer);
                }
                _ => {}
            }
        });
    }

    /// Writes a text of a job as a STRING.
    pub(super) fn write_text(&self, job: &Job, key: &[u8], writer: &mut Writer<'_>) {
        writer.string_of(|writer| self.text_parts(job, key).for_each(|part| writer.raw(part)));
    }

    /// Returns the data of a commit without their header.
    fn committed_data(&self, record: u32) -> &[u8] {
        let data = self.kvs.value(record).and_then(|value| value.get(COMMIT_HEADER as usize..));
        data.unwrap_or_default()
    }

    /// Writes the reply to a spawn: the namespace of the new job.
    fn write_spawned(&self, spawn: UpcallId, writer: &mut Writer<'_>) {
        match self.upcalls.get(spawn) {
            Some(slot) if slot.stage == Stage::Launched(true) => {
                writer.status(status::SUCCESS);
                writer.single();
                writer.string(slot.name.as_bytes());
            }
            slot => {
                let is_full = slot.is_some_and(|slot| slot.full.is_some());
                let codes = self.upcalls.text(spawn);
                writer.status(if is_full { status::OUT_OF_RESOURCE } else { status::of_spawn(codes) });
                writer.single();
                writer.null_string();
            }
        }
    }

    /// Writes what a rank needs to know of its job and of itself.
    fn write_job_info(&self, id: ConnId, writer: &mut Writer<'_>) {
        match self.requester(id) {
            Some(requester) => self.write_job(id, requester.job, writer),
            None => writer.status(status::ERROR),
        }
    }

    /// Writes the reply to a connection, with what the client needs to know of the other jobs: they may be over when it asks. Jobs
    /// that do not fit are left out, and the client asks for each of their attributes.
    fn write_connected(&self, id: ConnId, jobs: u64, writer: &mut Writer<'_>) {
        writer.status(status::SUCCESS);
        let Some(requester) = self.requester(id).filter(|_| HOST_FACTS) else { return };
        let room = self.limits.reply_max() - HEADER_LEN;
        for other in self.jobs.numbers().map(JobId).take(u64::BITS as usize) {
            // A job may have ended since, and another one may have its number.
            let is_connected = other != requester.job && self.connections.connected(requester.job, other);
            if jobs & 1 << other.0 == 0 || !is_connected {
                continue;
            }
            let write = |writer: &mut Writer<'_>| {
                writer.single();
                writer.blob_of(|writer| self.write_job(id, other, writer));
            };
            let mut measured = Writer::new(writer.integers(), &mut []);
            write(&mut measured);
            if writer.len() + measured.len() <= room {
                write(writer);
            }
        }
    }

    /// Writes the attributes of a job and of its ranks for a client. A rank of the job gets those of its program, too, and one of
    /// another job the ranks on each host, as it cannot ask for them later.
    fn write_job(&self, client: ConnId, id: JobId, writer: &mut Writer<'_>) {
        let job = &self.jobs[id.index()];
        let asker = self.requester(client).filter(|asker| asker.job == id);
        let all = self.is_small(job);
        writer.single();
        writer.string(job.name.as_bytes());
        self.write_job_data(client, id, writer);
        match asker {
            Some(asker) => {
                self.write_program(job, self.ranks[asker.index].appnum, None, writer);
                self.write_programs(job, writer);
            }
            None if HOST_FACTS && all => {
                for node in hosts::nodes(&self.ranks[job.slots()]) {
                    self.write_host(job, node, writer);
                }
            }
            None => {}
        }
        let fits = || self.local_room(job) + self.places_room(job) <= self.limits.reply_max();
        let places = HOST_FACTS && !all && fits();
        for rank in (0..job.size).map(Rank) {
            let whole = all || asker.is_some_and(|asker| rank == asker.rank);
            // Open MPI compares its place with those of its peers, and does not ask the server.
            let place = places && self.text(job, PLACES[1], Some(rank)).is_some();
            if !whole && !place {
                continue;
            }
            writer.key(b"pmix.pblob", kind::BYTE_OBJECT);
            writer.blob_of(|writer| {
                writer.single();
                writer.uint32(rank.0);
                if whole {
                    self.write_rank_data(id, rank, writer);
                } else {
                    self.write_places(job, rank, &PLACES[1..], writer);
                }
            });
        }
    }

    /// Writes the place of a rank on its host, as far as the host knows it.
    fn write_places(&self, job: &Job, rank: Rank, keys: &[&[u8]], writer: &mut Writer<'_>) {
        for key in keys {
            if let Some(value) = self.text_of(job, key, Some(rank)) {
                writer.key(key, kind::STRING);
                writer.string(value);
            }
        }
    }

    /// Writes the attributes of a program: its size, its first rank, its command line if the host has given it, and a working
    /// directory.
    fn write_program(&self, job: &Job, appnum: u32, wdir: Option<&[u8]>, writer: &mut Writer<'_>) {
        let ranks = &self.ranks[job.slots()];
        let of_program = || (0u32..).zip(ranks).filter(|(_, rank)| rank.appnum == appnum);
        let told = self.argv(job, appnum).next().is_some();
        let told = told && self.argv_room(job) <= self.limits.reply_max() / 2;
        writer.key(b"pmix.app.arr", kind::DATA_ARRAY);
        writer.data_type(kind::INFO);
        writer.size(3 + u64::from(told) + u64::from(wdir.is_some()));
        writer.info(b"pmix.appnum", kind::UINT32);
        writer.uint32(appnum);
        writer.info(b"pmix.app.size", kind::UINT32);
        writer.uint32(of_program().count() as u32);
        writer.info(b"pmix.aldr", kind::PROC_RANK);
        writer.uint32(of_program().next().map_or(0, |(rank, _)| rank));
        if told {
            writer.info(b"pmix.app.argv", kind::STRING);
            writer.string_of(|writer| self.argv(job, appnum).for_each(|part| writer.raw(part)));
        }
        if let Some(wdir) = wdir {
            writer.info(b"pmix.wdir", kind::STRING);
            writer.string(wdir);
        }
    }

    /// Writes the sizes of several programs and their first ranks, under the keys of PRRTE that Open MPI reads.
    fn write_programs(&self, job: &Job, writer: &mut Writer<'_>) {
        let ranks = &self.ranks[job.slots()];
        let programs = || ranks.chunk_by(|one, next| one.appnum == next.appnum);
        if !(2..=PROGRAMS_TOLD).contains(&programs().count()) {
            return;
        }
        let firsts =
            || programs().scan(0, |next, of| Some(core::mem::replace(next, *next + of.len() as u32)));
        write_numbers(b"OMPI_APP_SIZES", || programs().map(|of| of.len() as u32), writer);
        write_numbers(b"OMPI_FIRST_RANKS", firsts, writer);
    }

    /// Returns the bytes of the longest command line of a job's programs.
    fn argv_room(&self, job: &Job) -> usize {
        let lens = (0..).map(|appnum| self.argv(job, appnum).map(<[u8]>::len).sum());
        lens.take_while(|&len: &usize| len > 0).max().unwrap_or(0)
    }

    /// Returns whether a reply has room for attributes of all ranks of a job.
    fn is_small(&self, job: &Job) -> bool {
        let room = job.size as usize * RANK_ROOM + LIST_REST + self.argv_room(job);
        job.size <= RANKS_TOLD && room + self.places_room(job) <= self.limits.reply_max()
    }

    /// Returns the bytes of the places of a job's ranks on this host.
    fn places_room(&self, job: &Job) -> usize {
        if !HOST_FACTS {
            return 0;
        }
        let local = hosts::ranks_on(&self.ranks[job.slots()], self.links.node());
        let places = local.flat_map(|rank| PLACES.map(|key| self.text_of(job, key, Some(Rank(rank)))));
        places.flatten().map(|place| PLACE_REST + place.len()).sum()
    }

    /// Returns the bytes of a reply about a job with the list of its ranks on this host.
    fn local_room(&self, job: &Job) -> usize {
        let local = hosts::ranks_on(&self.ranks[job.slots()], self.links.node());
        let list: usize = local.map(|rank| decimal(rank, &mut [0; 10]).len() + 1).sum();
        list + LIST_REST + self.argv_room(job)
    }

    /// Writes the attributes of a job for a client.
    fn write_job_data(&self, client: ConnId, id: JobId, writer: &mut Writer<'_>) {
        let job = &self.jobs[id.index()];
        let here = self.links.node();
        let ranks = &self.ranks[job.slots()];
        let local = || hosts::ranks_on(ranks, here);
        let programs = ranks.iter().map(|rank| rank.appnum).max().unwrap_or(0);
        writer.key_uint32(keys::JOB_SIZE, job.size);
        writer.key_uint32(b"pmix.max.size", job.size);
        if job.universe_size > 0 {
            writer.key_uint32(keys::UNIV_SIZE, job.universe_size);
        }
        writer.key_uint32(b"pmix.job.napps", programs.saturating_add(1));
        writer.key_uint32(b"pmix.num.nodes", hosts::nodes(ranks).count() as u32);
        writer.key_uint32(hosts::LOCAL_SIZE, job.local);
        // Clients look for the presence of the key.
        if self.is_true(job, OVERSUBSCRIBED_ATTR) {
            writer.key(OVERSUBSCRIBED_ATTR.as_bytes(), kind::BOOL);
            writer.byte(1);
        }
        if HOST_FACTS {
            let asker = self.requester(client).filter(|asker| asker.job == id);
            self.write_debug_options(job, asker.map(|asker| asker.rank), writer);
        }
        if programs == 0 {
            // Sizes of several programs would take an array for each.
            writer.key_uint32(b"pmix.app.size", job.size);
        }
        if let Some(first) = local().next() {
            writer.key(hosts::LEADER, kind::PROC_RANK);
            writer.uint32(first);
            // A list that does not fit is left out. Clients then use no shared memory.
            if self.local_room(job) <= self.limits.reply_max() {
                writer.key(hosts::RANKS, kind::STRING);
                self.write_ranks_on(job, here, writer);
            }
        }
        if self.is_small(job) {
            self.write_hosts(job, writer);
        }
    }

    /// Writes for a rank of a job where it waits for a debugger, and which processes the job debugs. libpmix understands all ranks
    /// or one.
    fn write_debug_options(&self, job: &Job, rank: Option<Rank>, writer: &mut Writer<'_>) {
        for key in STOP_ATTRS {
            let Some(listed) = self.job_attr(job, key) else { continue };
            match (RankRanges::new(listed), rank) {
                (None, _) => {
                    writer.key(key.as_bytes(), kind::BOOL);
                    writer.byte(1);
                }
                (Some(listed), Some(Rank(rank))) if listed.iter().any(|listed| listed == rank) => {
                    writer.key(key.as_bytes(), kind::PROC_RANK);
                    writer.uint32(rank);
                }
                _ => {}
            }
        }
        let target = self.job_attr(job, TARGET_ATTR);
        let parts = target.and_then(|target| {
            let at = target.iter().position(|&byte| byte == b' ')?;
            Some((number(&target[..at])?, &target[at + 1..]))
        });
        if let Some((rank, namespace)) = parts {
            writer.key(TARGET_ATTR.as_bytes(), kind::PROC);
            writer.proc(namespace, rank);
        }
    }

    /// Writes the attributes of a rank.
    fn write_rank_data(&self, id: JobId, rank: Rank, writer: &mut Writer<'_>) {
        let job = &self.jobs[id.index()];
        let Some(index) = job.slot(rank) else { return };
        let RankSlot { node, appnum, .. } = self.ranks[index];
        let ranks = &self.ranks[job.slots().start..index];
        let local = ranks.iter().filter(|other| other.node == node).count();
        let of_program = ranks.iter().filter(|other| other.appnum == appnum).count() as u32;
        for key in [b"pmix.lrank", b"pmix.nrank"] {
            writer.key(key, kind::UINT16);
            writer.uint16(u16::try_from(local).unwrap_or(u16::MAX));
        }
        writer.key_uint32(b"pmix.appnum", appnum);
        writer.key(b"pmix.apprank", kind::PROC_RANK);
        writer.uint32(of_program);
        writer.key(b"pmix.grank", kind::PROC_RANK);
        writer.uint32(rank.0);
        writer.key_uint32(hosts::NUMBER, self.host_number(node));
        if let Some(name) = self.host_name(job, node) {
            writer.key(hosts::HOST, kind::STRING);
            writer.string(name);
        }
        self.write_places(job, rank, &PLACES, writer);
        if let Some(parent) = self.parent(job) {
            writer.key(PARENT, kind::PROC);
            writer.proc(job.spawner.as_bytes(), parent.0);
        }
    }
}

/// Writes numbers as one STRING, separated by blanks.
fn write_numbers<I: Iterator<Item = u32>>(key: &[u8], numbers: impl Fn() -> I, writer: &mut Writer<'_>) {
    writer.key(key, kind::STRING);
    writer.string_of(|writer| {
        for (at, number) in numbers().enumerate() {
            if at > 0 {
                writer.byte(b' ');
            }
            writer.raw(decimal(number, &mut [0; 10]));
        }
    });
}
