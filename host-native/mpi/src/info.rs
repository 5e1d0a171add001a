//! Info object: ordered pairs of key and value (MPI 5.0, chapter 10).
//!
//! Keys and values are case-sensitive bytes. Nothing is stripped from them, as in C.

use std::collections::TryReserveError;

use indexmap::IndexMap;

/// Maximum length of a key in bytes without NUL. The standard requires 32 to 255. C's `MPI_MAX_INFO_KEY` of the standard ABI is one
/// more, with NUL.
pub(crate) const INFO_KEY_MAX: usize = 255;
/// Maximum length of a value in bytes without NUL: `MPI_MAX_INFO_VAL` of the standard ABI.
pub(crate) const INFO_VALUE_MAX: usize = 1024;

/// Error of an operation. The object is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InfoError {
    /// A key to set that is empty, or one that is too long: `MPI_ERR_INFO_KEY`.
    #[error("an info key has 1 to {INFO_KEY_MAX} bytes")]
    KeyLength,
    /// A value that is too long: `MPI_ERR_INFO_VALUE`.
    #[error("an info value has at most {INFO_VALUE_MAX} bytes")]
    ValueLength,
    /// A key to delete that is missing: `MPI_ERR_INFO_NOKEY`.
    #[error("the info object has no such key")]
    NoKey,
    /// `MPI_ERR_NO_MEM`
    #[error("no memory for the info object")]
    NoMemory,
}

impl From<TryReserveError> for InfoError {
    fn from(_: TryReserveError) -> InfoError {
        InfoError::NoMemory
    }
}

/// An info object. It has as many pairs as memory has room for.
#[derive(Debug, Default)]
pub(crate) struct Info(IndexMap<Box<[u8]>, Box<[u8]>>);

impl Info {
    /// Sets a key to a value. An existing key keeps its number, a new one is the last.
    pub(crate) fn set(&mut self, key: &[u8], value: &[u8]) -> Result<(), InfoError> {
        if key.is_empty() || key.len() > INFO_KEY_MAX {
            return Err(InfoError::KeyLength);
        }
        if value.len() > INFO_VALUE_MAX {
            return Err(InfoError::ValueLength);
        }
        let value = boxed(value)?;
        match self.0.get_mut(key) {
            Some(known) => *known = value,
            None => {
                self.0.try_reserve(1).map_err(|_| InfoError::NoMemory)?;
                self.0.insert(boxed(key)?, value);
            }
        }
        Ok(())
    }

    /// Deletes a key and its value. The numbers of later keys become one less. A key that no object can have is a missing one.
    pub(crate) fn delete(&mut self, key: &[u8]) -> Result<(), InfoError> {
        self.0.shift_remove(key).map(drop).ok_or(InfoError::NoKey)
    }

    /// Returns the value of a key, or `None` without one.
    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<&[u8]>, InfoError> {
        if key.len() > INFO_KEY_MAX {
            return Err(InfoError::KeyLength);
        }
        Ok(self.0.get(key).map(|value| &**value))
    }

    pub(crate) fn nkeys(&self) -> usize {
        self.0.len()
    }

    /// Returns the key with that number, from 0.
    pub(crate) fn nth_key(&self, n: usize) -> Option<&[u8]> {
        self.0.get_index(n).map(|(key, _)| &**key)
    }

    /// Returns an object with the same pairs in the same order.
    pub(crate) fn copy(&self) -> Result<Info, InfoError> {
        let mut copy = Info::default();
        copy.0.try_reserve(self.0.len()).map_err(|_| InfoError::NoMemory)?;
        for (key, value) in &self.0 {
            copy.0.insert(boxed(key)?, boxed(value)?);
        }
        Ok(copy)
    }
}

fn boxed(bytes: &[u8]) -> Result<Box<[u8]>, InfoError> {
    let mut copy = Vec::new();
    copy.try_reserve_exact(bytes.len())?;
    copy.extend_from_slice(bytes);
    Ok(copy.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    // Shows: MPI Info, Objects | pairs | strings, one value per key | done
    // Shows: MPI Info, Functions | `MPI_Info_get_nthkey` | numbers stay as long as nothing is set or deleted | done: also
    // if a key is set again
    #[test]
    fn pairs_keep_their_order_until_one_is_deleted() {
        let mut info = Info::default();
        for (key, value) in [("b", "1"), ("a", "2"), ("B", "3"), ("a", "4")] {
            info.set(key.as_bytes(), value.as_bytes()).unwrap();
        }
        let keys = |info: &Info| -> Vec<Vec<u8>> {
            (0..).map_while(|n| info.nth_key(n)).map(<[u8]>::to_vec).collect()
        };
        assert_eq!((info.nkeys(), keys(&info)), (3, vec![b"b".to_vec(), b"a".to_vec(), b"B".to_vec()]));
        assert_eq!(info.get(b"a"), Ok(Some(&b"4"[..])));
        let copy = info.copy().unwrap();
        assert_eq!(info.delete(b"b"), Ok(()));
        assert_eq!(keys(&info), [b"a".to_vec(), b"B".to_vec()]);
        assert_eq!(info.delete(b"b"), Err(InfoError::NoKey));
        assert_eq!(info.get(b"b"), Ok(None));
        assert_eq!(keys(&copy), [b"b".to_vec(), b"a".to_vec(), b"B".to_vec()]);
    }

    #[test]
    fn lengths_have_limits_and_the_number_of_pairs_has_none() {
        let mut info = Info::default();
        let (key, value) = ([b'k'; INFO_KEY_MAX + 1], [b'v'; INFO_VALUE_MAX + 1]);
        assert_eq!(info.set(b"", b""), Err(InfoError::KeyLength));
        assert_eq!(info.set(&key, b""), Err(InfoError::KeyLength));
        assert_eq!(info.set(b"k", &value), Err(InfoError::ValueLength));
        assert_eq!(info.get(&key), Err(InfoError::KeyLength));
        assert_eq!(info.get(b""), Ok(None), "an empty key is not too long");
        assert_eq!((info.delete(b""), info.delete(&key)), (Err(InfoError::NoKey), Err(InfoError::NoKey)));
        assert_eq!(info.nkeys(), 0);
        for n in 0..10_000 {
            info.set(format!("{n:0255}").as_bytes(), &value[1..]).unwrap();
        }
        assert_eq!(info.nkeys(), 10_000);
        assert_eq!(info.nth_key(9_999), Some(format!("{:0255}", 9_999).as_bytes()));
    }
}
