//! Data that PMIx ranks publish under a key.

use super::super::Server;
use super::super::dispatch::Requester;
use super::events::range;
use crate::fault::Refusal;
use crate::ids::{ConnId, Rank};
use crate::limits::HOST_FACTS;
use crate::state::{PendingReply, PmixResponse, ReplyState, Response};
use crate::tables::kvs::Pieces;
use crate::tables::names::{End, NameRef, Party, Reach, Reader, Remote, Terms, mark};
use crate::time::Time;
use crate::wire::pmix::{self, Info, Infos, Keys, Writer, keys, status};
use crate::wire::{Integers, Persistence};

const _: () = assert!(!mark::is_reserved(Some(&pmix::SHARED)));

/// First byte of stored keys. Neither protocol sees the names of the other.
const PREFIX: &[u8] = &[mark::DATA];
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
        (user, infos): (u32, &Infos<'_>),
    ) -> Result<Response, Refusal> {
        let (persistence, reach) = terms_of(user, infos)?;
        let terms = terms(persistence, reach);
        let job = &self.jobs[requester.job.index()];
        let owner = (job.spaces, requester.rank);
        let (mark, len) =
            if terms.outlasts_job() { (NAMED, &[job.name.len() as u8][..]) } else { (0, &[][..]) };
        let name = if len.is_empty() { "" } else { job.name.as_str() };
        let first = self.names.publish_all(data_of(infos), name_of, |names, info| {
            let mut header = header(integers, info.kind);
            header[0] |= mark;
            let stored = [&header[..], len, name.as_bytes(), info.value];
            names.publish(owner, name_of(&info), stored.into_iter(), terms)
        })?;
        self.answer_lookups_of_all(first, data_of(infos).map(|info| name_of(&info)));
        Ok(Response::status(status::SUCCESS))
    }

    /// Answers the look-ups that wait for data under these names, which the publisher of the `first` has published.
    pub(in super::super) fn answer_lookups_of_all<'n>(
        &mut self,
        first: Option<NameRef>,
        names: impl Iterator<Item = impl Pieces<'n>>,
    ) {
        let Some(first) = first else { return };
        for name in names {
            if let Some(name) = self.names.beside(first, name) {
                self.answer_lookups(name);
            }
        }
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
            return self.lookup_several(now, requester, keys, infos);
        }
        let Some(key) = keys.iter().next() else { return Err(Refusal::MissingField) };
        let name = [PREFIX, key].into_iter();
        let range = range_of(infos);
        if let Some(name) = self.names.find_for(name.clone(), self.reader(requester, range)) {
            self.names.take(name);
            return Ok(ReplyState::Ready(Response::Port(name)));
        }
        let wait = wait_of(infos);
        if wait == 0 {
            return Err(Refusal::NoName);
        }
        let at = self.names.wait(name, alike(&range))?;
        self.schedule(now, wait);
        Ok(ReplyState::Lookup { at, until: now.after(wait) })
    }

    /// Returns a process that looks for data in a range.
    fn reader(&self, requester: Requester, range: u8) -> Reader<'static> {
        let party = Party::Here(self.jobs[requester.job.index()].spaces, requester.rank);
        (party, if HOST_FACTS { reach_of(range) } else { Reach::All })
    }

    /// Returns for whom a look-up of a connection waits in a slot.
    fn reader_at(&self, conn: ConnId, at: u32) -> Option<Reader<'_>> {
        let alike = if HOST_FACTS { self.names.alike(at) } else { &[] };
        match alike {
            [] => Some(self.reader(self.requester(conn)?, range::GLOBAL)),
            &[range] => Some(self.reader(self.requester(conn)?, range)),
            text => remote(text).ok(),
        }
    }

    /// Looks up data under several keys, and waits until all are there.
    fn lookup_several(
        &mut self,
        now: Time,
        requester: Requester,
        keys: &Keys<'_>,
        infos: &Infos<'_>,
    ) -> Result<ReplyState, Refusal> {
        let (range, wait) = (range_of(infos), wait_of(infos));
        let who = self.reader(requester, range);
        let find = |key| self.names.find_for([PREFIX, key].into_iter(), who);
        let all = keys.iter().all(|key| find(key).is_some());
        if wait > 0 && !all {
            return self.await_several(now, (keys, range), wait);
        }
        let found = || keys.iter().filter_map(find).map(|name| name.at);
        if found().any(|at| at >= u64::BITS) {
            return Err(Refusal::Unsupported);
        }
        let slots = found().fold(0, |slots, at| slots | 1 << at);
        self.take_all(slots).map(ReplyState::Ready).ok_or(Refusal::NoName)
    }

    /// Lets a look-up wait for several keys. Those that are published count as awaited, too: they may be withdrawn meanwhile.
    fn await_several(
        &mut self,
        now: Time,
        (keys, range): (&Keys<'_>, u8),
        wait: u64,
    ) -> Result<ReplyState, Refusal> {
        let mut slots = 0;
        for key in keys.iter() {
            let place = self.names.wait([PREFIX, key].into_iter(), alike(&range));
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

    /// Returns whether the look-up of a connection that waits in one slot finds the data in another one.
    pub(in super::super) fn may_read(&self, conn: ConnId, waits: u32, at: u32) -> bool {
        self.reader_at(conn, waits).is_some_and(|reader| self.names.is_readable_by(reader, at))
    }

    /// Ends a look-up of the keys in these slots if all are there, or if it has `expired` with what there is.
    pub(in super::super) fn end_lookup_of_several(
        &mut self,
        conn: ConnId,
        slots: u64,
        expired: bool,
    ) -> Option<Option<Response>> {
        let find = |at| {
            let found = self.names.nearest(at as usize, self.reader_at(conn, at)?)?;
            (found.at < u64::BITS).then_some(found.at)
        };
        let found = slots_of(slots).filter_map(find).fold(0u64, |set, at| set | 1 << at);
        (found.count_ones() == slots.count_ones() || expired).then(|| {
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
        let (party, _) = self.reader(requester, range::GLOBAL);
        if keys.is_empty() {
            self.names.forget_process(PREFIX, party);
            return Ok(Response::status(status::SUCCESS));
        }
        let mut result = Err(Refusal::NoName);
        for key in keys.iter() {
            result = self.names.unpublish_for([PREFIX, key].into_iter(), party).or(result);
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

/// Returns the name of data.
fn name_of<'a>(info: &Info<'a>) -> core::array::IntoIter<&'a [u8], 2> {
    [PREFIX, info.key].into_iter()
}

/// Returns the slots in a bit set.
fn slots_of(slots: u64) -> impl Iterator<Item = u32> + Clone {
    (0..u64::BITS).filter(move |at| slots & 1 << at != 0)
}

/// Returns whether the infos of a look-up let it wait for data.
fn waits(infos: &Infos<'_>) -> bool {
    infos.find(keys::WAIT).is_some_and(|info| info.as_bool() != Some(false))
}

/// Returns the data of a publication.
pub(super) fn data_of<'a>(infos: &Infos<'a>) -> impl Iterator<Item = Info<'a>> + Clone + use<'a> {
    infos.iter().filter(|info| !info.key.starts_with(b"pmix."))
}

/// Returns the process of another server that a name service is asked for, and the range in which it looks.
pub(in super::super) fn remote(text: &[u8]) -> Result<Reader<'_>, Refusal> {
    let (party, range) = pmix::Party::read(text).ok_or(Refusal::BadField)?;
    Ok((Party::Remote(known(party)), reach_of(range)))
}

/// Returns the publisher of a name at a name service, if it is a PMIx client of another server.
#[cfg(feature = "cluster")]
pub(in super::super) fn publisher_in<'a>(name: &[u8], port: &'a [u8]) -> Option<Remote<'a>> {
    let data = if name.first() == Some(&pmix::SHARED) { pmix::Published::read(port) } else { None };
    data.map(|data| known(data.publisher))
}

fn known(party: pmix::Party<'_>) -> Remote<'_> {
    Remote { job: party.namespace, rank: party.rank, host: party.host }
}

/// Returns the reach of a range (`pmix_data_range_t`). Clients are not the launcher, and a custom range lists users.
pub(in super::super) fn reach_of(range: u8) -> Reach {
    match range {
        range::LOCAL => Reach::Host,
        range::JOB => Reach::Job,
        range::SENDER => Reach::Process,
        range::MANAGER | range::CUSTOM => Reach::Nobody,
        _ => Reach::All,
    }
}

/// Returns the range that a request names (`pmix_data_range_t`).
pub(super) fn range_of(infos: &Infos<'_>) -> u8 {
    infos.find(keys::RANGE).and_then(|info| info.as_byte()).unwrap_or(range::SESSION)
}

/// Returns what distinguishes look-ups in a range from others of the same key.
fn alike(range: &u8) -> &[u8] {
    if !HOST_FACTS || reach_of(*range) == Reach::All { &[] } else { core::slice::from_ref(range) }
}

/// Returns what ends the data of a publication, and who finds them.
pub(super) fn terms_of(user: u32, infos: &Infos<'_>) -> Result<(Persistence, Reach), Refusal> {
    let persistence = match infos.find(keys::PERSISTENCE).and_then(|info| info.as_byte()) {
        Some(0) => Persistence::Indefinite,
        Some(1) => Persistence::FirstRead,
        Some(2) => Persistence::Process,
        Some(4) => Persistence::Session,
        _ => Persistence::Job,
    };
    let range = range_of(infos);
    let reach = match permitted(user, infos)? {
        Some(false) => Reach::Nobody,
        Some(true) if range == range::CUSTOM => Reach::All,
        _ => reach_of(range),
    };
    // Nobody finds them after the end of the job.
    let ends = matches!(reach, Reach::Job | Reach::Process | Reach::Nobody);
    match persistence {
        Persistence::Session | Persistence::Indefinite if ends => Ok((Persistence::Job, reach)),
        persistence => Ok((persistence, reach)),
    }
}

/// Returns whether the list of users that may look up data has this one, that of all clients. `None` without a list.
fn permitted(user: u32, infos: &Infos<'_>) -> Result<Option<bool>, Refusal> {
    if !HOST_FACTS {
        return if range_of(infos) == range::CUSTOM { Err(Refusal::Unsupported) } else { Ok(None) };
    }
    let inner = infos.find(keys::ACCESS_PERMISSIONS).and_then(|info| info.as_infos());
    let find = |key| infos.find(key).or_else(|| inner?.find(key));
    // The requests of clients name no group.
    if find(b"pmix.agids").is_some() {
        return Err(Refusal::Unsupported);
    }
    Ok(find(keys::ACCESS_USERIDS).map(|users| {
        let mut listed = users.array(pmix::kind::UINT32, pmix::Reader::uint32);
        users.as_u32() == Some(user)
            || listed.as_mut().is_some_and(|users| users.any(|listed| listed == user))
    }))
}

/// Returns how long a look-up waits, in milliseconds.
pub(super) fn wait_of(infos: &Infos<'_>) -> u64 {
    if !waits(infos) {
        return 0;
    }
    infos.timeout().unwrap_or(FOREVER)
}

/// Returns the terms of a publication with this persistence. A session is that of the server.
pub(in super::super) fn terms(persistence: Persistence, reach: Reach) -> Terms {
    let end = match persistence {
        Persistence::Job | Persistence::FirstRead => End::Job,
        Persistence::Process => End::Process,
        Persistence::Session | Persistence::Indefinite => End::Never,
    };
    Terms { once: persistence == Persistence::FirstRead, end, reach }
}
