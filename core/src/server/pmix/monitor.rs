//! Monitors of PMIx clients: their own heartbeats, and files that change while their writer lives.
//!
//! A monitor takes a slot in the table of names, as a notice does. Its period, its counts and what was seen last are in front of
//! its name and of the path of its file. The host is asked to look at a file ([`HostCall::File`]), so the server counts alone.

use super::super::Server;
use super::super::dispatch::Requester;
use super::events::notice_header;
use crate::fault::Refusal;
use crate::ids::{ConnId, JobId, Rank, UpcallId};
use crate::limits::{HOST_FACTS, Limit};
use crate::state::{PmixResponse, ReplyState, Response};
use crate::tables::names::{NameRef, Reach, Terms};
use crate::tables::upcalls::Task;
use crate::time::Time;
use crate::wire::pmix::{FileState, HostCall, HostQuery, Info, Infos, Integers, event, status};
use crate::wire::{Op, Persistence};

/// First byte of the names of monitors. No published name begins with it.
const PREFIX: &[u8] = &[2];
/// Share of the table of names that monitors may take.
const SHARE: u32 = 4;
/// Range of an alert whose request names none: the job of the process.
const RANGE_JOB: u8 = 3;

/// Ends monitors.
const CANCEL: &[u8] = b"pmix.monitor.cancel";
/// Monitors heartbeats of the process.
const HEARTBEAT: &[u8] = b"pmix.monitor.mbeat";
/// Monitors a file.
const FILE: &[u8] = b"pmix.monitor.fmon";
/// Asks the host what processes and hosts use.
const PROCESSES: &[u8] = b"pmix.monitor.presuse";
const NODES: &[u8] = b"pmix.monitor.ndresuse";
/// Option for a report at regular times.
const RATE: &[u8] = b"pmix.monitor.resrate";
/// Is a heartbeat.
const BEAT: &[u8] = b"pmix.monitor.beat";

/// Bits of [`Monitor::watched`]: what is a sign of life.
mod watched {
    pub(super) const BEATS: u64 = 1;
    pub(super) const SIZE: u64 = 2;
    pub(super) const ACCESS: u64 = 4;
    pub(super) const CHANGE: u64 = 8;
}

/// Bits of [`Monitor::state`].
mod state {
    /// A heartbeat has come since the last check, or the file has been looked at.
    pub(super) const SEEN: u64 = 1;
    /// Missing heartbeats have been reported, and none has come since.
    pub(super) const REPORTED: u64 = 2;
    /// The host looks at the file.
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
            HEARTBEAT => self.start_monitor(now, requester, integers, code, infos, b""),
            FILE if asks => {
                let path = monitor.as_string().unwrap_or_default();
                self.start_monitor(now, requester, integers, code, infos, path)
            }
            CANCEL => {
                self.end_monitors(requester, monitor.as_string());
                Ok(ReplyState::Ready(Response::Pmix(PmixResponse::NoInfos)))
            }
            BEAT => {
                self.heartbeat(requester.conn);
                Ok(ReplyState::Ready(Response::Pmix(PmixResponse::NoInfos)))
            }
            PROCESSES | NODES if asks && infos.find(RATE).is_none() => {
                self.ask_host(requester, Op::GetJobAttr, |_, room| {
                    HostQuery::write_one(integers, monitor, infos, room)
                })
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
            true => (number(b"pmix.monitor.ftime"), number(b"pmix.monitor.fdrop"), event::FILE_ALERT),
            false => (number(b"pmix.monitor.btime"), number(b"pmix.monitor.bdrop"), event::HEARTBEAT_ALERT),
        };
        let bit = |key, bit| if infos.is_set(key) { bit } else { 0 };
        let watched = match of_file {
            true => {
                bit(b"pmix.monitor.fsize", watched::SIZE)
                    | bit(b"pmix.monitor.faccess", watched::ACCESS)
                    | bit(b"pmix.monitor.fmod", watched::CHANGE)
            }
            false => watched::BEATS,
        };
        if period == 0 || watched == 0 {
            return Ok(ReplyState::Ready(Response::status(status::BAD_PARAM)));
        }
        let range = infos.find(b"pmix.range").and_then(|info| info.as_byte()).unwrap_or(RANGE_JOB);
        let name = infos.find(b"pmix.monitor.id").and_then(|info| info.as_string()).unwrap_or_default();
        let len = u8::try_from(name.len()).map_err(|_| Refusal::NameLength)?;
        let wait = u64::from(period) * 1000;
        let monitor = Monitor {
            watched,
            integers: integers as u64,
            range: range.into(),
            code: u64::from(if code == status::SUCCESS { alert } else { code } as u32),
            period: period.into(),
            drops: drops.into(),
            due: now.after(wait).0,
            ..Monitor::default()
        };
        if self.names.marked(PREFIX[0]).count() as u32 >= self.limits.names / SHARE {
            return Err(Refusal::Full(Limit::Names, self.limits.names));
        }
        let free = |number: &u32| self.names.lookup([PREFIX, &number.to_be_bytes()].into_iter()).is_none();
        let Some(number) = (0..=self.limits.names).find(free) else { return Err(Refusal::NameTaken) };
        let owner = self.jobs[requester.job.index()].spaces;
        let stored = [&monitor.to_bytes()[..], &[len], name, path];
        let slot =
            self.names.publish(owner, [PREFIX, &number.to_be_bytes()].into_iter(), stored.into_iter())?;
        let terms = Terms { persistence: Persistence::Process, reach: Reach::All };
        self.names.describe(slot, requester.rank, terms);
        self.schedule(now, wait);
        Ok(ReplyState::Ready(Response::Pmix(PmixResponse::NoInfos)))
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
            self.names.forget_process(PREFIX, (self.jobs[job.index()].spaces, rank));
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
            if monitor.state & state::ASKED == 0 && self.ask_for_file(slot).is_some() {
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

    /// Asks the host to look at the file of a monitor. Without room for the request the next check asks.
    fn ask_for_file(&mut self, slot: NameRef) -> Option<UpcallId> {
        let (job, rank) = self.process_of(slot)?;
        let conn = self.ranks[self.jobs[job.index()].slot(rank)?].pmix?;
        let Server { names, upcalls, .. } = self;
        let (_, _, path) = Monitor::read(names.port(slot)?)?;
        let id = upcalls.ask((job, rank), heapless::String::new(), conn, Task::Look(slot), b"").ok()?;
        if !upcalls.fill(id, |room| HostCall::write_file(path, room)) {
            upcalls.free(id);
            return None;
        }
        // No reply waits for it.
        upcalls.get_mut(id)?.conn = None;
        self.events_pending = true;
        Some(id)
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
