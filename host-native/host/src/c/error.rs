//! Errors of calls, their codes, and the last one of each thread.

use std::cell::{Cell, RefCell};
use std::ffi::{CString, c_char, c_int};

use hydrant_core::{Fault, Limit, Refusal};
use serde::Serialize;

use crate::error::Error as HostError;

/// Code of an error: `HYDRANT_ERR_...` of `hydrant_host.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
#[cfg_attr(feature = "sandbox", allow(dead_code, reason = "a library with the sandbox refuses no plugins"))]
pub(crate) enum Code {
    Argument = -1,
    Fault = -2,
    Room = -3,
    Memory = -4,
    System = -5,
    Plugin = -6,
    NoSandbox = -7,
    Busy = -8,
    Internal = -9,
}

#[cfg(test)]
impl Code {
    /// All codes with their names in the header.
    pub(crate) const ALL: [(&str, Code); 9] = [
        ("ARGUMENT", Code::Argument),
        ("FAULT", Code::Fault),
        ("ROOM", Code::Room),
        ("MEMORY", Code::Memory),
        ("SYSTEM", Code::System),
        ("PLUGIN", Code::Plugin),
        ("NO_SANDBOX", Code::NoSandbox),
        ("BUSY", Code::Busy),
        ("INTERNAL", Code::Internal),
    ];
}

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("{0} is NULL")]
    Null(&'static str),
    #[error("{what} is longer than {max} bytes")]
    TooLong { what: &'static str, max: usize },
    #[error("{0} is not UTF-8")]
    NotUtf8(&'static str),
    #[error("unknown number {number} for {what}")]
    Number { what: &'static str, number: i64 },
    #[error(
        "the program was built with hydrant_host.h of ABI version {given}, this library has {own}: build it again"
    )]
    Version { given: u32, own: u32 },
    #[error(transparent)]
    Host(#[from] HostError),
    #[error("another thread is in a call with this host")]
    Busy,
    #[error("internal error in this library; the panic message is on standard error")]
    Panicked,
}

impl Error {
    fn code(&self) -> Code {
        match self {
            Error::Null(_)
            | Error::TooLong { .. }
            | Error::NotUtf8(_)
            | Error::Number { .. }
            | Error::Version { .. } => Code::Argument,
            Error::Host(error) => match error {
                HostError::TooLong { .. }
                | HostError::Socket(..)
                | HostError::HasPort(_)
                | HostError::NoPort(_)
                | HostError::Wildcard(_)
                | HostError::Nodes { .. }
                | HostError::HostName { .. }
                | HostError::Mapping(_) => Code::Argument,
                HostError::Room { .. } => Code::Room,
                HostError::Fault(_) => Code::Fault,
                HostError::Memory(_) => Code::Memory,
                HostError::System(_) | HostError::Listen(_) => Code::System,
                HostError::Plugin(_) => Code::Plugin,
                #[cfg(not(feature = "sandbox"))]
                HostError::NoSandbox(_) => Code::NoSandbox,
            },
            Error::Busy => Code::Busy,
            Error::Panicked => Code::Internal,
        }
    }

    fn fault(&self) -> Option<Fault> {
        if let Error::Host(error) = self { error.fault() } else { None }
    }
}

thread_local! {
    static MESSAGE: RefCell<CString> = RefCell::default();
    static FAULT: Cell<Option<Fault>> = const { Cell::new(None) };
}

/// Stores an error as the last one of this thread. Returns its code.
#[cold]
pub(crate) fn store(error: &Error) -> c_int {
    let mut text = error.to_string().into_bytes();
    text.retain(|&byte| byte != 0);
    MESSAGE.set(CString::new(text).unwrap_or_default());
    FAULT.set(error.fault());
    error.code() as c_int
}

/// Returns the message of the last error. It is valid until the next call of this thread fails.
pub(crate) fn message() -> *const c_char {
    MESSAGE.with_borrow(|text| text.as_ptr())
}

/// Returns the number of the last error's fault, or none if it was another error.
pub(crate) fn fault() -> Option<u32> {
    FAULT.get().map(|fault| number(&fault))
}

/// Returns the number of the limit that the last error's fault names, if it names one.
pub(crate) fn limit() -> Option<u32> {
    let full: Option<Limit> = match FAULT.get()? {
        Fault::Full(limit, _) | Fault::Refused(Refusal::Full(limit, _) | Refusal::Quota(limit, _)) => {
            Some(limit)
        }
        _ => None,
    };
    full.map(|limit| number(&limit))
}

/// Returns the number of a variant in the plugin's ABI. The encoding of the value is at most 64 bytes long.
pub(crate) fn number(variant: &impl Serialize) -> u32 {
    let mut buf = [0; 64];
    let encoded = postcard::to_slice(variant, &mut buf).expect("the types of this ABI are short");
    // A number below 128 is one byte.
    u32::from(encoded[0])
}
