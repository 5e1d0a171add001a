//! Info object of MPI: ordered pairs of key and value (MPI 5.0, chapter 10).
//!
//! Keys and values are case-sensitive bytes. Nothing is stripped from them, as in C. [`value`] parses booleans,
//! integers and lists.
//!
//! An object uses memory of fixed size that its creator provides. It holds the records one after another. A record is
//! the length of the key, the length of the value in two bytes, the key, and the value.

pub mod value;

mod environment;
#[cfg(test)]
mod tests;

use core::fmt;

pub use environment::Environment;

/// Maximum length of a key in bytes without NUL. The standard requires 32 to 255.
pub const INFO_KEY_MAX: usize = 255;
/// Maximum length of a value in bytes without NUL.
pub const INFO_VALUE_MAX: usize = 1024;
/// Bytes of memory that a pair takes in addition to its key and its value.
pub const INFO_HEADER: usize = 3;

/// Error of an operation. The object is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InfoError {
    /// A key that is empty or longer than [`INFO_KEY_MAX`] bytes: `MPI_ERR_INFO_KEY`.
    KeyLength,
    /// A value longer than [`INFO_VALUE_MAX`] bytes: `MPI_ERR_INFO_VALUE`.
    ValueLength,
    /// A missing key to delete: `MPI_ERR_INFO_NOKEY`.
    NoKey,
    /// Memory without room for the pair: `MPI_ERR_NO_MEM`. The number is the size of the memory in bytes.
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

/// Info object in memory `S`: an array, a borrowed slice or a box.
#[derive(Clone, Copy, Debug)]
pub struct Info<S> {
    memory: S,
    used: u32,
    keys: u32,
}

/// Location of a record.
struct Place {
    start: usize,
    end: usize,
}

impl<S: AsRef<[u8]>> Info<S> {
    /// Creates an object without keys. The content of the memory does not matter. Memory beyond 4 GiB is not used.
    pub const fn new(memory: S) -> Info<S> {
        Info { memory, used: 0, keys: 0 }
    }

    /// Returns the value of a key, or `None` without one.
    ///
    /// # Errors
    /// [`InfoError::KeyLength`]
    pub fn get(&self, key: &[u8]) -> Result<Option<&[u8]>, InfoError> {
        check_key(key)?;
        Ok(self.iter().find(|(known, _)| *known == key).map(|(_, value)| value))
    }

    /// Returns the length of a key's value in bytes without NUL, or `None` without one.
    ///
    /// # Errors
    /// [`InfoError::KeyLength`]
    pub fn get_valuelen(&self, key: &[u8]) -> Result<Option<u32>, InfoError> {
        Ok(self.get(key)?.map(|value| value.len() as u32))
    }

    /// Copies a key's value as [`copy_string`] does, and returns its result. Returns `None` without a value.
    ///
    /// # Errors
    /// [`InfoError::KeyLength`]
    pub fn get_string(&self, key: &[u8], buf: &mut [u8]) -> Result<Option<u32>, InfoError> {
        Ok(self.get(key)?.map(|value| copy_string(value, buf)))
    }

    /// Returns the number of keys.
    pub fn nkeys(&self) -> u32 {
        self.keys
    }

    /// Returns the key with that number, from 0. Numbers change only when an earlier key is deleted. Setting an
    /// existing key does not change them.
    pub fn nth_key(&self, n: u32) -> Option<&[u8]> {
        self.iter().nth(n as usize).map(|(key, _)| key)
    }

    /// Returns all pairs in their order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut rest = self.records();
        core::iter::from_fn(move || {
            let (key, value) = read(rest)?;
            rest = &rest[INFO_HEADER + key.len() + value.len()..];
            Some((key, value))
        })
    }

    /// Copies the pairs to other memory, in the same order.
    ///
    /// # Errors
    /// [`InfoError::Full`] if the memory is shorter than the used part of this one.
    pub fn dup<T: AsRef<[u8]> + AsMut<[u8]>>(&self, mut memory: T) -> Result<Info<T>, InfoError> {
        let from = self.records();
        let full = InfoError::Full(memory.as_ref().len() as u32);
        memory.as_mut().get_mut(..from.len()).ok_or(full)?.copy_from_slice(from);
        Ok(Info { memory, used: self.used, keys: self.keys })
    }

    fn records(&self) -> &[u8] {
        // Memory that has become shorter than before counts as empty.
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
    /// Sets a key to a value. An existing key keeps its position, a new one is appended.
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

    /// Deletes a key and its value. Later pairs move up.
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

/// Copies a text to a C string: as much of it as fits, followed by NUL. Does not change an empty buffer. Returns the
/// buffer length for the whole text, including NUL.
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

/// Returns the first of these records.
fn read(records: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&[key, low, high], text) = records.split_first_chunk()?;
    let (key, rest) = text.split_at_checked(key.into())?;
    Some((key, rest.get(..u16::from_le_bytes([low, high]).into())?))
}
