//! Bytes for serde, which takes a slice one element at a time otherwise. What is written is the same.

use serde::Serializer;

/// For `serialize_with`.
pub(crate) fn in_one_piece<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_bytes(bytes)
}
