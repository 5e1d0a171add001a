//! Serialization of byte slices as a whole. The output is the same as element by element.

use serde::Serializer;

/// Serializes bytes, for `serialize_with`.
pub(crate) fn in_one_piece<S: Serializer>(
    bytes: &impl AsRef<[u8]>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.serialize_bytes(bytes.as_ref())
}
