//! Random numbers of the system.

use std::io;

use crate::{Error, sys};

/// Fills a buffer of up to 256 bytes with random bytes that other processes cannot predict.
///
/// # Errors
/// The system call failed, or the buffer is longer.
pub fn fill_random(bytes: &mut [u8]) -> io::Result<()> {
    sys::fill_random(bytes)
}

/// Returns a random number that other processes cannot predict, for example the seed of a hash table.
///
/// # Errors
/// The system call failed.
pub fn random_u32() -> Result<u32, Error> {
    random().map(u32::from_ne_bytes)
}

/// Returns a random number that other processes can neither predict nor find by trying all.
///
/// # Errors
/// The system call failed.
pub fn random_u64() -> Result<u64, Error> {
    random().map(u64::from_ne_bytes)
}

fn random<const N: usize>() -> Result<[u8; N], Error> {
    let mut bytes = [0; N];
    fill_random(&mut bytes).map_err(Error::during("getrandom"))?;
    Ok(bytes)
}
