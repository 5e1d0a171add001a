//! Info object of MPI: ordered pairs of key and value (MPI 5.0, chapter 10).
//!
//! Keys and values are bytes, told apart by case, and taken as they are: in C nothing is stripped from them. What a
//! value means, where it is known to be a boolean, an integer or a list, is for [`value`] to say.
//!
//! An object works in memory of fixed size that its maker hands it, one record behind the other: the key's length, the
//! value's in two bytes, the key, the value.

pub mod value;

mod environment;
#[cfg(test)]
mod tests;

use core::fmt;

pub use environment::Environment;

/// Longest key in bytes, NUL not counted. The standard wants at least 32 and at most 255.
pub const INFO_KEY_MAX: usize = 255;
/// Longest value in bytes, NUL not counted.
pub const INFO_VALUE_MAX: usize = 1024;
/// Bytes of memory that a pair takes beside its key and its value.
pub const INFO_HEADER: usize = 3;

/// Why an operation was not carried out; nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InfoError {
    /// An empty key, or one over [`INFO_KEY_MAX`] bytes: `MPI_ERR_INFO_KEY`.
    KeyLength,
    /// A value over [`INFO_VALUE_MAX`] bytes: `MPI_ERR_INFO_VALUE`.
    ValueLength,
    /// A key to delete that is not there: `MPI_ERR_INFO_NOKEY`.
    NoKey,
    /// The object's memory, of so many bytes, has no room for the pair: `MPI_ERR_NO_MEM`.
    Full(u32),
}

impl fmt::Display for InfoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InfoError::KeyLength => write!(f, "an info key has 1 to {INFO_KEY_MAX} bytes"),
            InfoError::ValueLength => write!(f, "an info value has at most {INFO_VALUE_MAX} bytes"),
            InfoError::NoKey => f.write_str("the info object has no such key"),
            InfoError::Full(size) => write!(f, "the info object's {size} bytes are used up"),
        }
    }
}

impl core::error::Error for InfoError {}

/// An info object in memory `S`: an array, a borrowed slice, a box.
#[derive(Clone, Copy, Debug)]
pub struct Info<S> {
    memory: S,
    used: u32,
    keys: u32,
}

/// Where a record stands.
struct Place {
    start: usize,
    end: usize,
}

impl<S: AsRef<[u8]>> Info<S> {
    /// An object without keys. What the memory holds does not matter; beyond 4 GiB it is not used.
    pub const fn new(memory: S) -> Info<S> {
        Info { memory, used: 0, keys: 0 }
    }

    /// The value of a key, where there is one.
    ///
    /// # Errors
    /// [`InfoError::KeyLength`]
    pub fn get(&self, key: &[u8]) -> Result<Option<&[u8]>, InfoError> {
        check_key(key)?;
        Ok(self.iter().find(|(known, _)| *known == key).map(|(_, value)| value))
    }

    /// The length of a key's value in bytes, NUL not counted, where there is one.
    ///
    /// # Errors
    /// [`InfoError::KeyLength`]
    pub fn get_valuelen(&self, key: &[u8]) -> Result<Option<u32>, InfoError> {
        Ok(self.get(key)?.map(|value| value.len() as u32))
    }

    /// Copies a key's value, where there is one, as [`copy_string`] does; what that gives.
    ///
    /// # Errors
    /// [`InfoError::KeyLength`]
    pub fn get_string(&self, key: &[u8], buf: &mut [u8]) -> Result<Option<u32>, InfoError> {
        Ok(self.get(key)?.map(|value| copy_string(value, buf)))
    }

    /// How many keys there are.
    pub fn nkeys(&self) -> u32 {
        self.keys
    }

    /// The key with that number, from 0. Numbers stay as they are until a key is set or deleted; setting a key that
    /// is there, and deleting a later one, leaves them alone too.
    pub fn nth_key(&self, n: u32) -> Option<&[u8]> {
        self.iter().nth(n as usize).map(|(key, _)| key)
    }

    /// All pairs in their order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut rest = self.records();
        core::iter::from_fn(move || {
            let (key, value) = read(rest)?;
            rest = &rest[INFO_HEADER + key.len() + value.len()..];
            Some((key, value))
        })
    }

    /// The same pairs in the same order, in other memory.
    ///
    /// # Errors
    /// [`InfoError::Full`] when that is shorter than what is used of this one's.
    pub fn dup<T: AsRef<[u8]> + AsMut<[u8]>>(&self, mut memory: T) -> Result<Info<T>, InfoError> {
        let from = self.records();
        let full = InfoError::Full(memory.as_ref().len() as u32);
        memory.as_mut().get_mut(..from.len()).ok_or(full)?.copy_from_slice(from);
        Ok(Info { memory, used: self.used, keys: self.keys })
    }

    fn records(&self) -> &[u8] {
        // Memory that gives less than it did holds nothing.
        self.memory.as_ref().get(..self.used as usize).unwrap_or_default()
    }

    fn place(&self, key: &[u8]) -> Option<Place> {
        let mut start = 0;
        for (known, value) in self.iter() {
            let end = start + INFO_HEADER + known.len() + value.len();
            if known == key {
                return Some(Place { start, end });
            }
            start = end;
        }
        None
    }
}

impl<S: AsRef<[u8]> + AsMut<[u8]>> Info<S> {
    /// Sets a key to a value. One that is there keeps its place, a new one comes last.
    ///
    /// # Errors
    /// [`InfoError::KeyLength`], [`InfoError::ValueLength`], [`InfoError::Full`]
    pub fn set(&mut self, key: &[u8], value: &[u8]) -> Result<(), InfoError> {
        check_key(key)?;
        if value.len() > INFO_VALUE_MAX {
            return Err(InfoError::ValueLength);
        }
        let used = self.used as usize;
        let place = self.place(key);
        let Place { start, end } = place.unwrap_or(Place { start: used, end: used });
        let memory = self.memory.as_mut();
        let size = memory.len().min(u32::MAX as usize);
        let behind = start + INFO_HEADER + key.len() + value.len();
        let total = behind + (used - end);
        if total > size {
            return Err(InfoError::Full(size as u32));
        }
        memory.copy_within(end..used, behind);
        let (header, text) = memory[start..behind].split_at_mut(INFO_HEADER);
        // Both lengths have been checked.
        header[0] = key.len() as u8;
        header[1..].copy_from_slice(&(value.len() as u16).to_le_bytes());
        text[..key.len()].copy_from_slice(key);
        text[key.len()..].copy_from_slice(value);
        self.used = total as u32;
        self.keys += u32::from(start == used);
        Ok(())
    }

    /// Deletes a key and its value. Those behind it move up.
    ///
    /// # Errors
    /// [`InfoError::KeyLength`], [`InfoError::NoKey`]
    pub fn delete(&mut self, key: &[u8]) -> Result<(), InfoError> {
        check_key(key)?;
        let Place { start, end } = self.place(key).ok_or(InfoError::NoKey)?;
        let used = self.used as usize;
        self.memory.as_mut().copy_within(end..used, start);
        self.used -= (end - start) as u32;
        self.keys -= 1;
        Ok(())
    }
}

/// Copies a text to a C string: as much of it as fits with a NUL behind it. An empty buffer is left alone. Gives the
/// length that a buffer needs for all of it, NUL included.
pub fn copy_string(text: &[u8], buf: &mut [u8]) -> u32 {
    if let Some(room) = buf.len().checked_sub(1) {
        let len = text.len().min(room);
        buf[..len].copy_from_slice(&text[..len]);
        buf[len] = 0;
    }
    text.len() as u32 + 1
}

fn check_key(key: &[u8]) -> Result<(), InfoError> {
    if key.is_empty() || key.len() > INFO_KEY_MAX { Err(InfoError::KeyLength) } else { Ok(()) }
}

/// The first of these records.
fn read(records: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&[key, low, high], text) = records.split_first_chunk()?;
    let (key, rest) = text.split_at_checked(key.into())?;
    Some((key, rest.get(..u16::from_le_bytes([low, high]).into())?))
}
