//! Constants of the standard ABI (MPI 5.0, chapter 20 and appendix A) and of MPICH's ABI.

use std::ffi::c_int;

/// A handle of the standard ABI, as wide as a pointer. A handle of MPICH's ABI is an `int` in the lower half.
pub(crate) type Handle = usize;

/// `MPI_Session_errhandler_function`
pub(crate) type ErrhandlerFunction = unsafe extern "C" fn(*mut Handle, *mut c_int, ...);

/// `SESSION_ERRHANDLER_FUNCTION`, an error handler of sessions in Fortran.
pub(crate) type FortranErrhandlerFunction = unsafe extern "C" fn(*mut c_int, *mut c_int);

pub(crate) const SUCCESS: c_int = 0;
pub(crate) const GROUP_NULL: Handle = 0x108;
pub(crate) const GROUP_EMPTY: Handle = 0x109;
pub(crate) const SESSION_NULL: Handle = 0x120;
pub(crate) const INFO_NULL: Handle = 0x130;
pub(crate) const INFO_ENV: Handle = 0x131;
pub(crate) const ERRHANDLER_NULL: Handle = 0x140;
pub(crate) const ERRORS_ARE_FATAL: Handle = 0x141;
pub(crate) const ERRORS_ABORT: Handle = 0x142;
pub(crate) const ERRORS_RETURN: Handle = 0x143;

/// `MPI_UNDEFINED`
pub(crate) const UNDEFINED: c_int = -32766;
/// `MPI_PROC_NULL`
pub(crate) const PROC_NULL: c_int = -3;
/// `MPI_IDENT`
pub(crate) const IDENT: c_int = 201;
/// `MPI_SIMILAR`
pub(crate) const SIMILAR: c_int = 203;
/// `MPI_UNEQUAL`
pub(crate) const UNEQUAL: c_int = 204;

/// The ABI of an MPI library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Abi {
    /// The standard ABI.
    Standard,
    /// MPICH's ABI, also that of Intel MPI and others.
    Mpich,
}

impl Abi {
    /// `MPI_INFO_NULL`
    pub(crate) fn info_null(self) -> Handle {
        match self {
            Abi::Standard => INFO_NULL,
            Abi::Mpich => 0x1c00_0000,
        }
    }
}

/// An MPI error class that this library returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    Rank,
    Group,
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
    /// Returns the number of the class.
    pub(crate) fn code(self, abi: Abi) -> c_int {
        let (standard, mpich) = match self {
            Class::Rank => (6, 6),
            Class::Group => (9, 8),
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

    /// Returns the name of the class in `mpi.h`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Class::Rank => "MPI_ERR_RANK",
            Class::Group => "MPI_ERR_GROUP",
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
