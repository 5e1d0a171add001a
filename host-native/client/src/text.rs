//! Owned copies of the texts in replies.

use hydrant_wire::{Failure, Op, Reply, Text};

use crate::Error;

/// Copies a text, with PMI-2's escaped semicolons decoded.
pub fn to_bytes(text: &Text<'_>) -> Vec<u8> {
    text.parts().flatten().copied().collect()
}

/// Copies a text as [`to_bytes`] does. Bytes that are not UTF-8 are replaced.
pub fn to_string(text: &Text<'_>) -> String {
    String::from_utf8_lossy(&to_bytes(text)).into_owned()
}

/// Returns the error that a reply reports, if it reports one.
pub(crate) fn refusal(reply: &Reply<'_>) -> Option<Error> {
    let Reply::Refused(op, failure) = reply else { return None };
    Some(Error::refused(*op, failure))
}

impl Error {
    /// Converts the failure in a reply to `op`.
    pub fn refused(op: Op, failure: &Failure<'_>) -> Error {
        let (rc, text) = match failure {
            Failure::Refusal(refusal) => (refusal.rc(), refusal.to_string()),
            Failure::Remote(rc, text) => (*rc, to_string(text)),
        };
        Error::Refused { op, rc, text }
    }
}
