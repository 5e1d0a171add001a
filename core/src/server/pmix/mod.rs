//! PMIx clients: the handshake, and the execution of requests.

mod bootstrap;
mod data;
mod encode;
mod events;
mod gather;
mod groups;
mod hosts;
mod log;
mod monitor;
mod names;
mod nodes;
mod query;
mod shared;

#[cfg(feature = "cluster")]
pub(super) use names::publisher_in;
pub(super) use names::{reach_of, remote, terms};

use core::fmt::Write as _;

use heapless::{String, Vec};

use super::Server;
use super::dispatch::Requester;
use super::io::Consumed;
use super::jobs::printable;
use crate::fault::{Malformed, Refusal};
use crate::ids::{ConnId, JobId, Rank};
use crate::limits::{
    HOST_FACTS, JOBID_MAX, Limit, MESSAGE_TEXT_MAX, SPAWN_PROGRAMS_MAX, THRID_MAX, TOOL_ATTR,
};
use crate::peer::message::GroupKind;
use crate::state::{Conn, Dialect, Job, PendingReply, Phase, PmixResponse, RankPhase, ReplyState, Response};
use crate::tables::upcalls::Task;
use crate::time::Time;
use crate::trace::{Cause, Closing, event};
use crate::wire::pmix::{self, Apps, Command, Frame, Hello, Infos, Kind, Procs, event, keys, status};
use crate::wire::{Integers, Op, Text};

impl Server<'_> {
    /// Returns whether a connection speaks PMIx, or begins to.
    pub(super) fn is_pmix(&self, conn: ConnId, bytes: &[u8]) -> bool {
        let slot = &self.conns[conn.index()];
        let begins = || {
            bytes.first() == Some(&pmix::FIRST_BYTE)
                && slot.phase == Phase::Opened
                && slot.rank.is_none()
                && !slot.query
                && self.limits.commit_bytes > 0
        };
        slot.pmix.is_some() || begins()
    }

    /// Executes the messages of a PMIx connection.
    #[cold]
    pub(super) fn pmix_bytes(&mut self, now: Time, conn: ConnId, bytes: &[u8], full: bool) -> Consumed {
        let mut rest = bytes;
        let mut again = false;
        while !rest.is_empty() {
            if self.conns[conn.index()].closing.is_some() {
                rest = &[];
                break;
            }
            let len = match pmix::next_frame(rest) {
                // Consumed bytes make room in the host's buffer.
                Ok(None) if full && rest.len() == bytes.len() => Err(Malformed::TooLong),
                Ok(None) => break,
                Ok(Some(Frame::Hello { len, body })) => self.pmix_hello(now, conn, body).map(|()| Some(len)),
                Ok(Some(Frame::Message { len, tag, body })) => {
                    self.pmix_message(now, conn, tag, body).map(|done| done.then_some(len))
                }
                Err(malformed) => Err(malformed),
            };
            match len {
                Ok(Some(len)) => rest = &rest[len as usize..],
                Ok(None) => {
                    again = true;
                    break;
                }
                Err(Malformed::TooLong) if self.is_long_commit(conn, rest) => rest = &[],
                Err(malformed) => self.close(conn, Closing::Malformed(malformed)),
            }
        }
        Consumed { bytes: (bytes.len() - rest.len()) as u32, again }
    }

    /// Ends the job of a rank whose message exceeds the length of any commit within the limit, if it is a commit. Returns
    /// whether it is one. The connection is closed, because the rest of the message follows.
    fn is_long_commit(&mut self, conn: ConnId, bytes: &[u8]) -> bool {
        let slot = &self.conns[conn.index()];
        let is_commit = slot.pmix.is_some_and(|dialect| pmix::is_commit(dialect.integers, bytes));
        let Some(requester) = self.requester(conn).filter(|_| is_commit && slot.phase == Phase::Ready) else {
            return false;
        };
        let why = Refusal::Full(Limit::CommitBytes, self.limits.commit_bytes);
        self.note_limit(conn, why);
        self.abort_for(requester, why);
        self.close(conn, Closing::JobOver);
        true
    }

    /// Executes a handshake. A refused client gets a status, and goes on without a server.
    fn pmix_hello(&mut self, now: Time, conn: ConnId, body: &[u8]) -> Result<(), Malformed> {
        if self.conns[conn.index()].phase != Phase::Opened {
            return Err(Malformed::Handshake);
        }
        let hello = Hello::decode(body);
        let dialect = hello.map(|hello| Dialect { integers: hello.integers, major: hello.major });
        let dialect = dialect.unwrap_or(Dialect { integers: Integers::Flexible, major: 0 });
        self.conns[conn.index()].pmix = Some(dialect);
        let joined = hello.filter(|hello| self.pmix_join(now, conn, hello));
        let answer = match joined.map(|hello| hello.kind) {
            None => PmixResponse::Hello(status::BAD_PARAM),
            Some(Kind::Client) => PmixResponse::Hello(status::SUCCESS),
            Some(kind) => PmixResponse::ToolHello { names_it: kind == Kind::Tool },
        };
        self.push_reply(conn, Vec::new(), ReplyState::Ready(Response::Pmix(answer)));
        if joined.is_none() {
            self.close(conn, Closing::Unserved);
        }
        self.check_ready(conn);
        Ok(())
    }

    /// Makes a connection that of a rank. Returns false if the client is not that rank.
    ///
    /// A rank that has finalized may connect again. Its earlier connection is then closed. A tool is the rank of a job that the
    /// host has registered for tools.
    fn pmix_join(&mut self, now: Time, conn: ConnId, hello: &Hello<'_>) -> bool {
        let here = self.links.node();
        let rank = Rank(hello.rank);
        let Conn { job, .. } = self.conns[conn.index()];
        let Some(job) = job.filter(|job| self.names_job(*job, hello)) else { return false };
        let Some(index) = self.jobs[job.index()].slot(rank) else { return false };
        let slot = &self.ranks[index];
        if slot.node != here || slot.exit.is_some() {
            return false;
        }
        if let Some(earlier) = slot.pmix {
            if self.conns[earlier.index()].phase != Phase::Finalized {
                return false;
            }
            self.close(earlier, Closing::Replaced);
        }
        let is_tool = self.is_tool(&self.jobs[job.index()]);
        let slot = &mut self.ranks[index];
        let is_new = slot.phase == RankPhase::New;
        slot.pmix = Some(conn);
        let open = &mut self.conns[conn.index()];
        open.rank = Some(rank);
        open.phase = Phase::Ready;
        open.joined = true;
        open.joined_pending = true;
        // A process also gets the notices from before its start, once.
        if !is_tool && !is_new {
            (open.events.before, open.events.removals) = (self.notices, self.notices);
        }
        if let Some(Requester { job, index, .. }) = self.requester(conn) {
            self.initialize(now, job, index);
        }
        event!(debug, "conn {} is rank {} by PMIx", conn, rank);
        true
    }

    /// Returns whether a client names its job, or is a tool, which may name its job as no other is named.
    fn names_job(&mut self, id: JobId, hello: &Hello<'_>) -> bool {
        let Some(job) = self.jobs.get(id.index()) else { return false };
        let is_tool = self.is_tool(job);
        let is_one_of_its = match hello.kind {
            Kind::Client => !is_tool,
            // A process of a job that names itself is a tool, and a rank otherwise.
            Kind::ClientTool => HOST_FACTS,
            Kind::Tool | Kind::NamedTool => is_tool,
        };
        if !is_one_of_its {
            return false;
        }
        if !is_tool {
            return hello.namespace == job.name.as_bytes();
        }
        let own = core::str::from_utf8(hello.namespace).ok();
        let own = own.filter(|own| !own.is_empty() && own.len() <= JOBID_MAX && printable(own));
        let name = own.or_else(|| self.name_of_tool(job)).map(String::try_from);
        let Some(Ok(name)) = name else { return false };
        let is_taken = (0..).zip(&*self.jobs).any(|(at, job)| at != id.0 && job.name == name);
        if !is_taken {
            self.jobs[id.index()].name = name;
        }
        !is_taken
    }

    /// Returns whether a job is that of a tool.
    fn is_tool(&self, job: &Job) -> bool {
        HOST_FACTS && self.name_of_tool(job).is_some()
    }

    /// Returns the job id that a job was registered with, if it is that of a tool.
    pub(super) fn name_of_tool(&self, job: &Job) -> Option<&str> {
        let record = self.host_attr(job, TOOL_ATTR.as_bytes())?;
        core::str::from_utf8(self.kvs.value(record)?).ok()
    }

    /// The connection of a rank is closed. That is the end of a tool.
    pub(super) fn pmix_closed(&mut self, id: JobId, rank: Rank) {
        self.forget_monitors(id, rank);
        let job = &self.jobs[id.index()];
        if self.is_tool(job) {
            self.names.process_ended(job.spaces, rank);
        }
    }

    fn push_reply(&mut self, conn: ConnId, thrid: Vec<u8, THRID_MAX, u8>, state: ReplyState) {
        let pushed = self.conns[conn.index()].replies.push(PendingReply { thrid, state });
        debug_assert!(pushed.is_ok(), "a crowded connection is turned back before");
    }

    /// Executes a request. Returns false if it must wait until a reply is taken.
    fn pmix_message(&mut self, now: Time, conn: ConnId, tag: u32, body: &[u8]) -> Result<bool, Malformed> {
        let slot = &self.conns[conn.index()];
        let Some(Dialect { integers, .. }) = slot.pmix else { return Err(Malformed::Handshake) };
        let crowded = slot.replies.is_full();
        let command = pmix::decode(integers, body)?;
        if command == Ok(Command::Heartbeat) {
            if tag != pmix::HEARTBEAT_TAG {
                return Err(Malformed::Structure);
            }
            if HOST_FACTS {
                self.heartbeat(conn);
            }
            return Ok(true);
        }
        if let Ok(Command::DeregisterEvents(codes)) = &command {
            self.deregister_events(conn, codes);
            return Ok(true);
        }
        let requester = self.requester(conn).filter(|_| self.conns[conn.index()].phase == Phase::Ready);
        if let (Ok(Command::Abort { code, message, procs }), Some(requester)) = (&command, requester)
            && self.pmix_abort(requester, *code, message, *procs)
        {
            return Ok(true);
        }
        // An abort of a rank alone is done by now, and only its reply waits.
        if crowded {
            return Ok(false);
        }
        let result = match (command, requester) {
            (_, None) => Err(Refusal::NotInitialized),
            (Err(pmix::Unreadable), _) => Err(Refusal::BadField),
            (Ok(command), Some(requester)) => {
                let execute =
                    |server: &mut Self| server.pmix_command(now, requester, (integers, body), &command);
                self.with_room(execute).inspect_err(|&why| {
                    // The client ignores the status of a commit.
                    if let Command::Commit(_) = command {
                        self.abort_for(requester, why);
                    }
                })
            }
        };
        let state = result.unwrap_or_else(|why| {
            event!(warn, "conn {} refused: {}", conn, why);
            self.note_limit(conn, why);
            if HOST_FACTS && why == Refusal::Unsupported {
                self.unserved |= 1 << pmix::number(integers, body).unwrap_or_default().min(63);
            }
            ReplyState::Ready(Response::status(why.pmix_status()))
        });
        let mut thrid = Vec::new();
        let kept = thrid.extend_from_slice(&tag.to_be_bytes());
        debug_assert!(kept.is_ok(), "a tag is shorter than a thread id");
        self.push_reply(conn, thrid, state);
        self.after_command(now, conn, state);
        self.push_event(conn);
        self.check_ready(conn);
        Ok(true)
    }

    fn pmix_command(
        &mut self,
        now: Time,
        requester: Requester,
        (integers, body): (Integers, &[u8]),
        command: &Command<'_>,
    ) -> Result<ReplyState, Refusal> {
        let done = Response::status(status::SUCCESS);
        Ok(ReplyState::Ready(match *command {
            Command::JobInfo => Response::Pmix(PmixResponse::JobInfo),
            Command::Abort { .. } => done,
            Command::Commit(commit) => {
                self.commit(requester, integers, &commit)?;
                done
            }
            Command::Fence { procs, infos } => {
                return self.pmix_fence(now, requester, procs, &infos);
            }
            Command::Get { key: Some(keys::PROC_PID), .. } if self.host_answers(requester) => {
                return self.pass_to_host(requester, integers, body);
            }
            Command::Get { proc, infos, key } => {
                return self.pmix_get(now, integers, proc, &infos, key);
            }
            Command::Refresh(proc) => return self.pmix_refresh(now, integers, proc),
            Command::ResolvePeers { host, namespace } if HOST_FACTS => self.peers_on(host, namespace)?,
            Command::ResolveNodes(namespace) if HOST_FACTS => self.hosts_of(namespace)?,
            Command::Finalize => {
                self.conns[requester.conn.index()].phase = Phase::Finalized;
                self.ranks[requester.index].phase = RankPhase::Finalized;
                self.forget_monitors(requester.job, requester.rank);
                done
            }
            Command::RegisterEvents(codes) => self.register_events(requester, &codes),
            Command::Notify { event: event::READY_FOR_DEBUG, .. } if self.host_answers(requester) => {
                self.conns[requester.conn.index()].events.waits = true;
                self.events_pending = true;
                done
            }
            Command::Notify { event, range, infos } => {
                let sent = self.notify(requester, integers, event, range, &infos)?;
                // The ranks go on, whether or not the host has room for another request.
                if event == event::DEBUGGER_RELEASE
                    && let Ok(waits) = self.pass_to_host(requester, integers, body)
                {
                    return Ok(waits);
                }
                sent
            }
            // The leader of a group by invitation asks so. It tells the other members itself.
            Command::JobControl { orders, .. } if orders.is_set(keys::GROUP_ASSIGN_CONTEXT_ID) => {
                Response::Pmix(PmixResponse::Context(self.next_context()))
            }
            Command::JobControl { orders, .. } => {
                if !orders.iter().any(|info| info.key.starts_with(keys::REGISTER_CLEANUP)) {
                    return self.pass_to_host(requester, integers, body);
                }
                if let Some(paths) = orders.find(keys::REGISTER_CLEANUP).and_then(|info| info.as_string()) {
                    let parent = (requester.job, requester.rank);
                    let task = Task::RemoveFiles;
                    self.upcalls.ask(parent, String::new(), requester.conn, task, paths)?;
                    self.events_pending = true;
                }
                done
            }
            Command::Allocate { .. } => return self.pass_to_host(requester, integers, body),
            Command::Publish(user, infos) if self.has_shared_names(requester.job) => {
                return self.share(requester, (user, &infos));
            }
            Command::Lookup(keys, infos) if self.has_shared_names(requester.job) => {
                return self.lookup_shared(requester, &keys, &infos);
            }
            Command::Unpublish(keys, _) if self.has_shared_names(requester.job) => {
                return self.unshare(requester, &keys);
            }
            Command::Publish(user, infos) => self.pmix_publish(requester, integers, (user, &infos))?,
            Command::Lookup(keys, infos) => return self.pmix_lookup(now, requester, &keys, &infos),
            Command::Unpublish(keys, _) => self.pmix_unpublish(requester, &keys)?,
            Command::Spawn { .. } if self.is_tool(&self.jobs[requester.job.index()]) => {
                return self.pass_to_host(requester, integers, body);
            }
            Command::Spawn { infos, apps } => return self.pmix_spawn(requester, &infos, &apps),
            Command::Connect(procs, infos) => {
                return self.gather(now, requester, (GroupKind::Connect, b""), (procs, &infos), true);
            }
            Command::Disconnect(procs, infos) => {
                return self.gather(now, requester, (GroupKind::Disconnect, b""), (procs, &infos), false);
            }
            Command::GroupConstruct { name, procs, infos } => {
                return self.construct(now, requester, integers, name, (procs, &infos));
            }
            Command::GroupDestruct { name, rest } => {
                return self.pmix_destruct(now, requester, integers, name, rest);
            }
            Command::Query(queries) => return self.pmix_query(requester, integers, &queries),
            Command::Log(infos, directives) => {
                return self.pmix_log(requester, integers, &infos, &directives);
            }
            Command::Monitor { monitor, code, infos } if HOST_FACTS => {
                return self.pmix_monitor(now, requester, integers, (&monitor, code), &infos);
            }
            Command::PullOutput { .. } | Command::StopOutput { .. } | Command::PushInput { .. }
                if self.is_tool(&self.jobs[requester.job.index()]) =>
            {
                return self.pass_to_host(requester, integers, body);
            }
            Command::Monitor { .. }
            | Command::PullOutput { .. }
            | Command::StopOutput { .. }
            | Command::PushInput { .. }
            | Command::ResolvePeers { .. }
            | Command::ResolveNodes(_)
            | Command::Unsupported => return Err(Refusal::Unsupported),
            // `pmix_message` has handled them.
            Command::DeregisterEvents(_) | Command::Heartbeat => done,
        }))
    }

    /// Stores a spawn request for the host, as the PMI-2 message that it decodes.
    fn pmix_spawn(
        &mut self,
        requester: Requester,
        infos: &Infos<'_>,
        apps: &Apps<'_>,
    ) -> Result<ReplyState, Refusal> {
        if apps.len() > SPAWN_PROGRAMS_MAX {
            return Err(Refusal::Programs);
        }
        if apps.is_empty() || apps.iter().any(|app| app.processes == 0 || app.command.is_empty()) {
            return Err(Refusal::BadGroup);
        }
        let spawner = self.jobs[requester.job.index()].name.clone();
        let parent = (requester.job, requester.rank);
        let id = self.upcalls.ask(parent, spawner, requester.conn, Task::Spawn(apps.len()), b"")?;
        if !self.upcalls.fill(id, |room| pmix::translate_spawn(infos, apps, room)) {
            let room = self.upcalls.room();
            self.upcalls.free(id);
            return Err(Refusal::Full(Limit::SpawnBytes, room as u32));
        }
        self.events_pending = true;
        Ok(ReplyState::Upcall(Op::Spawn, id))
    }

    /// Ends the job of a rank, or the rank alone if it names only itself. Returns whether the job ends.
    ///
    /// A client exits at the reply, which breaks its connections to ranks of other nodes. Their failures must not reach
    /// the head before the abort, so an abort of the job has no reply: the client waits until the host kills it or
    /// closes its connection. The host of a rank that aborts alone may be unable to kill it.
    fn pmix_abort(&mut self, requester: Requester, code: i32, message: &[u8], procs: Procs<'_>) -> bool {
        let job = &self.jobs[requester.job.index()];
        let own =
            |proc: pmix::Proc<'_>| proc.namespace == job.name.as_bytes() && proc.rank == requester.rank.0;
        let alone = !procs.is_empty() && procs.iter().all(own);
        // Open MPI 4 sends this without a message.
        let message = if message == b"N/A" { b"" } else { message };
        self.abort(requester.conn, Some(code), !alone, Text::plain(message));
        !alone
    }

    /// A rank arrives in the end of a group. Requests of libpmix 4 do not name the members, so they do not wait.
    fn pmix_destruct(
        &mut self,
        now: Time,
        requester: Requester,
        integers: Integers,
        name: &[u8],
        rest: &[u8],
    ) -> Result<ReplyState, Refusal> {
        let dialect = self.conns[requester.conn.index()].pmix;
        if dialect.is_none_or(|dialect| dialect.major < 5) {
            return Ok(ReplyState::Ready(Response::status(status::SUCCESS)));
        }
        let mut reader = pmix::Reader::new(integers, rest);
        let read = (|| Some((reader.procs()?, reader.infos()?)))();
        let (procs, infos) = read.ok_or(Refusal::BadField)?;
        self.destruct(now, requester, name, (procs, &infos))
    }

    /// Ends the job of a rank because of a limit that its client would not report.
    fn abort_for(&mut self, requester: Requester, why: Refusal) {
        let Requester { job, rank, .. } = requester;
        let state = &mut self.jobs[job.index()];
        if state.ending.is_none() {
            let mut text = String::<MESSAGE_TEXT_MAX>::new();
            let written = write!(text, "PMIx data of rank {rank}: {why}");
            debug_assert!(written.is_ok(), "a refusal is shorter than a message");
            state.message = self.messages.store(job.index(), text.bytes());
            self.end_job(job, Cause::Abort { rank, code: None });
        }
    }

    /// A rank arrives in a fence of all ranks of its job, or of some of them.
    fn pmix_fence(
        &mut self,
        now: Time,
        requester: Requester,
        procs: Procs<'_>,
        infos: &Infos<'_>,
    ) -> Result<ReplyState, Refusal> {
        let collects = infos.is_set(keys::COLLECT_DATA);
        let job = &self.jobs[requester.job.index()];
        if !procs.is_whole(job.name.as_bytes()) {
            return self.gather(now, requester, (GroupKind::Fence, b""), (procs, infos), collects);
        }
        let waits = self.fence(now, requester, collects)?;
        if let Some(wait) = infos.timeout() {
            self.jobs[requester.job.index()].fence.limit(now.after(wait));
            self.schedule(now, wait);
        }
        Ok(waits)
    }
}
