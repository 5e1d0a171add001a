//! Slots of a table, up to the last one that has been in use.

use core::ops::{Deref, DerefMut, Index, IndexMut, Range};

/// Slots of a table, in lent memory. Walks through them end behind the last one that has been in use, and do not touch the memory
/// behind, which may be mapped lazily. Each slot has its number all the same. Without the feature `cluster` the end is that of the
/// table: boards map nothing, and the check takes flash.
#[derive(Debug)]
pub(crate) struct Slots<'s, T> {
    all: &'s mut [T],
    end: u32,
}

impl<'s, T> Slots<'s, T> {
    /// Makes a table whose slots are unused. It has fewer than 2^32.
    pub(crate) fn new(all: &'s mut [T]) -> Slots<'s, T> {
        let end = if cfg!(feature = "cluster") { 0 } else { all.len() as u32 };
        Slots { all, end }
    }

    /// Returns a slot, if there is one of this number.
    pub(crate) fn get(&self, at: usize) -> Option<&T> {
        self.all.get(at)
    }

    /// Does the same to change it.
    pub(crate) fn get_mut(&mut self, at: usize) -> Option<&mut T> {
        self.all.get_mut(at)
    }

    /// Returns the slots, unused ones included.
    pub(crate) fn all(&self) -> &[T] {
        self.all
    }

    /// Returns the slots, all of which are in use from now on.
    pub(crate) fn use_all(&mut self) -> &mut [T] {
        self.end = self.all.len() as u32;
        self.all
    }

    /// Returns the numbers of the slots that have been in use.
    pub(crate) fn numbers(&self) -> Range<u32> {
        0..self.end
    }

    /// Returns the first slot that has not been in use, or is free.
    pub(crate) fn first_free(&self, is_free: impl Fn(&T) -> bool) -> Option<usize> {
        let unused = self.end as usize;
        self.iter().position(is_free).or((unused < self.all.len()).then_some(unused))
    }

    /// Sets a slot, if there is one of this number.
    pub(crate) fn set(&mut self, at: usize, value: T) {
        if let Some(slot) = self.get_mut(at) {
            *slot = value;
            self.end = self.end.max(at as u32 + 1);
        }
    }
}

impl<T> Deref for Slots<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        if cfg!(feature = "cluster") {
            self.all.get(..self.end as usize).unwrap_or_default()
        } else {
            self.all
        }
    }
}

impl<T> DerefMut for Slots<'_, T> {
    fn deref_mut(&mut self) -> &mut [T] {
        if cfg!(feature = "cluster") {
            self.all.get_mut(..self.end as usize).unwrap_or_default()
        } else {
            self.all
        }
    }
}

// Without them an index would be compared with both ends.
impl<T> Index<usize> for Slots<'_, T> {
    type Output = T;

    fn index(&self, at: usize) -> &T {
        &self.all[at]
    }
}

impl<T> IndexMut<usize> for Slots<'_, T> {
    fn index_mut(&mut self, at: usize) -> &mut T {
        &mut self.all[at]
    }
}

#[cfg(all(test, feature = "cluster"))]
mod tests {
    use super::*;

    #[test]
    fn slots_end_behind_the_last_used_one() {
        let mut room = [0; 4];
        let mut slots = Slots::new(&mut room);
        assert_eq!((slots.len(), slots.first_free(|slot| *slot == 0)), (0, Some(0)));
        slots.set(2, 5);
        assert_eq!((&*slots, slots.numbers(), slots.all()), (&[0, 0, 5][..], 0..3, &[0, 0, 5, 0][..]));
        slots.set(0, 1);
        slots[1] = 1;
        slots.set(9, 1);
        assert_eq!(slots.first_free(|slot| *slot == 0), Some(3));
        assert_eq!(slots.use_all(), [1, 1, 5, 0]);
        slots.set(3, 1);
        assert_eq!((slots.len(), slots.first_free(|slot| *slot == 0)), (4, None));
    }
}
