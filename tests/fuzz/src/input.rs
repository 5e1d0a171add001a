//! Reader that turns the bytes of a fuzzer into numbers and strings.

/// Bytes of a fuzzer. Reads beyond the end give zeros and empty slices.
#[derive(Clone, Copy, Debug)]
pub struct FuzzInput<'a>(pub &'a [u8]);

impl<'a> FuzzInput<'a> {
    /// Returns whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Draws a number below `count` from all bytes that are left. Checks that cost much are made for one number. The input
    /// alone decides, so that a finding can be repeated, and no single byte does, so that few entries of a corpus ask for
    /// them.
    pub fn lot(&self, count: u32) -> u32 {
        crc32fast::hash(self.0) % count
    }

    /// Takes a byte.
    pub fn byte(&mut self) -> u8 {
        self.slice(1).first().copied().unwrap_or_default()
    }

    /// Takes two bytes as a number.
    pub fn short(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    /// Takes up to `len` bytes.
    pub fn slice(&mut self, len: usize) -> &'a [u8] {
        let (slice, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        slice
    }

    /// Takes a slice whose length is the next byte. The length 255 stands for all that is left.
    pub fn string(&mut self) -> &'a [u8] {
        match self.byte() {
            255 => std::mem::take(&mut self.0),
            len => self.slice(len.into()),
        }
    }
}
