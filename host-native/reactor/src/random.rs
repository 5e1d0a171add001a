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
    let mut bytes = [0; 4];
    fill_random(&mut bytes).map_err(Error::during("getrandom"))?;
    Ok(u32::from_ne_bytes(bytes))
}
