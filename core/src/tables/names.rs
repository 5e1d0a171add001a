//! Published names, and names that look-ups wait for.

use heapless::Vec;
use serde::{Deserialize, Serialize};

use super::kvs::{Pieces, Spaces};
use crate::fault::Refusal;
use crate::ids::Rank;
use crate::limits::{Limit, NAME_MAX, PORT_MAX};

/// Whether a name is published once in each range. A board has it once.
const RANGES: bool = cfg!(all(feature = "pmix", feature = "cluster"));

/// First bytes of the names of what PMIx keeps in the table. One more begins the names that a server of other jobs asks for.
/// Clients of PMI use no name that begins with one of these.
#[cfg(feature = "pmix")]
pub(crate) mod mark {
    /// Data that PMIx ranks publish.
    pub(crate) const DATA: u8 = 0;
    /// Notices.
    pub(crate) const NOTICE: u8 = 1;
    /// Monitors.
    pub(crate) const MONITOR: u8 = 3;

    /// Returns whether a name that begins with this byte is one that only the server gives.
    #[inline(never)]
    pub(crate) const fn is_reserved(first: Option<&u8>) -> bool {
        matches!(first, Some(&(DATA | NOTICE | MONITOR)))
    }
}

/// Slot of a name: published, awaited by look-ups, or free.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Name {
    name: Vec<u8, NAME_MAX, u8>,
    /// Port. Of a name that is awaited and not published, what distinguishes the look-ups that wait.
    port: Vec<u8, PORT_MAX, u16>,
    /// Spaces of the job that published it.
    owner: Option<Spaces>,
    /// Rank that published it, if it is a PMIx client.
    publisher: Rank,
    /// How often it may be looked up.
    access: Access,
    /// Who may look it up.
    reach: Reach,
    /// What ends it.
    end: End,
    /// Number of look-ups that wait for it.
    waiting: u32,
    /// Number of the publication, which distinguishes uses of the same slot.
    serial: u32,
}

impl Name {
    /// Unused slot.
    pub(crate) const EMPTY: Name = Name {
        name: Vec::new(),
        port: Vec::new(),
        owner: None,
        publisher: Rank(0),
        access: Access::Any,
        reach: Reach::All,
        end: End::Job,
        waiting: 0,
        serial: 0,
    };

    /// Returns whether a look-up finds it.
    fn is_readable(&self) -> bool {
        self.owner.is_some() && self.access != Access::Taken
    }

    /// Returns whether the slot is free.
    pub(crate) fn is_free(&self) -> bool {
        self.owner.is_none() && self.waiting == 0
    }
}

/// Who may look up a publication, from the most to the fewest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Reach {
    /// All processes.
    #[default]
    All,
    /// Those on the publisher's host.
    Host,
    /// Those of the publisher's job.
    Job,
    /// The publisher.
    Process,
    /// None.
    Nobody,
}

#[cfg(feature = "pmix")]
impl Reach {
    /// Returns whether a process is in reach.
    fn admits(self, relation: Relation) -> bool {
        match self {
            Reach::All => true,
            Reach::Host => relation.host,
            Reach::Job => relation.job,
            Reach::Process => relation.process,
            Reach::Nobody => false,
        }
    }
}

/// Process that publishes data or looks for some.
#[cfg(feature = "pmix")]
#[derive(Clone, Copy)]
pub(crate) enum Party<'a> {
    /// Of this server, whose ranks share a host.
    Here(Spaces, Rank),
    /// Of another server, for which a name service is asked.
    Remote(Remote<'a>),
}

/// Process of another server.
#[cfg(feature = "pmix")]
#[derive(Clone, Copy)]
pub(crate) struct Remote<'a> {
    /// Its job.
    pub(crate) job: &'a [u8],
    /// Its rank.
    pub(crate) rank: u32,
    /// Number of its host.
    pub(crate) host: u32,
}

/// Reads the publisher of a name and its port, if it is of another server.
#[cfg(all(feature = "pmix", feature = "cluster"))]
pub(crate) type PublisherIn = for<'a> fn(&[u8], &'a [u8]) -> Option<Remote<'a>>;

#[cfg(feature = "pmix")]
impl Party<'_> {
    fn relation_to(self, other: Party<'_>) -> Relation {
        match (self, other) {
            (Party::Here(job, rank), Party::Here(of, other)) => {
                Relation { host: true, job: job == of, process: job == of && rank == other }
            }
            (Party::Remote(own), Party::Remote(other)) if RANGES => Relation {
                host: own.host == other.host,
                job: own.job == other.job,
                process: own.job == other.job && own.rank == other.rank,
            },
            _ => Relation::default(),
        }
    }
}

/// Process that looks for data, and the range in which it looks.
#[cfg(feature = "pmix")]
pub(crate) type Reader<'a> = (Party<'a>, Reach);

/// What two processes have in common.
#[cfg(feature = "pmix")]
#[derive(Clone, Copy, Default)]
struct Relation {
    host: bool,
    job: bool,
    process: bool,
}

/// How long a publication lasts, and for whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    /// It may be looked up once.
    pub(crate) once: bool,
    /// What ends it.
    pub(crate) end: End,
    /// Who may look it up.
    pub(crate) reach: Reach,
}

impl Terms {
    /// For all, until the end of the job.
    pub(crate) const JOB: Terms = Terms { once: false, end: End::Job, reach: Reach::All };

    /// Returns whether the publication goes on after the end of its publisher's job.
    #[cfg(feature = "pmix")]
    pub(crate) fn outlasts_job(&self) -> bool {
        self.end == End::Never
    }
}

/// What ends a publication.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum End {
    /// The end of the job that published it.
    #[default]
    Job,
    /// The end of the process that published it.
    Process,
    /// Its withdrawal.
    Never,
    /// That of the job, or want of room for something else.
    Room,
}

/// Readers of a publication.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
enum Access {
    /// All.
    #[default]
    Any,
    /// The first one.
    First,
    /// None: the first one has been found, and its reply is pending.
    Taken,
}

/// Reference to a publication.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NameRef {
    /// Index of the slot.
    pub(crate) at: u32,
    serial: u32,
}

/// Names of a server.
#[derive(Debug)]
pub(crate) struct Names<'s> {
    slots: &'s mut [Name],
    #[cfg(all(feature = "pmix", feature = "cluster"))]
    publisher_in: PublisherIn,
}

impl<'s> Names<'s> {
    /// Creates a table in unused slots.
    pub(crate) fn new(slots: &'s mut [Name]) -> Names<'s> {
        Names {
            slots,
            #[cfg(all(feature = "pmix", feature = "cluster"))]
            publisher_in: |_, _| None,
        }
    }

    /// Has names of processes of other servers, whose publishers `publisher_in` reads.
    #[cfg(all(feature = "pmix", feature = "cluster"))]
    pub(crate) fn with_remote(self, publisher_in: PublisherIn) -> Names<'s> {
        Names { publisher_in, ..self }
    }

    /// Returns the process that published a name.
    #[cfg(feature = "pmix")]
    fn party<'n>(&self, slot: &'n Name) -> Option<Party<'n>> {
        #[cfg(feature = "cluster")]
        if let Some(remote) = (self.publisher_in)(&slot.name, &slot.port) {
            return Some(Party::Remote(remote));
        }
        Some(Party::Here(slot.owner?, slot.publisher))
    }

    /// Returns what the publisher has in common with a process.
    #[cfg(feature = "pmix")]
    fn relation(&self, slot: &Name, other: Party<'_>) -> Relation {
        self.party(slot).map_or(Relation::default(), |own| own.relation_to(other))
    }

    /// Returns whether two publications are for the same processes.
    #[cfg(feature = "pmix")]
    fn overlap(&self, one: &Name, other: &Name) -> bool {
        self.party(other).filter(|_| one.reach == other.reach).is_some_and(|party| {
            let relation = self.relation(one, party);
            one.reach.admits(relation) || relation.process
        })
    }

    /// Returns whether a process may look up a publication, of those in a range around the process.
    #[cfg(feature = "pmix")]
    fn is_for(&self, slot: &Name, (party, range): Reader<'_>) -> bool {
        let relation = self.relation(slot, party);
        slot.reach.admits(relation) && (!RANGES || range.admits(relation))
    }

    /// Publishes a name for a process.
    ///
    /// # Errors
    /// [`Refusal::NameLength`], [`Refusal::NameTaken`] if the name is published in the same range, or [`Refusal::Full`]. Nothing
    /// is changed then, but that a notice may have given way.
    pub(crate) fn publish<'a, 'b>(
        &mut self,
        publisher: (Spaces, Rank),
        name: impl Pieces<'a>,
        port: impl Pieces<'b>,
        terms: Terms,
    ) -> Result<NameRef, Refusal> {
        if length(port.clone()) > PORT_MAX {
            return Err(Refusal::NameLength);
        }
        let first = self.find(name.clone());
        let vacant = self.fitting(first, |slot| slot.owner.is_none() && slot.port.is_empty());
        let at = match vacant {
            Some(at) => at,
            None if !RANGES && first.is_some() => return Err(Refusal::NameTaken),
            None => {
                let taken = self.fitting(first, |slot| slot.owner.is_some()).is_some();
                self.place(name).map_err(|why| if taken { Refusal::NameTaken } else { why })?
            }
        };
        fill(&mut self.slots[at].port, port);
        self.begin(at, publisher, terms)
    }

    /// Publishes the name and port in a slot.
    fn begin(&mut self, at: usize, (owner, rank): (Spaces, Rank), terms: Terms) -> Result<NameRef, Refusal> {
        let slot = &mut self.slots[at];
        (slot.owner, slot.publisher) = (Some(owner), rank);
        slot.access = if terms.once { Access::First } else { Access::Any };
        (slot.end, slot.reach) = (terms.end, terms.reach);
        #[cfg(feature = "pmix")]
        if self.is_taken_in_reach(at) {
            self.withdraw(at);
            return Err(Refusal::NameTaken);
        }
        let slot = &mut self.slots[at];
        slot.serial = slot.serial.wrapping_add(1);
        Ok(self.reference(at))
    }

    /// Returns whether the name in a slot is published a second time in the same range.
    #[cfg(feature = "pmix")]
    fn is_taken_in_reach(&self, at: usize) -> bool {
        let new = &self.slots[at];
        let is_other = |&other: &usize| other != at && self.slots[other].owner.is_some();
        RANGES && self.namesakes(Some(at)).filter(is_other).any(|other| self.overlap(&self.slots[other], new))
    }

    /// Withdraws a name, whichever job published it.
    ///
    /// # Errors
    /// [`Refusal::NoName`]
    pub(crate) fn unpublish<'a>(&mut self, name: impl Pieces<'a>) -> Result<(), Refusal> {
        let is_it = |slot: &Name| slot.owner.is_some() && (!RANGES || slot.reach == Reach::All);
        let at = self.fitting(self.find(name), is_it).ok_or(Refusal::NoName)?;
        self.withdraw(at);
        Ok(())
    }

    /// Undoes a publication. The slot is then as it was before.
    #[cfg(feature = "pmix")]
    fn undo(&mut self, name: NameRef) {
        if self.port(name).is_some() {
            let at = name.at as usize;
            self.withdraw(at);
            self.slots[at].serial = self.slots[at].serial.wrapping_sub(1);
        }
    }

    /// Returns whether look-ups wait for the name of a publication.
    pub(crate) fn is_awaited(&self, name: NameRef) -> bool {
        self.fitting(Some(name.at as usize), |slot| slot.waiting > 0).is_some()
    }

    /// Returns the publication of a name for all, if it is published.
    pub(crate) fn lookup<'a>(&self, name: impl Pieces<'a>) -> Option<NameRef> {
        let is_it = |slot: &Name| slot.is_readable() && slot.reach == Reach::All;
        self.fitting(self.find(name), is_it).map(|at| self.reference(at))
    }

    /// Counts a look-up that waits for a name. Look-ups that are not `alike` wait in different slots. Returns the index of the
    /// slot.
    ///
    /// # Errors
    /// [`Refusal::NameLength`] or [`Refusal::Full`]. Nothing is changed then.
    pub(crate) fn wait<'a>(&mut self, name: impl Pieces<'a>, alike: &[u8]) -> Result<u32, Refusal> {
        if RANGES && alike.len() > PORT_MAX {
            return Err(Refusal::NameLength);
        }
        let first = self.find(name.clone());
        let is_alike = |slot: &Name| match slot.owner {
            Some(_) => !RANGES || alike.is_empty(),
            None => !RANGES || slot.port == alike,
        };
        let at = match self.fitting(first, is_alike) {
            Some(at) => at,
            None => {
                let at = self.place(name)?;
                if RANGES {
                    fill(&mut self.slots[at].port, core::iter::once(alike));
                }
                at
            }
        };
        let slot = &mut self.slots[at];
        slot.waiting += 1;
        Ok(at as u32)
    }

    /// Returns whether two slots have the same name.
    pub(crate) fn are_named_alike(&self, one: u32, other: u32) -> bool {
        one == other || RANGES && self.awaited(one) == self.awaited(other)
    }

    /// Returns what distinguishes the look-ups that wait in a slot.
    #[cfg(feature = "pmix")]
    pub(crate) fn alike(&self, at: u32) -> &[u8] {
        let slot = self.slots.get(at as usize).filter(|slot| slot.owner.is_none());
        slot.map_or(&[], |slot| &slot.port)
    }

    /// Ends the wait of a look-up that [waited](Names::wait).
    pub(crate) fn leave(&mut self, at: u32) {
        if let Some(slot) = self.slots.get_mut(at as usize) {
            slot.waiting = slot.waiting.saturating_sub(1);
            if slot.waiting == 0 && slot.owner.is_none() {
                slot.name.clear();
                slot.port.clear();
            }
        }
    }

    /// Returns the port of a publication, unless it has been withdrawn.
    pub(crate) fn port(&self, name: NameRef) -> Option<&[u8]> {
        let slot = self.slots.get(name.at as usize)?;
        (slot.owner.is_some() && slot.serial == name.serial).then_some(&slot.port)
    }

    /// Returns the port of a publication for a change in place.
    #[cfg(feature = "pmix")]
    pub(crate) fn port_mut(&mut self, name: NameRef) -> Option<&mut [u8]> {
        let slot = self.slots.get_mut(name.at as usize)?;
        (slot.owner.is_some() && slot.serial == name.serial).then_some(&mut slot.port)
    }

    /// Returns whether a slot is free.
    #[cfg(feature = "pmix")]
    pub(crate) fn has_room(&self) -> bool {
        self.slots.iter().any(|slot| slot.name.is_empty() || slot.end == End::Room)
    }

    /// Says whether a notice gives way when there is no other room. Nothing must refer to it then.
    #[cfg(feature = "pmix")]
    pub(crate) fn give_way(&mut self, name: NameRef, gives_way: bool) {
        if let Some(slot) = self.slots.get_mut(name.at as usize) {
            slot.end = if gives_way { End::Room } else { End::Job };
        }
    }

    /// Returns whether a notice gives way when there is no other room.
    #[cfg(feature = "pmix")]
    pub(crate) fn gives_way(&self, name: NameRef) -> bool {
        self.slots.get(name.at as usize).is_some_and(|slot| slot.end == End::Room)
    }

    /// Has a publication belong to no job, so that no end of a job withdraws it.
    #[cfg(feature = "pmix")]
    pub(crate) fn disown(&mut self, name: NameRef) {
        if self.port(name).is_some() {
            self.slots[name.at as usize].owner = Some(Spaces::NONE);
        }
    }

    /// Notes that the server has dealt with a notice, which neighbours may still lack.
    #[cfg(feature = "pmix")]
    pub(crate) fn settle(&mut self, name: NameRef) {
        if let Some(slot) = self.slots.get_mut(name.at as usize) {
            slot.reach = Reach::Process;
        }
    }

    /// Returns whether the server has dealt with a notice.
    #[cfg(feature = "pmix")]
    pub(crate) fn is_settled(&self, name: NameRef) -> bool {
        self.slots.get(name.at as usize).is_some_and(|slot| slot.reach == Reach::Process)
    }

    /// Returns the publication of a name for the fewest processes that a process finds.
    #[cfg(feature = "pmix")]
    pub(crate) fn find_for<'a>(&self, name: impl Pieces<'a>, reader: Reader<'_>) -> Option<NameRef> {
        self.nearest(self.find(name)?, reader)
    }

    /// Returns it for the name in a slot.
    #[cfg(feature = "pmix")]
    pub(crate) fn nearest(&self, at: usize, reader: Reader<'_>) -> Option<NameRef> {
        let is_found = |&at: &usize| self.slots[at].is_readable() && self.is_for(&self.slots[at], reader);
        if !RANGES {
            return Some(at).filter(is_found).map(|at| self.reference(at));
        }
        let found = self.namesakes(Some(at)).filter(is_found);
        found.max_by_key(|&at| self.slots[at].reach).map(|at| self.reference(at))
    }

    /// Withdraws a name for a process: its own, or the one that it finds.
    ///
    /// # Errors
    /// [`Refusal::NoName`]
    #[cfg(feature = "pmix")]
    pub(crate) fn unpublish_for<'a>(
        &mut self,
        name: impl Pieces<'a>,
        party: Party<'_>,
    ) -> Result<(), Refusal> {
        if !RANGES {
            return self.unpublish(name);
        }
        let first = self.find(name);
        let is_own = |&at: &usize| {
            let slot = &self.slots[at];
            slot.owner.is_some() && self.relation(slot, party).process
        };
        let own = self.namesakes(first).filter(is_own).max_by_key(|&at| self.slots[at].reach);
        let found = || self.nearest(first?, (party, Reach::All)).map(|name| name.at as usize);
        let at = own.or_else(found).ok_or(Refusal::NoName)?;
        self.withdraw(at);
        Ok(())
    }

    /// Withdraws the publications of a process that end with it.
    #[cfg(feature = "pmix")]
    pub(crate) fn process_ended(&mut self, owner: Spaces, rank: Rank) {
        for at in 0..self.slots.len() {
            let slot = &self.slots[at];
            if slot.end == End::Process && slot.owner == Some(owner) && slot.publisher == rank {
                self.withdraw(at);
            }
        }
    }

    /// Notes that a look-up has found a publication.
    #[cfg(feature = "pmix")]
    pub(crate) fn take(&mut self, name: NameRef) {
        if let Some(slot) = self.slots.get_mut(name.at as usize)
            && slot.access == Access::First
        {
            slot.access = Access::Taken;
        }
    }

    /// Returns whether no other look-up finds a publication.
    #[cfg(feature = "pmix")]
    pub(crate) fn is_taken(&self, name: NameRef) -> bool {
        let slot = self.slots.get(name.at as usize);
        slot.is_some_and(|slot| slot.access == Access::Taken && slot.serial == name.serial)
    }

    /// Withdraws a publication whose reader has its reply.
    #[cfg(feature = "pmix")]
    pub(crate) fn withdraw_taken(&mut self, name: NameRef) {
        if self.is_taken(name) {
            self.withdraw(name.at as usize);
        }
    }

    /// Returns the spaces of the job and the rank that published a name.
    #[cfg(feature = "pmix")]
    pub(crate) fn publisher(&self, name: NameRef) -> Option<(Spaces, Rank)> {
        let slot = self.slots.get(name.at as usize).filter(|slot| slot.serial == name.serial)?;
        Some((slot.owner?, slot.publisher))
    }

    /// Returns the name of a publication.
    #[cfg(feature = "pmix")]
    pub(crate) fn name(&self, name: NameRef) -> Option<&[u8]> {
        self.slots.get(name.at as usize).map(|slot| &*slot.name)
    }

    /// Returns the publications whose names begin with this byte.
    #[cfg(feature = "pmix")]
    pub(crate) fn marked(&self, first: u8) -> impl Iterator<Item = NameRef> + Clone + '_ {
        let slots = (0u32..).zip(&*self.slots);
        let marked = slots.filter(move |(_, slot)| slot.owner.is_some() && slot.name.first() == Some(&first));
        marked.map(|(at, slot)| NameRef { at, serial: slot.serial })
    }

    /// Returns whether a process finds the publication in a slot.
    #[cfg(feature = "pmix")]
    pub(crate) fn is_readable_by(&self, reader: Reader<'_>, at: u32) -> bool {
        self.slots.get(at as usize).is_some_and(|slot| slot.is_readable() && self.is_for(slot, reader))
    }

    /// Returns what the publisher of a name has published under another one, for the same processes.
    #[cfg(feature = "pmix")]
    pub(crate) fn beside<'a>(&self, name: NameRef, other: impl Pieces<'a>) -> Option<NameRef> {
        let own = self.slots.get(name.at as usize)?;
        let is_it = |slot: &Name| {
            let party = self.party(own).filter(|_| slot.owner.is_some() && slot.reach == own.reach);
            !RANGES || party.is_some_and(|party| self.relation(slot, party).process)
        };
        self.fitting(self.find(other), is_it).map(|at| self.reference(at))
    }

    /// Publishes several data by `publish`, or none of them. Returns the first publication.
    ///
    /// # Errors
    /// As [`publish`](Names::publish).
    #[cfg(feature = "pmix")]
    pub(crate) fn publish_all<'a, D, N: Pieces<'a>>(
        &mut self,
        data: impl Iterator<Item = D> + Clone,
        name_of: impl Fn(&D) -> N,
        publish: impl Fn(&mut Self, D) -> Result<NameRef, Refusal>,
    ) -> Result<Option<NameRef>, Refusal> {
        let mut first = None;
        for (done, datum) in data.clone().enumerate() {
            let why = match publish(self, datum) {
                Ok(name) => {
                    first = first.or(Some(name));
                    continue;
                }
                Err(why) => why,
            };
            if let Some(first) = first {
                for datum in data.take(done).skip(1) {
                    self.beside(first, name_of(&datum)).into_iter().for_each(|name| self.undo(name));
                }
                self.undo(first);
            }
            return Err(why);
        }
        Ok(first)
    }

    /// Returns the publication in a slot.
    #[cfg(feature = "pmix")]
    pub(crate) fn at(&self, at: u32) -> Option<NameRef> {
        let slot = self.slots.get(at as usize).filter(|slot| slot.owner.is_some())?;
        Some(NameRef { at, serial: slot.serial })
    }

    /// Withdraws a publication, unless it has been withdrawn.
    #[cfg(feature = "pmix")]
    pub(crate) fn withdraw_this(&mut self, name: NameRef) {
        if self.port(name).is_some() {
            self.withdraw(name.at as usize);
        }
    }

    /// Withdraws all names of a process that begin with these bytes.
    #[cfg(feature = "pmix")]
    pub(crate) fn forget_process(&mut self, prefix: &[u8], party: Party<'_>) {
        for at in 0..self.slots.len() {
            let slot = &self.slots[at];
            let is_own = match party {
                Party::Here(owner, rank) => slot.owner == Some(owner) && slot.publisher == rank,
                Party::Remote(_) => slot.owner.is_some() && self.relation(slot, party).process,
            };
            if is_own && slot.name.starts_with(prefix) {
                self.withdraw(at);
            }
        }
    }

    /// Withdraws the names of a job, but for those that outlast the job.
    pub(crate) fn forget(&mut self, owner: Spaces) {
        for at in 0..self.slots.len() {
            if self.slots[at].owner == Some(owner) && self.slots[at].end != End::Never {
                self.withdraw(at);
            }
        }
    }

    /// Returns the slots for a snapshot.
    pub(crate) fn state(&self) -> &[Name] {
        self.slots
    }

    /// Returns the slots for restoring a snapshot.
    pub(crate) fn state_mut(&mut self) -> &mut [Name] {
        self.slots
    }

    /// Returns whether every slot is consistent. `waiting` counts the look-ups that wait for the name in a slot.
    pub(crate) fn is_sound(&self, waiting: impl Fn(u32) -> usize) -> bool {
        (0u32..).zip(&*self.slots).all(|(at, slot)| {
            let used = slot.owner.is_some() || slot.waiting > 0;
            used != slot.name.is_empty()
                && (used || slot.port.is_empty())
                && (!used || slot.waiting as usize == waiting(at))
        })
    }

    /// Returns whether the slot exists and is in use.
    pub(crate) fn is_known(&self, at: u32) -> bool {
        self.slots.get(at as usize).is_some_and(|slot| !slot.name.is_empty())
    }

    /// Returns the name in a slot, published or awaited.
    pub(crate) fn awaited(&self, at: u32) -> Option<&[u8]> {
        self.slots.get(at as usize).map(|slot| slot.name.as_slice())
    }

    fn withdraw(&mut self, at: usize) {
        let slot = &mut self.slots[at];
        slot.owner = None;
        (slot.access, slot.reach, slot.end) = (Access::Any, Reach::All, End::Job);
        slot.publisher = Rank(0);
        slot.port.clear();
        if slot.waiting == 0 {
            slot.name.clear();
        }
    }

    /// Returns the slot of the oldest notice that gives way. The names of notices are their numbers.
    fn oldest_that_gives_way(&self) -> Option<usize> {
        let slots = (0..self.slots.len()).filter(|&at| self.slots[at].end == End::Room);
        slots.min_by_key(|&at| self.slots[at].name.as_slice())
    }

    /// Takes a free slot for a name.
    fn place<'a>(&mut self, name: impl Pieces<'a>) -> Result<usize, Refusal> {
        if !(1..=NAME_MAX).contains(&length(name.clone())) {
            return Err(Refusal::NameLength);
        }
        let full = Refusal::Full(Limit::Names, self.slots.len() as u32);
        let free = self.slots.iter().position(|slot| slot.name.is_empty());
        let at = free.or_else(|| self.oldest_that_gives_way()).ok_or(full)?;
        self.withdraw(at);
        fill(&mut self.slots[at].name, name);
        Ok(at)
    }

    /// Returns the first slot of a name.
    fn find<'a>(&self, name: impl Pieces<'a>) -> Option<usize> {
        self.slots
            .iter()
            .position(|slot| !slot.name.is_empty() && slot.name.iter().eq(name.clone().flatten()))
    }

    /// Returns all slots with the name of one.
    fn namesakes(&self, at: Option<usize>) -> impl Iterator<Item = usize> {
        let slots = match at {
            None => 0..0,
            Some(_) if RANGES => 0..self.slots.len(),
            Some(at) => at..at + 1,
        };
        slots.filter(move |&other| {
            !RANGES || at.is_some_and(|at| self.slots[other].name == self.slots[at].name)
        })
    }

    /// Returns the first of these that fits.
    fn fitting(&self, at: Option<usize>, fits: impl Fn(&Name) -> bool) -> Option<usize> {
        self.namesakes(at).find(|&at| fits(&self.slots[at]))
    }

    fn reference(&self, at: usize) -> NameRef {
        NameRef { at: at as u32, serial: self.slots[at].serial }
    }
}

fn length<'a>(pieces: impl Pieces<'a>) -> usize {
    pieces.map(<[u8]>::len).sum()
}

/// Writes a text to a field of a slot, which is too large for the stack of a microcontroller. Its length has been checked.
fn fill<'a, const N: usize, L: heapless::LenType>(field: &mut Vec<u8, N, L>, pieces: impl Pieces<'a>) {
    field.clear();
    for piece in pieces {
        let _ = field.extend_from_slice(piece);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::iter::once;

    #[test]
    fn a_name_is_published_once_and_goes_with_its_job() {
        let mut slots = [const { None }; 2].map(|_: Option<()>| Name::EMPTY);
        let mut names = Names::new(&mut slots);
        let (mine, yours) = (Spaces::test(1), Spaces::test(2));
        let first = names.publish((mine, Rank(0)), once(&b"a"[..]), once(&b"port"[..]), Terms::JOB).unwrap();
        assert_eq!(
            names.publish((yours, Rank(0)), once(&b"a"[..]), once(&b"x"[..]), Terms::JOB),
            Err(Refusal::NameTaken)
        );
        assert_eq!(names.port(first), Some(&b"port"[..]));
        let slot = names.wait(once(&b"b"[..]), b"").unwrap();
        assert_eq!(names.wait(once(&b"c"[..]), b""), Err(Refusal::Full(Limit::Names, 2)));
        assert_eq!(
            names.publish((yours, Rank(0)), once(&b"b"[..]), once(&b"y"[..]), Terms::JOB).unwrap().at,
            slot
        );
        names.forget(mine);
        assert_eq!((names.port(first), names.lookup(once(&b"a"[..]))), (None, None));
        assert_eq!(names.unpublish(once(&b"a"[..])), Err(Refusal::NoName));
        assert_eq!(names.unpublish(once(&b"b"[..])), Ok(()));
        assert_eq!(names.wait(once(&b"b"[..]), b""), Ok(slot), "who waits keeps the place");
        names.leave(slot);
        names.leave(slot);
        assert!(names.wait(once(&b"c"[..]), b"").is_ok() && names.wait(once(&b"d"[..]), b"").is_ok());
        let again = names.publish((mine, Rank(0)), once(&b"c"[..]), once(&b"z"[..]), Terms::JOB).unwrap();
        assert!(again != first && names.port(first).is_none());
    }

    #[test]
    fn lengths_are_checked() {
        let mut slots = [Name::EMPTY];
        let mut names = Names::new(&mut slots);
        let long = [b'x'; PORT_MAX + 1];
        let job = Spaces::test(1);
        assert_eq!(
            names.publish((job, Rank(0)), once(&b""[..]), once(&b"p"[..]), Terms::JOB),
            Err(Refusal::NameLength)
        );
        assert_eq!(
            names.publish((job, Rank(0)), once(&long[..=NAME_MAX]), once(&b"p"[..]), Terms::JOB),
            Err(Refusal::NameLength)
        );
        assert_eq!(
            names.publish((job, Rank(0)), once(&b"n"[..]), once(&long[..]), Terms::JOB),
            Err(Refusal::NameLength)
        );
        assert!(
            names
                .publish((job, Rank(0)), once(&long[..NAME_MAX]), once(&long[..PORT_MAX]), Terms::JOB)
                .is_ok()
        );
    }
}
