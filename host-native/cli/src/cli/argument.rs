//! Arguments and options as typed, with their locations for error messages.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

/// Place of an argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// Position on the command line. Number 1 is the first argument after `hydrant run` or `mpiexec`.
    Argument(usize),
    /// Line of a configuration file, counted from 1.
    Line(Arc<Path>, usize),
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Location::Argument(number) => write!(f, "argument {number}"),
            Location::Line(file, line) => write!(f, "{} line {line}", file.display()),
        }
    }
}

/// Argument of the command line or word of a configuration file.
#[derive(Clone, Debug)]
pub(super) struct Argument {
    pub(super) text: OsString,
    pub(super) location: Location,
}

/// Option with its value: as typed, and in clap's spelling.
#[derive(Clone, Debug)]
pub(super) struct ParsedOption {
    pub(super) location: Location,
    /// Spelling of the user, without the value.
    pub(super) spelling: String,
    /// `--name` or `--name=value`.
    pub(super) canonical: OsString,
    /// Identifier of the option in clap.
    pub(super) id: String,
    /// Whether the option applies to the whole job.
    pub(super) is_job_option: bool,
}

impl ParsedOption {
    /// Value of the option; empty for a switch.
    pub(super) fn value(&self) -> &OsStr {
        let bytes = self.canonical.as_bytes();
        let equals = bytes.iter().position(|&byte| byte == b'=');
        OsStr::from_bytes(equals.map_or(&[], |at| &bytes[at + 1..]))
    }
}

impl ParsedOption {
    /// What the option sets: of two options with the same subject only one can apply. Options that exclude each other have one
    /// subject, and each name of an option that sets names.
    pub(super) fn subject(&self) -> (&str, &[u8]) {
        let id = match self.id.as_str() {
            "genvall" | "genvnone" | "genvlist" => "inherited variables",
            "prepend_rank" | "prepend_pattern" => "line prefix",
            id => id,
        };
        let name = match id {
            "genv" | "job_attr" | "node_attr" | "limit" => {
                self.value().as_bytes().split(|&byte| byte == b'=').next().unwrap_or_default()
            }
            _ => &[],
        };
        (id, name)
    }

    /// The option with its value as typed, for an error message.
    pub(super) fn shown(&self) -> String {
        match self.value().is_empty() {
            true => self.spelling.clone(),
            false => format!("{} {}", self.spelling, escaped(self.value())),
        }
    }
}

/// User-supplied text for an error message, with control characters escaped.
pub(super) fn escaped(text: &OsStr) -> String {
    text.to_string_lossy().escape_debug().to_string()
}
