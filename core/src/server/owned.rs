//! Inputs and outputs that own their bytes, for hosts that keep them or send them to other processes.

use alloc::string::String;
use alloc::vec::Vec;
use core::convert::Infallible;

use super::io::{InputOf, OutputOf};

/// Input with bytes on the heap.
pub type OwnedInput = InputOf<Vec<u8>, String>;

/// Output with bytes on the heap.
pub type OwnedOutput = OutputOf<Vec<u8>, String>;

impl<B: AsRef<[u8]>, T: AsRef<str>> OutputOf<B, T> {
    /// Copies this output to the heap.
    pub fn to_owned(&self) -> OwnedOutput {
        let Ok(owned) = self.map(|bytes| Ok::<_, Infallible>(bytes.to_vec()), |text| Ok(text.into()));
        owned
    }
}
