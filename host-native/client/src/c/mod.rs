//! State of the process, checked pointers, errors and codes of the C libraries.
//!
//! `libpmi.so.0` and `libpmi2.so.0` are built of this module. A function of theirs is a [`Library::call`] around its
//! body. The body takes the [`Lifecycle`]'s process and checks each argument by [`text`], [`Out`] and [`OutBuffer`].

mod error;
mod lifecycle;
mod pointer;
mod spawn;

use std::ffi::c_int;
use std::fmt::Display;
use std::panic::{self, AssertUnwindSafe};

pub use error::{CallError, Code};
pub use lifecycle::{Lifecycle, connect, segment};
pub use pointer::{
    KEY_MAX, Out, OutBuffer, VALUE_MAX, abort_message, array, binary_value, element, key, length, nonempty,
    text, value,
};
pub use spawn::{Pair, SpawnProgram, Spawned, count, maxprocs, pair, preput, spawn};

/// The exit status of a process that aborted without another one.
pub const ABORTED: c_int = 1;

/// A C library: how its errors are printed and returned.
#[derive(Clone, Copy, Debug)]
pub struct Library {
    /// Name in front of messages.
    pub name: &'static str,
    /// Function that joins the job. Its errors are always printed, because most callers end the program with the code
    /// alone.
    pub init: &'static str,
    /// Variable that has the reason of each error printed.
    pub debug: &'static str,
    /// Return code of an error.
    pub code: fn(&CallError) -> c_int,
}

impl Library {
    /// Runs a function's body and converts its error to a code. Panics are caught and are errors too.
    #[inline(always)]
    pub fn call(&self, function: &'static str, body: impl FnOnce() -> Result<(), CallError>) -> c_int {
        let outcome = panic::catch_unwind(AssertUnwindSafe(body)).unwrap_or(Err(CallError::Panicked));
        outcome.map_or_else(|error| self.failure(function, &error), |()| Code::Success as c_int)
    }

    /// Prints an error if it has to be printed, and returns its code.
    #[cold]
    #[inline(never)]
    fn failure(&self, function: &'static str, error: &CallError) -> c_int {
        if function == self.init || self.debugs() {
            self.print(function, error);
        }
        (self.code)(error)
    }

    /// Whether the user requests diagnostics: the variable is set, and neither empty nor `0`.
    pub fn debugs(&self) -> bool {
        std::env::var_os(self.debug).is_some_and(|value| !value.is_empty() && value != "0")
    }

    /// Prints a message of a function to standard error.
    pub fn print(&self, function: &str, message: impl Display) {
        eprintln!("{}: {function}: {message}", self.name);
    }
}
