//! Table of the objects of one kind.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use crate::abi::{Class, Handle};
use crate::error::Error;

/// Objects of one kind by handle. A handle is not reused before all others, so that the handle of a freed object is
/// detected.
pub(crate) struct Table<T> {
    objects: BTreeMap<usize, T>,
    next: usize,
    kind: usize,
    class: Class,
    name: &'static str,
}

/// Lowest bits of a handle, which contain the kind of its object.
const KIND_BITS: usize = 4;
/// Lowest handle of an object. The standard ABI reserves the numbers below.
const FIRST: usize = 0x10000;
/// Highest handle of an object. A Fortran INTEGER holds every handle.
const LAST: usize = i32::MAX as usize;

impl<T> Table<T> {
    /// Creates an empty table. Errors have this class and name the kind of object.
    pub(crate) const fn new(kind: usize, class: Class, name: &'static str) -> Table<T> {
        Table { objects: BTreeMap::new(), next: FIRST >> KIND_BITS, kind, class, name }
    }

    /// Adds an object and returns its handle.
    pub(crate) fn insert(&mut self, object: T) -> Handle {
        loop {
            let handle = self.next << KIND_BITS | self.kind;
            self.next = if self.next == LAST >> KIND_BITS { FIRST >> KIND_BITS } else { self.next + 1 };
            if let Entry::Vacant(entry) = self.objects.entry(handle) {
                entry.insert(object);
                return handle;
            }
        }
    }

    pub(crate) fn get(&self, handle: Handle) -> Result<&T, Error> {
        self.objects.get(&handle).ok_or_else(|| self.invalid(handle))
    }

    pub(crate) fn get_mut(&mut self, handle: Handle) -> Result<&mut T, Error> {
        let invalid = self.invalid(handle);
        self.objects.get_mut(&handle).ok_or(invalid)
    }

    pub(crate) fn remove(&mut self, handle: Handle) -> Result<T, Error> {
        let invalid = self.invalid(handle);
        self.objects.remove(&handle).ok_or(invalid)
    }

    fn invalid(&self, handle: Handle) -> Error {
        let freed = handle >= FIRST && handle >> KIND_BITS < self.next && handle & 0xf == self.kind;
        Error::Handle { class: self.class, kind: self.name, handle, freed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_are_not_reused() {
        let mut table = Table::new(2, Class::Session, "session");
        let first = table.insert('a');
        assert_eq!(table.remove(first).unwrap(), 'a');
        let second = table.insert('b');
        assert_ne!(first, second);
        assert_eq!(table.get(second).unwrap(), &'b');
        assert!(matches!(table.get(first).unwrap_err(), Error::Handle { freed: true, .. }));
        for other in [0, FIRST - 1, second + 1, second + 16] {
            assert!(matches!(table.get_mut(other).unwrap_err(), Error::Handle { freed: false, .. }));
        }
    }
    #[test]
    fn handles_fit_in_a_fortran_integer() {
        let mut table = Table::new(2, Class::Session, "session");
        let kept = table.insert('a');
        table.next = LAST >> KIND_BITS;
        let last = table.insert('b');
        assert!(i32::try_from(last).is_ok());
        assert_eq!(table.insert('c'), kept + 16);
        assert_eq!((table.get(kept).unwrap(), table.get(last).unwrap()), (&'a', &'b'));
    }
}
