//! Data that PMIx ranks publish under a key.

use super::super::Server;
use super::super::dispatch::Requester;
use super::super::names::terms;
use super::events::range;
use crate::fault::Refusal;
use crate::ids::{ConnId, Rank};
use crate::state::{PendingReply, PmixResponse, ReplyState, Response};
use crate::tables::kvs::Spaces;
use crate::tables::names::{NameRef, Reach, Terms};
use crate::time::Time;
use crate::wire::pmix::{Info, Infos, Keys, Writer, status};
use crate::wire::{Integers, Persistence};

/// First byte of stored keys. No name of PMI begins with it, so neither protocol sees the names of the other.
const PREFIX: &[u8] = &[0];
/// Milliseconds that a look-up waits if its request has no timeout: until the end of the job.
const FOREVER: u64 = u32::MAX as u64;

/// Mark in the first byte of data that outlast the publisher's job: its name and the length of that follow the header.
const NAMED: u8 = 0x80;

/// Returns the bytes in front of a stored value: the encoding of its integers, and its type.
fn header(integers: Integers, kind: u16) -> [u8; 3] {
    let [low, high] = kind.to_le_bytes();
    [integers as u8, low, high]
}

impl Server<'_> {
    /// Publishes data for all jobs.
    pub(super) fn pmix_publish(
        &mut self,
        requester: Requester,
        integers: Integers,
        infos: &Infos<'_>,
    ) -> Result<Response, Refusal> {
        let data = || data_of(infos);
        let terms = terms_of(infos)?;
        let job = &self.jobs[requester.job.index()];
        let owner = job.spaces;
        let (mark, len) =
            if terms.outlasts_job() { (NAMED, &[job.name.len() as u8][..]) } else { (0, &[][..]) };
        let name = if len.is_empty() { "" } else { job.name.as_str() };
        for (done, Info { key, kind, value, .. }) in data().enumerate() {
            let mut header = header(integers, kind);
            header[0] |= mark;
            let stored = [&header[..], len, name.as_bytes(), value];
            let published = self.names.publish(owner, [PREFIX, key].into_iter(), stored.into_iter());
            match published {
                Ok(name) => self.names.describe(name, requester.rank, terms),
                Err(why) => {
                    data().take(done).for_each(|info| self.names.undo([PREFIX, info.key].into_iter()));
                    return Err(why);
                }
            }
        }
        for info in data() {
            if let Some(name) = self.names.lookup([PREFIX, info.key].into_iter()) {
                self.answer_lookups(name);
            }
        }
        Ok(Response::status(status::SUCCESS))
    }

    /// Looks up data under some keys, and may wait for them.
    pub(super) fn pmix_lookup(
        &mut self,
        now: Time,
        requester: Requester,
        keys: &Keys<'_>,
        infos: &Infos<'_>,
    ) -> Result<ReplyState, Refusal> {
        if keys.len() > 1 {
            return self.lookup_several(now, requester, keys, wait_of(infos));
        }
        let Some(key) = keys.iter().next() else { return Err(Refusal::MissingField) };
        let name = [PREFIX, key].into_iter();
        let who = self.reader(requester);
        if let Some(name) =
            self.names.lookup(name.clone()).filter(|name| self.names.is_readable_by(who, name.at))
        {
            self.names.take(name);
            return Ok(ReplyState::Ready(Response::Port(name)));
        }
        let wait = wait_of(infos);
        if wait == 0 {
            return Err(Refusal::NoName);
        }
        let at = self.names.wait(name)?;
        self.schedule(now, wait);
        Ok(ReplyState::Lookup { at, until: now.after(wait) })
    }

    /// Returns a process as a reader of publications.
    fn reader(&self, requester: Requester) -> (Spaces, Rank) {
        (self.jobs[requester.job.index()].spaces, requester.rank)
    }

    /// Looks up data under several keys, and waits until all are there.
    fn lookup_several(
        &mut self,
        now: Time,
        requester: Requester,
        keys: &Keys<'_>,
        wait: u64,
    ) -> Result<ReplyState, Refusal> {
        let who = self.reader(requester);
        let find = |key| {
            let name = self.names.lookup([PREFIX, key].into_iter())?;
            self.names.is_readable_by(who, name.at).then_some(name)
        };
        let all = keys.iter().all(|key| find(key).is_some());
        if wait > 0 && !all {
            return self.await_several(now, keys, wait);
        }
        let found = || keys.iter().filter_map(find).map(|name| name.at);
        if found().any(|at| at >= u64::BITS) {
            return Err(Refusal::Unsupported);
        }
        let slots = found().fold(0, |slots, at| slots | 1 << at);
        self.take_all(slots).map(ReplyState::Ready).ok_or(Refusal::NoName)
    }

    /// Lets a look-up wait for several keys. Those that are published count as awaited, too: they may be withdrawn meanwhile.
    fn await_several(&mut self, now: Time, keys: &Keys<'_>, wait: u64) -> Result<ReplyState, Refusal> {
        let mut slots = 0;
        for key in keys.iter() {
            let place = self.names.wait([PREFIX, key].into_iter());
            let why = match place {
                Ok(at) if at < u64::BITS && slots & 1 << at == 0 => {
                    slots |= 1 << at;
                    continue;
                }
                Ok(at) => {
                    self.names.leave(at);
                    // A key may be named twice.
                    if at < u64::BITS {
                        continue;
                    }
                    Refusal::Unsupported
                }
                Err(why) => why,
            };
            self.leave_all(slots);
            return Err(why);
        }
        self.schedule(now, wait);
        Ok(ReplyState::LookupAll { slots, until: now.after(wait) })
    }

    /// Returns the answer to a look-up with the data in these slots, unless there are none. Data that may be read once are taken.
    fn take_all(&mut self, slots: u64) -> Option<Response> {
        for at in slots_of(slots) {
            if let Some(name) = self.names.at(at) {
                self.names.take(name);
            }
        }
        (slots != 0).then_some(Response::Pmix(PmixResponse::Published { slots }))
    }

    /// Ends the wait of a look-up for the names in these slots.
    pub(in super::super) fn leave_all(&mut self, slots: u64) {
        slots_of(slots).for_each(|at| self.names.leave(at));
    }

    /// Returns whether the process of a connection finds the data in a slot.
    pub(in super::super) fn may_read(&self, conn: ConnId, at: u32) -> bool {
        self.requester(conn).is_some_and(|requester| self.names.is_readable_by(self.reader(requester), at))
    }

    /// Ends a look-up of the keys in these slots if all are there, or if it has `expired` with what there is.
    pub(in super::super) fn end_lookup_of_several(
        &mut self,
        conn: ConnId,
        slots: u64,
        expired: bool,
    ) -> Option<Option<Response>> {
        let found = slots_of(slots).filter(|&at| self.may_read(conn, at)).fold(0, |set, at| set | 1 << at);
        (found == slots || expired).then(|| {
            self.leave_all(slots);
            self.take_all(found)
        })
    }

    /// Withdraws data under some keys. Without keys it withdraws all data of the process.
    pub(super) fn pmix_unpublish(
        &mut self,
        requester: Requester,
        keys: &Keys<'_>,
    ) -> Result<Response, Refusal> {
        if keys.is_empty() {
            let owner = (self.jobs[requester.job.index()].spaces, requester.rank);
            self.names.forget_process(PREFIX, owner);
            return Ok(Response::status(status::SUCCESS));
        }
        let mut result = Err(Refusal::NoName);
        for key in keys.iter() {
            result = self.names.unpublish([PREFIX, key].into_iter()).or(result);
        }
        result.map(|()| Response::status(status::SUCCESS))
    }

    /// Withdraws data that may be read once, after the last reply with them was taken.
    pub(in super::super) fn name_was_read(&mut self, name: NameRef) {
        let refers = |reply: &PendingReply| match reply.state {
            ReplyState::Ready(Response::Port(other)) => other == name,
            ReplyState::Ready(Response::Pmix(PmixResponse::Published { slots })) => {
                slots_of(slots).any(|at| at == name.at)
            }
            _ => false,
        };
        if self.names.is_taken(name) && !self.conns.iter().any(|conn| conn.replies.iter().any(refers)) {
            self.names.withdraw_taken(name);
        }
    }

    /// Does so for the data in these slots.
    pub(in super::super) fn names_were_read(&mut self, slots: u64) {
        for at in slots_of(slots) {
            if let Some(name) = self.names.at(at) {
                self.name_was_read(name);
            }
        }
    }

    /// Writes the reply to a look-up.
    pub(super) fn write_published(&self, name: NameRef, writer: &mut Writer<'_>) {
        match self.published(writer.integers(), name) {
            Some(data) => {
                writer.status(status::SUCCESS);
                writer.array(1);
                data.write(writer);
            }
            None => writer.status(status::NOT_FOUND),
        }
    }

    /// Writes the reply to a look-up of several keys, with those that were found. libpmix 4 reads data after success only,
    /// and leaves missing ones without a type. Data that were withdrawn since are left out.
    pub(super) fn write_several(&self, slots: u64, writer: &mut Writer<'_>) {
        let integers = writer.integers();
        let found = || slots_of(slots).filter_map(|at| self.published(integers, self.names.at(at)?));
        writer.status(status::SUCCESS);
        writer.array(found().count() as u32);
        for data in found() {
            data.write(writer);
        }
    }

    /// Returns published data, unless the encoding of their integers is another one.
    fn published(&self, integers: Integers, name: NameRef) -> Option<Published<'_>> {
        let (&[encoding, low, high], rest) = self.names.port(name)?.split_first_chunk::<3>()?;
        let (owner, rank) = self.names.publisher(name)?;
        let (job, value) = if encoding & NAMED == 0 {
            let job = self.jobs.iter().find(|job| !job.name.is_empty() && job.spaces == owner)?;
            (job.name.as_bytes(), rest)
        } else {
            let (&len, rest) = rest.split_first()?;
            rest.split_at_checked(len.into())?
        };
        let key = self.names.name(name)?.strip_prefix(PREFIX)?;
        let kind = u16::from_le_bytes([low, high]);
        (encoding & !NAMED == integers as u8).then_some(Published { job, rank, key, kind, value })
    }
}

/// Published data with their publisher.
struct Published<'a> {
    job: &'a [u8],
    rank: Rank,
    key: &'a [u8],
    kind: u16,
    value: &'a [u8],
}

impl Published<'_> {
    fn write(&self, writer: &mut Writer<'_>) {
        writer.proc(self.job, self.rank.0);
        writer.string(self.key);
        writer.data_type(self.kind);
        writer.raw(self.value);
    }
}

/// Returns the slots in a bit set.
fn slots_of(slots: u64) -> impl Iterator<Item = u32> + Clone {
    (0..u64::BITS).filter(move |at| slots & 1 << at != 0)
}

/// Returns whether the infos of a look-up let it wait for data.
fn waits(infos: &Infos<'_>) -> bool {
    infos.find(b"pmix.wait").is_some_and(|info| info.as_bool() != Some(false))
}

/// Returns the data of a publication.
pub(super) fn data_of<'a>(infos: &Infos<'a>) -> impl Iterator<Item = Info<'a>> + Clone + use<'a> {
    infos.iter().filter(|info| !info.key.starts_with(b"pmix."))
}

/// Returns what ends the data of a publication.
pub(super) fn persistence_of(infos: &Infos<'_>) -> Persistence {
    match infos.find(b"pmix.persist").and_then(|info| info.as_byte()) {
        Some(0) => Persistence::Indefinite,
        Some(1) => Persistence::FirstRead,
        Some(2) => Persistence::Process,
        Some(4) => Persistence::Session,
        _ => Persistence::Job,
    }
}

/// Returns the terms of a publication.
fn terms_of(infos: &Infos<'_>) -> Result<Terms, Refusal> {
    let reach = match infos.find(b"pmix.range").and_then(|info| info.as_byte()) {
        Some(range::JOB) => Reach::Job,
        // Data for the host are not kept from their publisher.
        Some(range::SENDER | range::MANAGER) => Reach::Process,
        // A publication has no list of processes.
        Some(range::CUSTOM) => return Err(Refusal::Unsupported),
        _ => Reach::All,
    };
    let persistence = match persistence_of(infos) {
        // Nobody finds them after the end of the job.
        Persistence::Session | Persistence::Indefinite if reach != Reach::All => Persistence::Job,
        persistence => persistence,
    };
    Ok(terms(persistence, reach))
}

/// Returns how long a look-up waits, in milliseconds.
pub(super) fn wait_of(infos: &Infos<'_>) -> u64 {
    if !waits(infos) {
        return 0;
    }
    infos.timeout().unwrap_or(FOREVER)
}
