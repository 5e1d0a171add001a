//! Published names, and names that look-ups wait for.

use heapless::Vec;
use serde::{Deserialize, Serialize};

use super::kvs::{Pieces, Spaces};
use crate::fault::Refusal;
use crate::ids::Rank;
use crate::limits::{Limit, NAME_MAX, PORT_MAX};

/// Slot of a name: published, awaited by look-ups, or free.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Name {
    name: Vec<u8, NAME_MAX, u8>,
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

/// Who may look up a publication.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Reach {
    /// All processes.
    #[default]
    All,
    /// Those of the publisher's job.
    Job,
    /// The publisher.
    Process,
}

/// How long a publication lasts, and for whom.
#[cfg(feature = "pmix")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    /// It may be looked up once.
    pub(crate) once: bool,
    /// What ends it.
    pub(crate) end: End,
    /// Who may look it up.
    pub(crate) reach: Reach,
}

#[cfg(feature = "pmix")]
impl Terms {
    /// Returns whether the publication goes on after the end of its publisher's job.
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
}

impl<'s> Names<'s> {
    /// Creates a table in unused slots.
    pub(crate) fn new(slots: &'s mut [Name]) -> Names<'s> {
        Names { slots }
    }

    /// Publishes a name for a job.
    ///
    /// # Errors
    /// [`Refusal::NameLength`], [`Refusal::NameTaken`], or [`Refusal::Full`]. Nothing is changed then.
    pub(crate) fn publish<'a, 'b>(
        &mut self,
        owner: Spaces,
        name: impl Pieces<'a>,
        port: impl Pieces<'b>,
    ) -> Result<NameRef, Refusal> {
        if length(port.clone()) > PORT_MAX {
            return Err(Refusal::NameLength);
        }
        let at = self.place(name)?;
        let slot = &mut self.slots[at];
        if slot.owner.is_some() {
            return Err(Refusal::NameTaken);
        }
        fill(&mut slot.port, port);
        slot.owner = Some(owner);
        (slot.access, slot.reach, slot.end) = (Access::Any, Reach::All, End::Job);
        slot.serial = slot.serial.wrapping_add(1);
        Ok(NameRef { at: at as u32, serial: slot.serial })
    }

    /// Withdraws a name, whichever job published it.
    ///
    /// # Errors
    /// [`Refusal::NoName`]
    pub(crate) fn unpublish<'a>(&mut self, name: impl Pieces<'a>) -> Result<(), Refusal> {
        let at = self.find(name).filter(|&at| self.slots[at].owner.is_some()).ok_or(Refusal::NoName)?;
        self.withdraw(at);
        Ok(())
    }

    /// Undoes the last publication of a name. The slot is then as it was before.
    #[cfg(feature = "pmix")]
    pub(crate) fn undo<'a>(&mut self, name: impl Pieces<'a>) {
        if let Some(at) = self.find(name) {
            self.withdraw(at);
            self.slots[at].serial = self.slots[at].serial.wrapping_sub(1);
        }
    }

    /// Returns whether look-ups wait for it.
    pub(crate) fn is_awaited(&self, name: NameRef) -> bool {
        self.slots.get(name.at as usize).is_some_and(|slot| slot.waiting > 0)
    }

    /// Returns the publication of a name, if it is published.
    pub(crate) fn lookup<'a>(&self, name: impl Pieces<'a>) -> Option<NameRef> {
        let at = self.find(name).filter(|&at| self.slots[at].is_readable())?;
        Some(NameRef { at: at as u32, serial: self.slots[at].serial })
    }

    /// Counts a look-up that waits for an unpublished name. Returns the index of the name's slot.
    ///
    /// # Errors
    /// [`Refusal::NameLength`] or [`Refusal::Full`]. Nothing is changed then.
    pub(crate) fn wait<'a>(&mut self, name: impl Pieces<'a>) -> Result<u32, Refusal> {
        let at = self.place(name)?;
        self.slots[at].waiting += 1;
        Ok(at as u32)
    }

    /// Ends the wait of a look-up that [waited](Names::wait).
    pub(crate) fn leave(&mut self, at: u32) {
        if let Some(slot) = self.slots.get_mut(at as usize) {
            slot.waiting = slot.waiting.saturating_sub(1);
            if slot.waiting == 0 && slot.owner.is_none() {
                slot.name.clear();
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
        self.slots.iter().any(|slot| slot.name.is_empty())
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

    /// Notes the rank that published a name, and on which terms.
    #[cfg(feature = "pmix")]
    pub(crate) fn describe(&mut self, name: NameRef, publisher: Rank, terms: Terms) {
        if let Some(slot) = self.slots.get_mut(name.at as usize) {
            slot.publisher = publisher;
            let access = if terms.once { Access::First } else { Access::Any };
            (slot.access, slot.end, slot.reach) = (access, terms.end, terms.reach);
        }
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

    /// Returns whether a look-up of that process finds a publication in a slot.
    #[cfg(feature = "pmix")]
    pub(crate) fn is_readable_by(&self, (owner, rank): (Spaces, Rank), at: u32) -> bool {
        self.slots.get(at as usize).is_some_and(|slot| {
            slot.is_readable()
                && match slot.reach {
                    Reach::All => true,
                    Reach::Job => slot.owner == Some(owner),
                    Reach::Process => slot.owner == Some(owner) && slot.publisher == rank,
                }
        })
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
    pub(crate) fn forget_process(&mut self, prefix: &[u8], (owner, rank): (Spaces, Rank)) {
        for at in 0..self.slots.len() {
            let slot = &self.slots[at];
            if slot.owner == Some(owner) && slot.publisher == rank && slot.name.starts_with(prefix) {
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
                && (slot.owner.is_some() || slot.port.is_empty())
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

    /// Returns the slot of a name, which is taken if there is none.
    fn place<'a>(&mut self, name: impl Pieces<'a>) -> Result<usize, Refusal> {
        if !(1..=NAME_MAX).contains(&length(name.clone())) {
            return Err(Refusal::NameLength);
        }
        if let Some(at) = self.find(name.clone()) {
            return Ok(at);
        }
        let full = Refusal::Full(Limit::Names, self.slots.len() as u32);
        let at = self.slots.iter().position(|slot| slot.name.is_empty()).ok_or(full)?;
        fill(&mut self.slots[at].name, name);
        Ok(at)
    }

    fn find<'a>(&self, name: impl Pieces<'a>) -> Option<usize> {
        self.slots
            .iter()
            .position(|slot| !slot.name.is_empty() && slot.name.iter().eq(name.clone().flatten()))
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
        let first = names.publish(mine, once(&b"a"[..]), once(&b"port"[..])).unwrap();
        assert_eq!(names.publish(yours, once(&b"a"[..]), once(&b"x"[..])), Err(Refusal::NameTaken));
        assert_eq!(names.port(first), Some(&b"port"[..]));
        let slot = names.wait(once(&b"b"[..])).unwrap();
        assert_eq!(names.wait(once(&b"c"[..])), Err(Refusal::Full(Limit::Names, 2)));
        assert_eq!(names.publish(yours, once(&b"b"[..]), once(&b"y"[..])).unwrap().at, slot);
        names.forget(mine);
        assert_eq!((names.port(first), names.lookup(once(&b"a"[..]))), (None, None));
        assert_eq!(names.unpublish(once(&b"a"[..])), Err(Refusal::NoName));
        assert_eq!(names.unpublish(once(&b"b"[..])), Ok(()));
        assert_eq!(names.wait(once(&b"b"[..])), Ok(slot), "who waits keeps the place");
        names.leave(slot);
        names.leave(slot);
        assert!(names.wait(once(&b"c"[..])).is_ok() && names.wait(once(&b"d"[..])).is_ok());
        let again = names.publish(mine, once(&b"c"[..]), once(&b"z"[..])).unwrap();
        assert!(again != first && names.port(first).is_none());
    }

    #[test]
    fn lengths_are_checked() {
        let mut slots = [Name::EMPTY];
        let mut names = Names::new(&mut slots);
        let long = [b'x'; PORT_MAX + 1];
        let job = Spaces::test(1);
        assert_eq!(names.publish(job, once(&b""[..]), once(&b"p"[..])), Err(Refusal::NameLength));
        assert_eq!(names.publish(job, once(&long[..=NAME_MAX]), once(&b"p"[..])), Err(Refusal::NameLength));
        assert_eq!(names.publish(job, once(&b"n"[..]), once(&long[..])), Err(Refusal::NameLength));
        assert!(names.publish(job, once(&long[..NAME_MAX]), once(&long[..PORT_MAX])).is_ok());
    }
}
