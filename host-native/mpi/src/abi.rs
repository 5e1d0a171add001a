//! Numbers of the standard ABI (MPI 5.0, chapter 20 and appendix A), and of MPICH's where they differ.

use std::ffi::c_int;
use std::fmt;

/// A handle of the standard ABI: as wide as a pointer. MPICH's own are `int`, and stand in the low half of one.
pub(crate) type Handle = usize;

pub(crate) const SUCCESS: c_int = 0;
pub(crate) const SESSION_NULL: Handle = 0x120;
pub(crate) const INFO_NULL: Handle = 0x130;
pub(crate) const INFO_ENV: Handle = 0x131;
pub(crate) const ERRHANDLER_NULL: Handle = 0x140;
pub(crate) const ERRORS_ARE_FATAL: Handle = 0x141;
pub(crate) const ERRORS_ABORT: Handle = 0x142;
pub(crate) const ERRORS_RETURN: Handle = 0x143;

/// Which numbers a library goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Abi {
    /// The standard's.
    Standard,
    /// MPICH's own, which Intel MPI and others share.
    Mpich,
}

/// Error classes that are given here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    Arg,
    Other,
    InfoKey,
    InfoNoKey,
    InfoValue,
    Info,
    NoMem,
    Unsupported,
    ProcAborted,
    Session,
    Errhandler,
}

impl Class {
    /// Its number.
    pub(crate) fn code(self, abi: Abi) -> c_int {
        let (standard, mpich) = match self {
            Class::Arg => (13, 12),
            Class::Other => (16, 15),
            Class::InfoKey => (31, 29),
            Class::InfoNoKey => (32, 31),
            Class::InfoValue => (33, 30),
            Class::Info => (34, 28),
            Class::NoMem => (39, 34),
            Class::Unsupported => (55, 44),
            Class::ProcAborted => (58, 76),
            Class::Session => (60, 75),
            Class::Errhandler => (61, 80),
        };
        match abi {
            Abi::Standard => standard,
            Abi::Mpich => mpich,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Class::Arg => "MPI_ERR_ARG",
            Class::Other => "MPI_ERR_OTHER",
            Class::InfoKey => "MPI_ERR_INFO_KEY",
            Class::InfoNoKey => "MPI_ERR_INFO_NOKEY",
            Class::InfoValue => "MPI_ERR_INFO_VALUE",
            Class::Info => "MPI_ERR_INFO",
            Class::NoMem => "MPI_ERR_NO_MEM",
            Class::Unsupported => "MPI_ERR_UNSUPPORTED_OPERATION",
            Class::ProcAborted => "MPI_ERR_PROC_ABORTED",
            Class::Session => "MPI_ERR_SESSION",
            Class::Errhandler => "MPI_ERR_ERRHANDLER",
        }
    }
}

/// An error before any handler has seen it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Error {
    pub(crate) class: Class,
    text: String,
}

impl Error {
    pub(crate) fn new(class: Class, text: impl Into<String>) -> Error {
        Error { class, text: text.into() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.class.name(), self.text)
    }
}
