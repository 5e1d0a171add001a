//! Errors of calls, their codes, and the last one of each thread.

use std::cell::{Cell, RefCell};
use std::error::Error as StdError;
use std::ffi::{CString, c_char, c_int};
use std::io;

use hydrant_core::{Fault, Limit, Refusal};
use hydrant_driver::{BackendError, InsufficientMemory, ListenError, OwnedServerError};
use serde::Serialize;

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
    #[error("{given} bytes of connection {conn}, which has room for {room}")]
    Room { conn: u32, given: usize, room: usize },
    #[error(
        "connection {0} is a socket of the library, which reads, writes and closes it: {1} is for connections of \
         hydrant_host_opened"
    )]
    Socket(u32, &'static str),
    #[error("job {0} has a port already")]
    HasPort(u32),
    #[error(transparent)]
    Fault(#[from] Fault),
    #[error(transparent)]
    Memory(InsufficientMemory),
    #[error(transparent)]
    System(#[from] hydrant_reactor::Error),
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// Failure of a plugin. A server in this process fails by its own faults only.
    #[error(transparent)]
    Plugin(Box<dyn StdError + Send + Sync>),
    #[cfg(not(feature = "sandbox"))]
    #[error(
        "plugin {}: this library was built without the sandbox\nhint: host-native/host/install --sandbox builds one with it",
        .0.display()
    )]
    NoSandbox(std::path::PathBuf),
    #[error("another thread is in a call with this host")]
    Busy,
    #[error("internal error in this library; the panic message is on standard error")]
    Panicked,
}

impl Error {
    /// Returns the error of the last system call.
    pub(crate) fn system(call: &'static str) -> Error {
        hydrant_reactor::Error { what: call, why: io::Error::last_os_error() }.into()
    }

    fn code(&self) -> Code {
        match self {
            Error::Null(_)
            | Error::TooLong { .. }
            | Error::NotUtf8(_)
            | Error::Number { .. }
            | Error::Version { .. }
            | Error::Socket(..)
            | Error::HasPort(_) => Code::Argument,
            Error::Room { .. } => Code::Room,
            Error::Fault(_) => Code::Fault,
            Error::Memory(_) => Code::Memory,
            Error::System(_) | Error::Listen(_) => Code::System,
            Error::Plugin(_) => Code::Plugin,
            #[cfg(not(feature = "sandbox"))]
            Error::NoSandbox(_) => Code::NoSandbox,
            Error::Busy => Code::Busy,
            Error::Panicked => Code::Internal,
        }
    }

    fn fault(&self) -> Option<Fault> {
        if let Error::Fault(fault) = self { Some(*fault) } else { None }
    }
}

impl From<OwnedServerError> for Error {
    fn from(error: OwnedServerError) -> Error {
        match error {
            OwnedServerError::Fault(fault) => Error::Fault(fault),
            OwnedServerError::Memory(error) => Error::Memory(error),
        }
    }
}

impl From<BackendError> for Error {
    fn from(error: BackendError) -> Error {
        match error {
            BackendError::Fault(fault) => Error::Fault(fault),
            BackendError::Other(error) => Error::Plugin(error),
        }
    }
}

impl From<hydrant_driver::Error> for Error {
    fn from(error: hydrant_driver::Error) -> Error {
        match error {
            hydrant_driver::Error::Backend(error) => error.into(),
            hydrant_driver::Error::System(error) => Error::System(error),
        }
    }
}

#[cfg(feature = "sandbox")]
impl From<hydrant_wasm::PluginError> for Error {
    fn from(error: hydrant_wasm::PluginError) -> Error {
        BackendError::from(error).into()
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
