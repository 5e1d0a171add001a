//! Errors of a call from C and their return codes.

use crate::Error as ClientError;

/// Return codes of `pmi2.h`. Those of `pmi.h` are the same up to 13.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
#[allow(missing_docs, reason = "documented in pmi.h and pmi2.h, as PMI_ERR_, PMI2_ERR_ and the same name")]
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
    /// Converts the `rc` of a server. hydrant sends the codes of `pmi2.h`. 1 and unknown numbers are plain failures of
    /// other servers.
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
        codes.into_iter().find(|&code| code as i32 == rc).unwrap_or(Fail)
    }
}

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// A call before the first one.
    #[error("PMI is not initialised in this process")]
    Uninitialized,
    /// A call after the last one.
    #[error("PMI is finalised in this process; a process can initialise it once")]
    Finalized,
    /// Another initialisation after one that had reached the server.
    #[error("an earlier initialisation failed and closed the connection to the PMI server")]
    InitFailed,
    /// An argument is invalid.
    #[error("{1}")]
    Argument(Code, &'static str),
    /// The connection failed, or the server refused the request.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The server inside the process could not be created.
    #[error("cannot create the server of a singleton: {0}")]
    Singleton(hydrant_core::Fault),
    /// There is no value.
    #[error("no such key")]
    NoSuchKey,
    /// There is no key-value space of that name, or it is not readable for this process.
    #[error("no such key-value space")]
    NoSuchSpace,
    /// A text does not fit the caller's buffer.
    #[error("the value is longer than the caller's buffer and was truncated")]
    Truncated,
    /// A value is not a list of integers.
    #[error("the value is not a list of integers")]
    NotIntegers,
    /// The server does not say which ranks share the node.
    #[error("the PMI server has neither localRanksCount nor PMI_process_mapping")]
    NoNodeSize,
    /// The server or the library lacks the function.
    #[error("{0}")]
    Unsupported(&'static str),
    /// The library panicked.
    #[error("internal error in this library; the panic message is above")]
    Panicked,
}

impl CallError {
    /// Returns the code for a caller of `pmi2.h`.
    pub fn code(&self) -> Code {
        match self {
            CallError::Uninitialized | CallError::Finalized | CallError::InitFailed => Code::Init,
            CallError::Argument(code, _) => *code,
            CallError::Client(error) => client_code(error),
            CallError::Truncated => Code::NoMem,
            CallError::NotIntegers => Code::InvalidVal,
            CallError::NoSuchKey
            | CallError::NoSuchSpace
            | CallError::NoNodeSize
            | CallError::Unsupported(_) => Code::Other,
            CallError::Singleton(_) | CallError::Panicked => Code::Fail,
        }
    }
}

fn client_code(error: &ClientError) -> Code {
    match error {
        ClientError::InvalidVariable { .. }
        | ClientError::MissingVariable { .. }
        | ClientError::NotOpen(_)
        | ClientError::NotSocket(_) => Code::Init,
        ClientError::Refused { rc, .. } => Code::of_server(*rc),
        ClientError::RequestTooLong => Code::InvalidLength,
        ClientError::Connect { .. }
        | ClientError::Io(_)
        | ClientError::Transport(_)
        | ClientError::Closed
        | ClientError::Protocol(_)
        | ClientError::UnexpectedReply(_)
        | ClientError::Poisoned => Code::Fail,
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::c_int;

    use hydrant_wire::Op;

    use super::*;

    // Shows: pmi2.h, Return codes | all codes | the same numbers in the `rc` of a reply | done
    // Also: libraries `pmi2::functions::every_code_where_it_belongs`
    #[test]
    fn servers_codes_are_those_of_pmi2_h() {
        for rc in 2..=14 {
            assert_eq!(Code::of_server(rc) as c_int, rc);
        }
        for rc in [-1, 1, 15, i32::MIN] {
            assert_eq!(Code::of_server(rc), Code::Fail);
        }
    }

    #[test]
    fn client_errors_have_codes() {
        let missing = ClientError::MissingVariable { name: "PMI_RANK", required_by: "PMI_FD" };
        let invalid =
            ClientError::InvalidVariable { name: "PMI_FD", value: "x".into(), expected: "a descriptor" };
        let refused = |rc| ClientError::Refused { op: Op::Put, rc, text: String::new() };
        for (error, code) in [
            (missing, Code::Init),
            (invalid, Code::Init),
            (ClientError::NotOpen(7), Code::Init),
            (ClientError::NotSocket(7), Code::Init),
            (refused(2), Code::NoMem),
            (refused(3), Code::InvalidArg),
            (refused(1), Code::Fail),
            (refused(-1), Code::Fail),
            (ClientError::Closed, Code::Fail),
            (ClientError::RequestTooLong, Code::InvalidLength),
        ] {
            assert_eq!(CallError::from(error).code(), code);
        }
    }
}
