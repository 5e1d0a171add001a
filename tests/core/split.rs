//! Division of a message into the reads of a host.

/// How a message's bytes arrive.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Split {
    /// All at once.
    Whole,
    /// One byte at a time.
    Bytes,
    /// Pieces whose sizes follow from the number.
    Random(u64),
}

impl Split {
    /// Divides a message. Random pieces have at most `longest` bytes.
    pub(crate) fn pieces<'a>(&mut self, mut bytes: &'a [u8], longest: usize) -> Vec<&'a [u8]> {
        let mut pieces = Vec::new();
        while !bytes.is_empty() {
            let most = match self {
                Split::Whole => bytes.len(),
                Split::Bytes => 1,
                Split::Random(state) => {
                    *state =
                        state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    1 + (*state >> 33) as usize % longest
                }
            };
            let (piece, rest) = bytes.split_at(most.min(bytes.len()));
            pieces.push(piece);
            bytes = rest;
        }
        pieces
    }
}
