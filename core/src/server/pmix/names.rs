//! Data that PMIx ranks publish under a key.

use super::super::Server;
use super::super::dispatch::Requester;
use crate::fault::Refusal;
use crate::state::{PendingReply, ReplyState, Response};
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
        let persistence = infos.find(b"pmix.persist").and_then(|info| info.as_byte());
        let data = || infos.iter().filter(|info| !info.key.starts_with(b"pmix."));
        let owner = self.jobs[requester.job.index()].spaces;
        for (done, Info { key, kind, value, .. }) in data().enumerate() {
            let stored = header(integers, kind);
            let published =
                self.names.publish(owner, [PREFIX, key].into_iter(), [&stored[..], value].into_iter());
            match published {
                Ok(name) => self.names.describe(name, requester.rank, persistence == Some(FIRST_READ)),
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
        let mut keys = keys.iter();
        let (Some(key), None) = (keys.next(), keys.next()) else { return Err(Refusal::Unsupported) };
        let name = [PREFIX, key].into_iter();
        if let Some(name) = self.names.lookup(name.clone()) {
            self.names.take(name);
            return Ok(ReplyState::Ready(Response::Port(name)));
        }
        if infos.find(b"pmix.wait").is_none_or(|info| info.as_bool() == Some(false)) {
            return Err(Refusal::NoName);
        }
        let timeout =
            infos.find(b"pmix.timeout").and_then(|info| info.as_u32()).filter(|&seconds| seconds > 0);
        let wait = timeout.map_or(FOREVER, |seconds| u64::from(seconds) * 1000);
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

    /// Withdraws data that may be read once, after the last reply with them was taken.
    pub(in super::super) fn name_was_read(&mut self, name: NameRef) {
        let refers = |reply: &PendingReply| reply.state == ReplyState::Ready(Response::Port(name));
        if self.names.is_taken(name) && !self.conns.iter().any(|conn| conn.replies.iter().any(refers)) {
            self.names.withdraw_taken(name);
        }
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
}
