//! Serialization of byte slices in one piece instead of element by element, with the same result.

use serde::Serializer;

/// For `serialize_with`.
pub(crate) fn in_one_piece<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_bytes(bytes)
}
