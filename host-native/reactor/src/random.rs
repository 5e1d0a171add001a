//! Random numbers of the system.

use rustix::rand::{GetRandomFlags, getrandom};

use crate::Error;

/// Returns a random number that other processes cannot predict, for example the seed of a hash table.
///
/// # Errors
/// The system call failed.
pub fn random_u32() -> Result<u32, Error> {
    let mut bytes = [0; 4];
    getrandom(&mut bytes, GetRandomFlags::empty()).map_err(Error::during("getrandom"))?;
    Ok(u32::from_ne_bytes(bytes))
}
