//! Data that PMIx ranks publish under a key.

use heapless::String;

use super::super::Server;
use super::super::dispatch::Requester;
use crate::fault::Refusal;
use crate::ids::{JobId, UpcallId};
use crate::limits::Limit;
use crate::state::{ReplyState, Response};
use crate::tables::names::NameRef;
use crate::tables::upcalls::{Stage, Task};
use crate::time::Time;
use crate::wire::pmix::{self, Info, Infos, Keys, Published, Writer, status};
use crate::wire::{Integers, Op};

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
                    for info in data().take(done) {
                        let withdrawn = self.names.unpublish([PREFIX, info.key].into_iter());
                        debug_assert!(withdrawn.is_ok(), "it was published above");
                    }
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
        Ok(Response::Status(status::SUCCESS))
    }

    /// Looks up data under one key, and may wait for them.
    pub(super) fn pmix_lookup(
        &mut self,
        now: Time,
        keys: &Keys<'_>,
        infos: &Infos<'_>,
    ) -> Result<ReplyState, Refusal> {
        let name = [PREFIX, single(keys)?].into_iter();
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

    /// Withdraws data under some keys.
    pub(super) fn pmix_unpublish(&mut self, keys: &Keys<'_>) -> Result<Response, Refusal> {
        let mut result = Err(Refusal::NoName);
        for key in keys.iter() {
            result = self.names.unpublish([PREFIX, key].into_iter()).or(result);
        }
        result.map(|()| Response::Status(status::SUCCESS))
    }

    /// Writes the reply to a look-up.
    pub(super) fn write_published(&self, name: NameRef, writer: &mut Writer<'_>) {
        let found = self.names.port(name).and_then(|stored| stored.split_first_chunk::<3>());
        let owner = self.names.publisher(name).and_then(|(owner, rank)| {
            Some((self.jobs.iter().find(|job| !job.name.is_empty() && job.spaces == owner)?, rank))
        });
        match (found, owner, self.names.name(name)) {
            (Some((&[encoding, low, high], value)), Some((job, rank)), Some(key))
                if encoding == writer.integers() as u8 =>
            {
                writer.status(status::SUCCESS);
                writer.array(1);
                writer.proc(job.name.as_bytes(), rank.0);
                writer.string(key.strip_prefix(PREFIX).unwrap_or(key));
                writer.data_type(u16::from_le_bytes([low, high]));
                writer.raw(value);
            }
            _ => writer.status(status::NOT_FOUND),
        }
    }

    /// Returns whether the host keeps the names of a job.
    pub(super) fn has_shared_names(&self, job: JobId) -> bool {
        self.jobs[job.index()].remote_names
    }

    /// Publishes data at the host. A request has one datum.
    pub(super) fn share(&mut self, requester: Requester, infos: &Infos<'_>) -> Result<ReplyState, Refusal> {
        let mut data = data_of(infos);
        let (Some(info), None) = (data.next(), data.next()) else { return Err(Refusal::Unsupported) };
        let name = self.jobs[requester.job.index()].name.clone();
        self.ask_names(requester, Op::Publish, |room| {
            pmix::translate_publish(&info, (name.as_bytes(), requester.rank.0), is_once(infos), room)
        })
    }

    /// Looks up data under one key at the host.
    pub(super) fn lookup_shared(
        &mut self,
        requester: Requester,
        keys: &Keys<'_>,
        infos: &Infos<'_>,
    ) -> Result<ReplyState, Refusal> {
        let key = single(keys)?;
        self.ask_names(requester, Op::Lookup, |room| pmix::translate_lookup(key, wait_of(infos), room))
    }

    /// Withdraws data under one key at the host.
    pub(super) fn unshare(&mut self, requester: Requester, keys: &Keys<'_>) -> Result<ReplyState, Refusal> {
        let key = single(keys)?;
        self.ask_names(requester, Op::Unpublish, |room| pmix::translate_unpublish(key, room))
    }

    fn ask_names(
        &mut self,
        requester: Requester,
        op: Op,
        write: impl Fn(&mut [u8]) -> Option<usize>,
    ) -> Result<ReplyState, Refusal> {
        let parent = (requester.job, requester.rank);
        let id = self.upcalls.ask(parent, String::new(), requester.conn, Task::Name, b"")?;
        if !self.upcalls.fill(id, write) {
            let room = self.upcalls.room();
            self.upcalls.free(id);
            return Err(Refusal::Full(Limit::SpawnBytes, room as u32));
        }
        self.events_pending = true;
        Ok(ReplyState::Upcall(op, id))
    }

    /// Writes the reply to a request that the host has carried out.
    pub(super) fn write_shared(&self, op: Op, upcall: UpcallId, writer: &mut Writer<'_>) {
        let stage = self.upcalls.get(upcall).map(|slot| slot.stage);
        match (stage, op) {
            (Some(Stage::Named(0)), Op::Lookup) => {
                let found = Published::read(self.upcalls.text(upcall));
                match found.filter(|found| found.integers == writer.integers()) {
                    Some(found) => write_found(&found, writer),
                    None => writer.status(status::NOT_FOUND),
                }
            }
            (Some(Stage::Named(0)), _) => writer.status(status::SUCCESS),
            // Codes of pmi2.h.
            (Some(Stage::Named(2)), _) => writer.status(status::OUT_OF_RESOURCE),
            (Some(Stage::Named(8)), _) => writer.status(status::BAD_PARAM),
            (_, Op::Publish) => writer.status(status::EXISTS),
            _ => writer.status(status::NOT_FOUND),
        }
    }
}

fn write_found(found: &Published<'_>, writer: &mut Writer<'_>) {
    writer.status(status::SUCCESS);
    writer.array(1);
    writer.string_of(|writer| found.namespace().for_each(|byte| writer.byte(byte)));
    writer.uint32(found.rank);
    writer.string_of(|writer| found.key().for_each(|byte| writer.byte(byte)));
    writer.data_type(found.kind);
    found.value().for_each(|byte| writer.byte(byte));
}

/// Returns the data of a publication.
fn data_of<'a>(infos: &Infos<'a>) -> impl Iterator<Item = Info<'a>> + Clone + use<'a> {
    infos.iter().filter(|info| !info.key.starts_with(b"pmix."))
}

/// Returns whether the first look-up withdraws the data of a publication.
fn is_once(infos: &Infos<'_>) -> bool {
    infos.find(b"pmix.persist").and_then(|info| info.as_byte()) == Some(FIRST_READ)
}

/// Returns how long a look-up waits, in milliseconds.
fn wait_of(infos: &Infos<'_>) -> u64 {
    if infos.find(b"pmix.wait").is_none_or(|info| info.as_bool() == Some(false)) {
        return 0;
    }
    let timeout = infos.find(b"pmix.timeout").and_then(|info| info.as_u32()).filter(|&seconds| seconds > 0);
    timeout.map_or(FOREVER, |seconds| u64::from(seconds) * 1000)
}

/// Returns the key of a request with one key.
fn single<'a>(keys: &Keys<'a>) -> Result<&'a [u8], Refusal> {
    let mut keys = keys.iter();
    match (keys.next(), keys.next()) {
        (Some(key), None) => Ok(key),
        _ => Err(Refusal::Unsupported),
    }
}
