//! The process sets of this process in one list: those of the MPI library, then those of hydrant.

use std::ffi::c_int;
use std::sync::{Mutex, MutexGuard, PoisonError};

use hydrant_wire::limits::PSET_SCHEME;

use crate::error::Error;

/// All process sets. Entries are only appended, so that an index always means the same set, until the process prunes its
/// list.
pub(crate) struct PsetList {
    entries: Vec<Entry>,
    /// Number of the library's sets that the list has taken over.
    library_sets: c_int,
    /// Serial number of the last of hydrant's sets that the list has taken over or skipped.
    last: u32,
}

#[derive(Clone)]
pub(crate) enum Entry {
    Library(Vec<u8>),
    /// Name and serial number.
    Hydrant(String, u32),
}

static LIST: Mutex<PsetList> = Mutex::new(PsetList::EMPTY);

impl Entry {
    pub(crate) fn name(&self) -> &[u8] {
        match self {
            Entry::Library(name) => name,
            Entry::Hydrant(name, _) => name.as_bytes(),
        }
    }
}

impl PsetList {
    const EMPTY: PsetList = PsetList { entries: Vec::new(), library_sets: 0, last: 0 };

    pub(crate) fn lock() -> MutexGuard<'static, PsetList> {
        LIST.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends the sets that are new since the last call. `name` returns the name of each of the library's sets, `next` name and
    /// serial number of hydrant's first set after a serial number.
    pub(crate) fn refresh<E: From<Error>>(
        &mut self,
        library_sets: c_int,
        name: impl Fn(c_int) -> Result<Vec<u8>, E>,
        next: impl Fn(u32) -> Result<Option<(String, u32)>, Error>,
    ) -> Result<(), E> {
        while self.library_sets < library_sets {
            self.entries.push(Entry::Library(name(self.library_sets)?));
            self.library_sets += 1;
        }
        while let Some((name, serial)) = next(self.last)? {
            // The library's own set takes precedence over one of the same name. A set that was removed keeps its place and
            // its name, so a new set of the name is not in the list.
            if self.entries.iter().all(|known| known.name() != name.as_bytes()) {
                self.entries.push(Entry::Hydrant(name, serial));
            }
            self.last = serial;
        }
        Ok(())
    }

    /// Checks that the set of that name with that serial number is the one in the list, if there is one of the name.
    pub(crate) fn check(&self, name: &[u8], serial: u32) -> Result<(), Error> {
        let is_named = |known: &str| {
            let short = known.strip_prefix(PSET_SCHEME);
            known.as_bytes() == name || short.is_some_and(|short| short.as_bytes() == name)
        };
        let replaced =
            |entry: &Entry| matches!(entry, Entry::Hydrant(known, of) if *of != serial && is_named(known));
        if self.entries.iter().any(replaced) {
            return Err(Error::ReplacedPset(name.to_vec()));
        }
        Ok(())
    }

    /// Begins a new list, in which the sets that were removed are not.
    pub(crate) fn reset(&mut self) {
        *self = PsetList::EMPTY;
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn get(&self, index: usize) -> Option<&Entry> {
        self.entries.get(index)
    }

    /// Whether one of the library's sets has this name.
    pub(crate) fn library_has(&self, name: &[u8]) -> bool {
        self.entries.iter().any(|entry| matches!(entry, Entry::Library(known) if known == name))
    }
}
