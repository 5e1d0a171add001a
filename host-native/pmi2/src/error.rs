//! What can go wrong, and the codes of pmi2.h for it.

use std::ffi::c_int;
use std::io;

use hydrant_core::client;
use hydrant_core::wire::Op;

/// The return codes of pmi2.h.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
#[allow(missing_docs, reason = "documented in pmi2.h, as PMI2_ERR_ and the same name")]
pub enum Code {
    Success = 0,
    Fail = -1,
    Init = 1,
    NoMem = 2,
    InvalidArg = 3,
    InvalidKey = 4,
    InvalidKeyLength = 5,
    InvalidVal = 6,
    InvalidValLength = 7,
    InvalidLength = 8,
    InvalidNumArgs = 9,
    InvalidArgs = 10,
    InvalidNumParsed = 11,
    InvalidKeyvalp = 12,
    InvalidSize = 13,
    Other = 14,
}

impl Code {
    /// What a server's `rc` says. hydrant sends the codes of pmi2.h; 1 and what is not among them is a plain failure
    /// of other servers.
    fn of_server(rc: i32) -> Code {
        use Code::*;
        let codes = [
            NoMem,
            InvalidArg,
            InvalidKey,
            InvalidKeyLength,
            InvalidVal,
            InvalidValLength,
            InvalidLength,
            InvalidNumArgs,
            InvalidArgs,
            InvalidNumParsed,
            InvalidKeyvalp,
            InvalidSize,
            Other,
        ];
        codes.into_iter().find(|&code| code as c_int == rc).unwrap_or(Fail)
    }
}

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("PMI2_Init comes first")]
    Uninitialized,
    #[error("PMI2_Finalize was called; a process is initialised once")]
    Finalized,
    #[error("PMI2_Init failed before, and the server's socket is closed")]
    Failed,
    #[error("{1}")]
    Argument(Code, &'static str),
    #[error("{name}='{value}' in the environment, which is not {wanted}")]
    Variable { name: &'static str, value: String, wanted: &'static str },
    #[error("{name} is missing in the environment, beside {beside}")]
    NoVariable { name: &'static str, beside: &'static str },
    #[error("PMI_FD={0}, which is not open: the server's socket was closed on the way here")]
    NotOpen(c_int),
    #[error("cannot connect to PMI_PORT={address}: {why}")]
    Connect { address: String, why: io::Error },
    #[error("the connection to the server broke: {0}")]
    Broken(#[from] rustix::io::Errno),
    #[error("the server closed the connection")]
    Closed,
    #[error("the request is longer than a message may be (64 KiB)")]
    TooLong,
    #[error("{0}")]
    Client(client::Error),
    #[error("the server answered {0:?} with something else")]
    Unexpected(Op),
    #[error("the server refused {op:?} with rc {rc}: {text}")]
    Refused { op: Op, rc: i32, text: String },
    #[error("no such key")]
    Missing,
    #[error("the value is longer than the caller's buffer and was cut")]
    Cut,
    #[error("the value is not a list of integers")]
    NotIntegers,
    #[error("the server does not tell how many processes share this node")]
    NoNodeSize,
    #[error("the server within cannot be made: {0}")]
    Within(hydrant_core::Fault),
    #[error("a bug in this library, whose panic stands above")]
    Panicked,
}

impl Error {
    /// The code that the caller gets.
    pub(crate) fn code(&self) -> Code {
        match self {
            Error::Uninitialized
            | Error::Finalized
            | Error::Failed
            | Error::Variable { .. }
            | Error::NoVariable { .. }
            | Error::NotOpen(_) => Code::Init,
            Error::Argument(code, _) => *code,
            Error::Refused { rc, .. } => Code::of_server(*rc),
            Error::Cut => Code::NoMem,
            Error::TooLong => Code::InvalidLength,
            Error::NotIntegers => Code::InvalidVal,
            Error::Missing | Error::NoNodeSize => Code::Other,
            Error::Connect { .. }
            | Error::Broken(_)
            | Error::Closed
            | Error::Client(_)
            | Error::Unexpected(_)
            | Error::Within(_)
            | Error::Panicked => Code::Fail,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_codes_are_those_of_pmi2_h() {
        for rc in 2..=14 {
            assert_eq!(Code::of_server(rc) as c_int, rc);
        }
        for rc in [-1, 1, 15, i32::MIN] {
            assert_eq!(Code::of_server(rc), Code::Fail);
        }
    }
}
