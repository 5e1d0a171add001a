//! The process sets of the MPI library and of hydrant in one list.

use std::ffi::c_int;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::library::MpiLibrary;
use super::{Failure, check};
use crate::abi::Handle;
use crate::psets;

/// All process sets. Entries are only appended, so that an index always means the same set.
pub(super) struct PsetList {
    entries: Vec<Entry>,
    /// Number of the library's sets that the list has taken over.
    library_sets: c_int,
    /// Number of hydrant's sets that the list has taken over or skipped.
    hydrant_sets: u32,
}

#[derive(Clone)]
pub(super) enum Entry {
    Library(Vec<u8>),
    Hydrant(String),
}

static LIST: Mutex<PsetList> = Mutex::new(PsetList { entries: Vec::new(), library_sets: 0, hydrant_sets: 0 });

impl Entry {
    pub(super) fn name(&self) -> &[u8] {
        match self {
            Entry::Library(name) => name,
            Entry::Hydrant(name) => name.as_bytes(),
        }
    }
}

impl PsetList {
    pub(super) fn lock() -> MutexGuard<'static, PsetList> {
        LIST.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends the sets that are new since the last call.
    pub(super) fn refresh(
        &mut self,
        library: &MpiLibrary,
        session: Handle,
        info: Handle,
    ) -> Result<(), Failure> {
        let mut count = 0;
        // SAFETY: the library checks the handles of the caller; the pointer is a valid local.
        check(unsafe { library.num_psets(session, info, &mut count) })?;
        while self.library_sets < count {
            let name = library_name(library, session, info, self.library_sets)?;
            self.entries.push(Entry::Library(name));
            self.library_sets += 1;
        }
        let count = psets::count()?;
        while self.hydrant_sets < count {
            // The library has the reserved sets itself, and its own set takes precedence over one of the same name.
            let is_new =
                |name: &String| !psets::is_reserved(name.as_bytes()) && !self.library_has(name.as_bytes());
            if let Some(name) = psets::name(self.hydrant_sets)?.filter(is_new) {
                self.entries.push(Entry::Hydrant(name));
            }
            self.hydrant_sets += 1;
        }
        Ok(())
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn get(&self, index: usize) -> Option<&Entry> {
        self.entries.get(index)
    }

    /// Whether one of the library's sets has this name.
    pub(super) fn library_has(&self, name: &[u8]) -> bool {
        self.entries.iter().any(|entry| matches!(entry, Entry::Library(known) if known == name))
    }
}

/// Returns the name of one of the library's sets.
fn library_name(library: &MpiLibrary, session: Handle, info: Handle, n: c_int) -> Result<Vec<u8>, Failure> {
    let mut name = vec![0; 4096];
    let mut len = name.len() as c_int;
    // SAFETY: the buffer has that length.
    check(unsafe { library.nth_pset(session, info, n, &mut len, name.as_mut_ptr().cast()) })?;
    name.truncate(name.iter().position(|&byte| byte == 0).unwrap_or(name.len()));
    Ok(name)
}
