//! The objects of a process that has no other MPI library.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::abi::{Class, Error, Handle};
use crate::errhandler::Errhandlers;
use crate::info::Infos;
use crate::session::Session;

/// Everything that handles stand for.
pub(crate) struct State {
    pub(crate) infos: Infos,
    pub(crate) sessions: Table<Session>,
    pub(crate) errhandlers: Errhandlers,
}

static STATE: Mutex<State> = Mutex::new(State {
    infos: Infos::new(),
    sessions: Table::new(2, Class::Session, "session"),
    errhandlers: Errhandlers::new(),
});

/// The objects, for one caller at a time. No user's function may be called meanwhile.
pub(crate) fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Objects of one kind. A handle's number is never given out again, so that one whose object is gone is known for
/// what it is.
pub(crate) struct Table<T> {
    objects: BTreeMap<usize, T>,
    next: usize,
    kind: usize,
    class: Class,
    what: &'static str,
}

/// Handles above the standard's own, the lowest bits of which tell the kinds apart.
const KIND_BITS: usize = 4;
/// The standard keeps handles below this for itself.
const FIRST: usize = 0x10000;

impl<T> Table<T> {
    pub(crate) const fn new(kind: usize, class: Class, what: &'static str) -> Table<T> {
        Table { objects: BTreeMap::new(), next: FIRST >> KIND_BITS, kind, class, what }
    }

    /// Takes an object in; its handle.
    pub(crate) fn insert(&mut self, object: T) -> Handle {
        let handle = self.next << KIND_BITS | self.kind;
        self.next += 1;
        self.objects.insert(handle, object);
        handle
    }

    pub(crate) fn get(&self, handle: Handle) -> Result<&T, Error> {
        self.objects.get(&handle).ok_or_else(|| self.unknown(handle))
    }

    pub(crate) fn get_mut(&mut self, handle: Handle) -> Result<&mut T, Error> {
        let unknown = self.unknown(handle);
        self.objects.get_mut(&handle).ok_or(unknown)
    }

    pub(crate) fn remove(&mut self, handle: Handle) -> Result<T, Error> {
        let unknown = self.unknown(handle);
        self.objects.remove(&handle).ok_or(unknown)
    }

    fn unknown(&self, handle: Handle) -> Error {
        let used = handle >= FIRST && handle >> KIND_BITS < self.next && handle & 0xf == self.kind;
        let how = if used { "is gone: it has been finalized or freed" } else { "never was one" };
        Error::new(self.class, format!("the {} handle {handle:#x} {how}", self.what))
    }
}
