//! What can be wrong with a command line.

use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use thiserror::Error;

/// Where a word stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum At {
    /// On the command line: 1 is the first word behind `hydrant run` or `mpiexec`.
    Argument(usize),
    /// In a configuration file, with the line's number from 1.
    Line(Arc<Path>, usize),
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            At::Argument(number) => write!(f, "argument {number}"),
            At::Line(file, line) => write!(f, "{} line {line}", file.display()),
        }
    }
}

/// Text of the user's, as an error shows it: control characters are written out.
pub(super) fn shown(text: &OsStr) -> String {
    text.to_string_lossy().escape_debug().to_string()
}

/// Why a job cannot be planned from its command line: what, where, and what to do. Options are given as the user
/// spelled them.
#[derive(Debug, Error)]
pub enum UsageError {
    /// No such option.
    #[error("{at}: no option is called {option}{advice}")]
    Unknown {
        /// Where it stands.
        at: At,
        /// The option.
        option: String,
        /// What to write instead, with its punctuation, or nothing.
        advice: String,
    },
    /// The line ends where an option's value should be.
    #[error("{at}: {option} wants {wants} behind it")]
    NoValue {
        /// Where the option stands.
        at: At,
        /// The option.
        option: String,
        /// What its value is called in help.
        wants: String,
    },
    /// A switch was given a value with `=`.
    #[error("{at}: {option} takes no value; leave out what stands behind '='")]
    Superfluous {
        /// Where the option stands.
        at: At,
        /// The option.
        option: String,
    },
    /// A value that the option does not understand.
    #[error("{at}: {option} '{value}': {why}")]
    Value {
        /// Where the option stands.
        at: At,
        /// The option.
        option: String,
        /// What was given.
        value: String,
        /// What would have been right.
        why: String,
    },
    /// Two options that cannot both hold.
    #[error("{at}: {option} beside {other}: {why}; leave one of them out")]
    Contradiction {
        /// Where the later one stands.
        at: At,
        /// The later one.
        option: String,
        /// The other one.
        other: String,
        /// Why they cannot both hold.
        why: &'static str,
    },
    /// An option of the whole job behind the first program.
    #[error("{at}: {option} holds for the whole job: write it before the first program{instead}")]
    Misplaced {
        /// Where the option stands.
        at: At,
        /// The option.
        option: String,
        /// The option that holds for one program, with its punctuation, or nothing.
        instead: String,
    },
    /// An option of another command.
    #[error("{at}: {option} means nothing here: {why}; leave it out")]
    NotHere {
        /// Where it stands.
        at: At,
        /// The option.
        option: String,
        /// What is so here.
        why: &'static str,
    },
    /// `offload` without a board.
    #[error("no board is named; write for example: hydrant offload --target 192.0.2.7 -n 4 ./a.out")]
    NoTarget,
    /// Options without a program behind them.
    #[error("{at}: a program's name is missing here")]
    NoProgram {
        /// Where it is missing.
        at: At,
    },
    /// Nothing at all was named.
    #[error("no program is named; write for example: {called} -n 4 ./a.out")]
    Nothing {
        /// The command as it was called.
        called: String,
    },
    /// `--configfile` and a program or options of a program.
    #[error("{at}: beside -configfile, programs and their options stand in the file; move '{word}' there")]
    BesideFile {
        /// Where the word stands.
        at: At,
        /// What is too much.
        word: String,
    },
    /// `--configfile` in such a file.
    #[error("{at}: a configuration file cannot name another")]
    Nested {
        /// Where the option stands.
        at: At,
    },
    /// The configuration file cannot be read.
    #[error("cannot read the configuration file {file}: {error}", file = file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// The system's reason.
        #[source]
        error: io::Error,
    },
    /// The configuration file names no program.
    #[error("the configuration file {} names no program; write one to a line, for example: -n 4 ./a.out", .0.display())]
    EmptyFile(PathBuf),
    /// A quote that is never closed.
    #[error("{at}: the quote {quote} that opens here is never closed")]
    OpenQuote {
        /// Where it opens.
        at: At,
        /// The quotation mark.
        quote: char,
    },
    /// A NUL byte, which no argument can hold.
    #[error("{at}: a NUL byte, which no argument can hold")]
    Nul {
        /// Where it stands.
        at: At,
    },
    /// A process set of programs that are no neighbours.
    #[error(
        "{at}: {option} '{name}' stands at an earlier program too, but not at the one before: a process set is a run of \
         ranks, so write its programs side by side"
    )]
    ScatteredPset {
        /// Where the option stands.
        at: At,
        /// The option.
        option: String,
        /// The set.
        name: String,
    },
    /// More ranks than can be numbered.
    #[error("{at}: more than {} ranks in all", u32::MAX)]
    TooManyRanks {
        /// The program at which the sum goes beyond.
        at: At,
    },
}
