//! Data that PMIx ranks publish under a key.

use super::super::Server;
use super::super::dispatch::Requester;
use crate::fault::Refusal;
use crate::ids::Rank;
use crate::state::{PendingReply, PmixResponse, ReplyState, Response};
use crate::tables::names::NameRef;
use crate::time::Time;
use crate::wire::Integers;
use crate::wire::pmix::{Info, Infos, Keys, Writer, status};

/// First byte of stored keys. No name of PMI begins with it, so neither protocol sees the names of the other.
const PREFIX: &[u8] = &[0];
/// Persistence of data that the first look-up removes.
const FIRST_READ: u8 = 1;
/// Milliseconds that a look-up waits if its request has no timeout: until the end of the job.
const FOREVER: u64 = u32::MAX as u64;

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
        let once = is_once(infos);
        let owner = self.jobs[requester.job.index()].spaces;
        for (done, Info { key, kind, value, .. }) in data().enumerate() {
            let stored = header(integers, kind);
            let published =
                self.names.publish(owner, [PREFIX, key].into_iter(), [&stored[..], value].into_iter());
            match published {
                Ok(name) => self.names.describe(name, requester.rank, once),
                Err(why) => {
                    data().take(done).for_each(|info| self.names.undo([PREFIX, info.key].into_iter()));
                    return Err(why);
                }
            }
        }
        for info in data() {
            if let Some(name) = self.names.lookup([PREFIX, info.key].into_iter())
                && self.names.is_awaited(name)
            {
                self.names.take(name);
                self.answer_lookups(name);
            }
        }
        Ok(Response::status(status::SUCCESS))
    }

    /// Looks up data under one key, and may wait for them. A look-up of several keys does not wait.
    pub(super) fn pmix_lookup(
        &mut self,
        now: Time,
        keys: &Keys<'_>,
        infos: &Infos<'_>,
    ) -> Result<ReplyState, Refusal> {
        if keys.len() > 1 {
            return self.lookup_several(keys, waits(infos)).map(ReplyState::Ready);
        }
        let Some(key) = keys.iter().next() else { return Err(Refusal::MissingField) };
        let name = [PREFIX, key].into_iter();
        if let Some(name) = self.names.lookup(name.clone()) {
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

    /// Looks up data under several keys. Refuses to wait for missing ones.
    fn lookup_several(&mut self, keys: &Keys<'_>, waits: bool) -> Result<Response, Refusal> {
        let find = |key| self.names.lookup([PREFIX, key].into_iter());
        let all = keys.iter().all(|key| find(key).is_some());
        if waits && !all {
            return Err(Refusal::Unsupported);
        }
        let found = || keys.iter().filter_map(find).map(|name| name.at);
        if found().any(|at| at >= u64::BITS) {
            return Err(Refusal::Unsupported);
        }
        let slots = found().fold(0, |slots, at| slots | 1 << at);
        if slots == 0 {
            return Err(Refusal::NoName);
        }
        for at in slots_of(slots) {
            if let Some(name) = self.names.at(at) {
                self.names.take(name);
            }
        }
        Ok(Response::Pmix(PmixResponse::Published { slots }))
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
        let (&[encoding, low, high], value) = self.names.port(name)?.split_first_chunk::<3>()?;
        let (owner, rank) = self.names.publisher(name)?;
        let job = self.jobs.iter().find(|job| !job.name.is_empty() && job.spaces == owner)?;
        let key = self.names.name(name)?.strip_prefix(PREFIX)?;
        let kind = u16::from_le_bytes([low, high]);
        (encoding == integers as u8).then_some(Published { job: &job.name, rank, key, kind, value })
    }
}

/// Published data with their publisher.
struct Published<'a> {
    job: &'a str,
    rank: Rank,
    key: &'a [u8],
    kind: u16,
    value: &'a [u8],
}

impl Published<'_> {
    fn write(&self, writer: &mut Writer<'_>) {
        writer.proc(self.job.as_bytes(), self.rank.0);
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

/// Returns whether the first look-up withdraws the data of a publication.
pub(super) fn is_once(infos: &Infos<'_>) -> bool {
    infos.find(b"pmix.persist").and_then(|info| info.as_byte()) == Some(FIRST_READ)
}

/// Returns how long a look-up waits, in milliseconds.
pub(super) fn wait_of(infos: &Infos<'_>) -> u64 {
    if !waits(infos) {
        return 0;
    }
    infos.timeout().unwrap_or(FOREVER)
}
