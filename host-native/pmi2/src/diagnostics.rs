//! Diagnostics on standard error.

use std::fmt::Display;

/// Whether the user requests diagnostics: `PMI2_DEBUG` is set, and neither empty nor `0`.
pub(crate) fn enabled() -> bool {
    std::env::var_os("PMI2_DEBUG").is_some_and(|value| !value.is_empty() && value != "0")
}

/// Prints a message of a function of `pmi2.h`.
pub(crate) fn print(function: &str, message: impl Display) {
    eprintln!("hydrant-pmi2: {function}: {message}");
}
