//! Monitors of PMIx clients: their own heartbeats, files that change while their writer lives, and what processes and hosts use.
//!
//! A monitor takes a slot in the table of names, as a notice does. Its period, its counts and what was seen last are in front of
//! its name and of the path of its file. The host is asked to look at a file ([`HostCall::File`]), so the server counts alone.
//!
//! A monitor of what is used has its request to the host ([`HostQuery`]) in the place of a path. The first answer is the reply to
//! the client. Each period the host is asked again, and its answer is an event for the client alone. A client that has not read
//! the last event misses the next one, so a slow reader holds one upcall.

use super::super::Server;
use super::super::dispatch::Requester;
use super::events::{SERVER, notice_header, range};
use crate::fault::Refusal;
use crate::ids::{ConnId, JobId, Rank, UpcallId};
use crate::limits::{HOST_FACTS, Limit};
use crate::state::{PmixResponse, ReplyState, Response};
use crate::tables::names::{End, NameRef, Party, Terms, mark};
use crate::tables::upcalls::{Stage, Task};
use crate::time::Time;
use crate::wire::Op;
use crate::wire::pmix::{
    FileState, HostCall, HostQuery, Info, Infos, Integers, Reader, Writer, event, keys, status,
};

/// First byte of the names of monitors.
const PREFIX: &[u8] = &[mark::MONITOR];
/// Share of the table of names that monitors may take, and of the upcalls.
const SHARE: u32 = 4;

/// Is a heartbeat.
const BEAT: &[u8] = b"pmix.monitor.beat";

/// Bits of [`Monitor::watched`]: what is a sign of life.
mod watched {
    pub(super) const BEATS: u64 = 1;
    pub(super) const SIZE: u64 = 2;
    pub(super) const ACCESS: u64 = 4;
    pub(super) const CHANGE: u64 = 8;
    /// Nothing: the monitor reports what is used.
    pub(super) const USAGE: u64 = 16;
}

/// Bits of [`Monitor::state`].
mod state {
    /// A heartbeat has come since the last check, or the file has been looked at.
    pub(super) const SEEN: u64 = 1;
    /// Missing heartbeats have been reported, and none has come since.
    pub(super) const REPORTED: u64 = 2;
    /// The host looks at the file, or makes the report.
    pub(super) const ASKED: u64 = 4;
}

/// Numbers in front of the name of a stored monitor.
const NUMBERS: usize = 12;

/// Monitor, without its name and the path of its file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Monitor {
    watched: u64,
    state: u64,
    /// Encoding of the integers of clients that get the alert.
    integers: u64,
    /// Range of the alert.
    range: u64,
    /// Code of the alert.
    code: u64,
    /// Seconds between checks.
    period: u64,
    /// Checks in a row without a sign of life that are no reason for an alert.
    drops: u64,
    /// Such checks so far.
    missed: u64,
    /// Time of the next check in milliseconds.
    due: u64,
    /// What was seen of the file last, as far as it is watched.
    file: FileState,
}

impl Monitor {
    fn to_bytes(self) -> [u8; 8 * NUMBERS] {
        let Monitor { watched, state, integers, range, code, period, drops, missed, due, file } = self;
        let FileState { size, accessed, modified } = file;
        let numbers =
            [watched, state, integers, range, code, period, drops, missed, due, size, accessed, modified];
        let mut bytes = [0; 8 * NUMBERS];
        for (room, number) in bytes.chunks_exact_mut(8).zip(numbers) {
            room.copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    /// Returns a stored monitor, and its name and path.
    fn read(stored: &[u8]) -> Option<(Monitor, &[u8], &[u8])> {
        let (bytes, rest) = stored.split_first_chunk::<{ 8 * NUMBERS }>()?;
        let mut numbers = [0; NUMBERS];
        for (number, bytes) in numbers.iter_mut().zip(bytes.chunks_exact(8)) {
            *number = u64::from_le_bytes(*bytes.first_chunk()?);
        }
        let [watched, state, integers, range, code, period, drops, missed, due, size, accessed, modified] =
            numbers;
        let file = FileState { size, accessed, modified };
        let monitor = Monitor { watched, state, integers, range, code, period, drops, missed, due, file };
        let (&len, rest) = rest.split_first()?;
        let (name, path) = rest.split_at_checked(len.into())?;
        Some((monitor, name, path))
    }

    /// Returns what is watched of a file.
    fn part_of(&self, file: FileState) -> FileState {
        let part = |bit, value| if self.watched & bit == 0 { 0 } else { value };
        FileState {
            size: part(watched::SIZE, file.size),
            accessed: part(watched::ACCESS, file.accessed),
            modified: part(watched::CHANGE, file.modified),
        }
    }
}

impl Server<'_> {
    /// Starts or ends a monitor.
    pub(super) fn pmix_monitor(
        &mut self,
        now: Time,
        requester: Requester,
        integers: Integers,
        (monitor, code): (&Info<'_>, i32),
        infos: &Infos<'_>,
    ) -> Result<ReplyState, Refusal> {
        let asks = self.host_answers(requester);
        match monitor.key {
            keys::MONITOR_HEARTBEAT => self.start_monitor(now, requester, integers, code, infos, b""),
            keys::MONITOR_FILE if asks => {
                let path = monitor.as_string().unwrap_or_default();
                self.start_monitor(now, requester, integers, code, infos, path)
            }
            keys::MONITOR_CANCEL => {
                self.end_monitors(requester, monitor.as_string());
                Ok(ReplyState::Ready(Response::Pmix(PmixResponse::NoInfos)))
            }
            BEAT => {
                self.heartbeat(requester.conn);
                Ok(ReplyState::Ready(Response::Pmix(PmixResponse::NoInfos)))
            }
            key if asks && keys::RESOURCE_USAGE.contains(&key) => {
                let asked = self.ask_host(requester, Op::GetJobAttr, |_, room| {
                    HostQuery::write_one(integers, monitor, infos, room)
                })?;
                if let (ReplyState::Upcall(_, first), Some(rate)) =
                    (asked, infos.find(keys::MONITOR_RESOURCE_RATE))
                {
                    self.start_reports(now, requester, (integers, code), &rate, infos, first)
                        .inspect_err(|_| self.upcalls.free(first))?;
                }
                Ok(asked)
            }
            _ => Err(Refusal::Unsupported),
        }
    }

    /// Starts a monitor of a file, or of heartbeats if there is no path.
    fn start_monitor(
        &mut self,
        now: Time,
        requester: Requester,
        integers: Integers,
        code: i32,
        infos: &Infos<'_>,
        path: &[u8],
    ) -> Result<ReplyState, Refusal> {
        let of_file = !path.is_empty();
        let number = |key| infos.find(key).and_then(|info| info.as_u32()).unwrap_or(0);
        let (period, drops, alert) = match of_file {
            true => {
                (number(keys::MONITOR_FILE_CHECK_TIME), number(keys::MONITOR_FILE_DROPS), event::FILE_ALERT)
            }
            false => (
                number(keys::MONITOR_HEARTBEAT_TIME),
                number(keys::MONITOR_HEARTBEAT_DROPS),
                event::HEARTBEAT_ALERT,
            ),
        };
        let bit = |key, bit| if infos.is_set(key) { bit } else { 0 };
        let watched = match of_file {
            true => {
                bit(keys::MONITOR_FILE_SIZE, watched::SIZE)
                    | bit(keys::MONITOR_FILE_ACCESS, watched::ACCESS)
                    | bit(keys::MONITOR_FILE_MODIFY, watched::CHANGE)
            }
            false => watched::BEATS,
        };
        if period == 0 || watched == 0 {
            return Ok(ReplyState::Ready(Response::status(status::BAD_PARAM)));
        }
        let range = infos.find(keys::RANGE).and_then(|info| info.as_byte()).unwrap_or(range::JOB);
        let monitor = Monitor {
            watched,
            integers: integers as u64,
            range: range.into(),
            code: chosen(code, alert),
            period: period.into(),
            drops: drops.into(),
            ..Monitor::default()
        };
        let slot = self.make_room(requester, infos, &monitor, path)?;
        self.begin(now, slot, monitor);
        Ok(ReplyState::Ready(Response::Pmix(PmixResponse::NoInfos)))
    }

    /// Starts a monitor of what is used, unless its rate is 0. `first` is the request to the host for the first report.
    fn start_reports(
        &mut self,
        now: Time,
        requester: Requester,
        (integers, code): (Integers, i32),
        rate: &Info<'_>,
        infos: &Infos<'_>,
        first: UpcallId,
    ) -> Result<(), Refusal> {
        let period = rate.as_u32().ok_or(Refusal::BadField)?;
        if period == 0 {
            return Ok(());
        }
        let monitor = Monitor {
            watched: watched::USAGE,
            state: state::ASKED,
            integers: integers as u64,
            code: chosen(code, event::USAGE_UPDATE),
            period: period.into(),
            ..Monitor::default()
        };
        let upcalls = core::mem::take(&mut self.upcalls);
        let slot = self.make_room(requester, infos, &monitor, upcalls.text(first));
        self.upcalls = upcalls;
        let slot = slot?;
        if let Some(upcall) = self.upcalls.get_mut(first) {
            upcall.task = Task::Report(slot);
        }
        self.begin(now, slot, monitor);
        Ok(())
    }

    /// Stores a monitor with the path of its file or with its request to the host.
    fn make_room(
        &mut self,
        requester: Requester,
        infos: &Infos<'_>,
        monitor: &Monitor,
        rest: &[u8],
    ) -> Result<NameRef, Refusal> {
        let name = infos.find(keys::MONITOR_ID).and_then(|info| info.as_string()).unwrap_or_default();
        let len = u8::try_from(name.len()).map_err(|_| Refusal::NameLength)?;
        if self.names.marked(PREFIX[0]).count() as u32 >= self.limits.names / SHARE {
            return Err(Refusal::Full(Limit::Names, self.limits.names));
        }
        let free = |number: &u32| self.names.lookup([PREFIX, &number.to_be_bytes()].into_iter()).is_none();
        let Some(number) = (0..=self.limits.names).find(free) else { return Err(Refusal::NameTaken) };
        let owner = (self.jobs[requester.job.index()].spaces, requester.rank);
        let stored = [&monitor.to_bytes()[..], &[len], name, rest];
        let terms = Terms { end: End::Process, ..Terms::JOB };
        self.names.publish(owner, [PREFIX, &number.to_be_bytes()].into_iter(), stored.into_iter(), terms)
    }

    /// Begins the first period of a monitor.
    fn begin(&mut self, now: Time, slot: NameRef, mut monitor: Monitor) {
        let wait = monitor.period * 1000;
        monitor.due = now.after(wait).0;
        self.store_monitor(slot, &monitor);
        self.schedule(now, wait);
    }

    /// Ends the monitors of a process with this name, or all.
    fn end_monitors(&mut self, requester: Requester, wanted: Option<&[u8]>) {
        let owner = (self.jobs[requester.job.index()].spaces, requester.rank);
        for at in 0..self.limits.names {
            let Some(slot) = self.names.at(at) else { continue };
            let is_it =
                self.monitor(slot).is_some_and(|(_, name, _)| wanted.is_none_or(|wanted| name == wanted));
            if is_it && self.names.publisher(slot) == Some(owner) {
                self.names.withdraw_this(slot);
            }
        }
    }

    /// Ends all monitors of a process that has finalized or closed its connection.
    pub(in super::super) fn forget_monitors(&mut self, job: JobId, rank: Rank) {
        if HOST_FACTS {
            let party = Party::Here(self.jobs[job.index()].spaces, rank);
            self.names.forget_process(PREFIX, party);
        }
    }

    /// A client says that it lives.
    pub(super) fn heartbeat(&mut self, conn: ConnId) {
        let Some(requester) = self.requester(conn) else { return };
        let owner = (self.jobs[requester.job.index()].spaces, requester.rank);
        for at in 0..self.limits.names {
            let Some(slot) = self.names.at(at).filter(|&slot| self.names.publisher(slot) == Some(owner))
            else {
                continue;
            };
            if let Some((mut monitor, ..)) = self.monitor(slot)
                && monitor.watched == watched::BEATS
            {
                (monitor.state, monitor.missed) = (state::SEEN, 0);
                self.store_monitor(slot, &monitor);
            }
        }
    }

    /// Checks the monitors that are due. Returns the time of the next check.
    pub(in super::super) fn check_monitors(&mut self, now: Time) -> Option<Time> {
        let mut next: Option<Time> = None;
        let end = if HOST_FACTS { self.limits.names } else { 0 };
        for at in 0..end {
            if let Some(due) = self.names.at(at).and_then(|slot| self.check_monitor(now, slot)) {
                next = Some(next.map_or(due, |next| next.min(due)));
            }
        }
        next
    }

    /// Checks a monitor if it is due. Returns the time of its next check.
    fn check_monitor(&mut self, now: Time, slot: NameRef) -> Option<Time> {
        let (mut monitor, ..) = self.monitor(slot)?;
        if Time(monitor.due) > now {
            return Some(Time(monitor.due));
        }
        // A damaged snapshot may have any period.
        monitor.due = now.after(monitor.period.clamp(1, u32::MAX.into()) * 1000).0;
        let mut is_late = false;
        if monitor.watched != watched::BEATS {
            if monitor.state & state::ASKED == 0 && self.ask_about(slot, &monitor).is_some() {
                monitor.state |= state::ASKED;
            }
        } else {
            if monitor.state & (state::SEEN | state::REPORTED) == 0 {
                monitor.missed = monitor.missed.saturating_add(1);
                is_late = monitor.missed > monitor.drops;
                monitor.state |= if is_late { state::REPORTED } else { 0 };
            }
            monitor.state &= !state::SEEN;
        }
        self.store_monitor(slot, &monitor);
        if is_late {
            self.alert(slot, &monitor);
        }
        Some(Time(monitor.due))
    }

    /// Asks the host to look at the file of a monitor, or for its report. Without room for the request the next check asks.
    fn ask_about(&mut self, slot: NameRef, monitor: &Monitor) -> Option<UpcallId> {
        let (job, rank) = self.process_of(slot)?;
        let conn = self.conn_of(slot)?;
        let is_report = monitor.watched == watched::USAGE;
        let code = monitor.code as u32 as i32;
        if is_report && !self.conns[conn.index()].events.has(code) {
            return None;
        }
        // A host that is slow leaves most upcalls to others.
        let under_way = self.upcalls.unawaited(|task| matches!(task, Task::Look(_) | Task::Report(_)));
        if under_way as u32 >= (self.limits.spawns / SHARE).max(1) {
            return None;
        }
        let Server { names, upcalls, .. } = self;
        let (_, _, rest) = Monitor::read(names.port(slot)?)?;
        let (task, request) =
            if is_report { (Task::Report(slot), rest) } else { (Task::Look(slot), &b""[..]) };
        let id = upcalls.ask((job, rank), heapless::String::new(), conn, task, request).ok()?;
        if !is_report && !upcalls.fill(id, |room| HostCall::write_file(rest, room)) {
            upcalls.free(id);
            return None;
        }
        // No reply waits for it.
        upcalls.get_mut(id)?.conn = None;
        self.events_pending = true;
        Some(id)
    }

    /// The host has answered the request of a monitor, which may have ended. Returns whether its client waits for the answer: the
    /// first one. The others are sent as events, unless they tell nothing or the last one has not been sent. A monitor whose first
    /// report fails ends.
    pub(in super::super) fn report_arrived(
        &mut self,
        report: UpcallId,
        slot: NameRef,
        rc: i32,
        text: &[u8],
    ) -> bool {
        let is_awaited = self.upcalls.get(report).is_some_and(|upcall| upcall.conn.is_some());
        let monitor = self.monitor(slot).map(|(monitor, ..)| monitor);
        if let Some(mut monitor) = monitor {
            monitor.state &= !state::ASKED;
            self.store_monitor(slot, &monitor);
            let integers = Integers::of_byte(monitor.integers as u8).unwrap_or_default();
            let tells = rc == 0 && read_report(integers, text).is_some();
            if is_awaited && !tells {
                self.names.withdraw_this(slot);
            }
            let code = (monitor.code as u32).to_le_bytes();
            if !is_awaited
                && tells
                && code.len() + text.len() <= self.upcalls.room()
                && let Some(conn) = self.conn_of(slot).filter(|&conn| self.has_room_for_event(conn))
                && let Some(upcall) = self.upcalls.get_mut(report)
            {
                upcall.conn = Some(conn);
                let stored = code.iter().chain(text).map(|&byte| (byte, 1));
                self.upcalls.finish(report, Stage::Named(0), stored);
                let answer = Response::Pmix(PmixResponse::Report(report));
                self.push_reply(conn, heapless::Vec::new(), ReplyState::Ready(answer));
                self.check_ready(conn);
                return false;
            }
        }
        if !is_awaited {
            self.free_upcall(report);
        }
        is_awaited
    }

    /// Writes the event of a report.
    pub(super) fn write_report(&self, id: ConnId, report: UpcallId, writer: &mut Writer<'_>) {
        let Some(requester) = self.requester(id) else { return };
        let stored = self.upcalls.text(report).split_first_chunk();
        let Some((&code, text)) = stored else { return };
        let job = self.jobs[requester.job.index()].name.as_bytes();
        writer.event(i32::from_le_bytes(code), job, SERVER);
        let infos = read_report(writer.integers(), text);
        writer.array(1 + infos.map_or(0, |infos| infos.len()));
        writer.not_default();
        writer.raw(infos.map_or(&[], |infos| infos.as_bytes()));
    }

    /// The host has looked at the file of a monitor, which may have ended.
    pub(in super::super) fn file_was_seen(&mut self, slot: NameRef, file: Option<FileState>) {
        let Some((mut monitor, ..)) = self.monitor(slot) else { return };
        monitor.state &= !state::ASKED;
        if let Some(file) = file {
            let file = monitor.part_of(file);
            let is_first = monitor.state & state::SEEN == 0;
            let is_alive = is_first || file != monitor.file;
            monitor.missed = if is_alive { 0 } else { monitor.missed.saturating_add(1) };
            monitor.state |= state::SEEN;
            monitor.file = file;
            if !is_alive && monitor.missed >= monitor.drops {
                self.alert(slot, &monitor);
                return self.names.withdraw_this(slot);
            }
        }
        self.store_monitor(slot, &monitor);
    }

    /// Sends the event of a monitor from its process to the others in the range.
    fn alert(&mut self, slot: NameRef, monitor: &Monitor) {
        let Some((job, rank)) = self.process_of(slot) else { return };
        let integers = Integers::of_byte(monitor.integers as u8).unwrap_or_default();
        let header = notice_header(integers, monitor.range as u8, monitor.code as u32 as i32, 0);
        // It is lost if the table has no room.
        let _ = self.store_notice(job, rank, core::iter::once(&header[..]));
    }

    /// Returns the process that asked for a monitor.
    fn process_of(&self, slot: NameRef) -> Option<(JobId, Rank)> {
        let (owner, rank) = self.names.publisher(slot)?;
        let job = self.jobs.iter().position(|job| !job.name.is_empty() && job.spaces == owner)?;
        Some((JobId(job as u32), rank))
    }

    /// Returns the connection of the process that asked for a monitor.
    fn conn_of(&self, slot: NameRef) -> Option<ConnId> {
        let (job, rank) = self.process_of(slot)?;
        self.ranks[self.jobs[job.index()].slot(rank)?].pmix
    }

    /// Returns the monitor in a slot, its name and its path.
    fn monitor(&self, slot: NameRef) -> Option<(Monitor, &[u8], &[u8])> {
        self.names.name(slot)?.strip_prefix(PREFIX)?;
        Monitor::read(self.names.port(slot)?)
    }

    fn store_monitor(&mut self, slot: NameRef, monitor: &Monitor) {
        let stored = self.names.port_mut(slot).and_then(|stored| stored.first_chunk_mut());
        if let Some(stored) = stored {
            *stored = monitor.to_bytes();
        }
    }
}

/// Returns the code of the event of a monitor: that of the client, or of the library.
fn chosen(code: i32, library: i32) -> u64 {
    u64::from(if code == status::SUCCESS { library } else { code } as u32)
}

/// Reads the answer of a host that tells something.
fn read_report(integers: Integers, text: &[u8]) -> Option<Infos<'_>> {
    let mut reader = Reader::new(integers, text);
    reader.single()?;
    let is_success = matches!(reader.int32()?, status::SUCCESS | status::PARTIAL_SUCCESS);
    reader.infos().filter(|infos| is_success && !infos.is_empty())
}
