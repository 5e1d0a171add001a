//! Messages of a run itself on standard error: one prefix, one form.

use std::cell::RefCell;
use std::fmt::Display;
use std::io::{self, Write};
use std::rc::Rc;

use hydrant_reactor::printable;

/// Prefix of the messages of `hydrant run` and `hydrant offload`.
pub const HYDRANT: &str = "hydrant";
/// Prefix of the messages of `hydrant daemon`.
pub const DAEMON: &str = "hydrant daemon";

/// Warnings of PMI servers, which the event loop prints.
pub type Warnings = Rc<RefCell<Vec<String>>>;

/// Prints `PREFIX: MESSAGE`, the message [`printable`].
/// Write errors are ignored: with standard error closed, the exit code remains.
pub fn print(prefix: &str, message: impl Display) {
    let message = message.to_string();
    let _ = writeln!(io::stderr(), "{prefix}: {}", printable(&message));
}

/// Prints an error and, on a line of its own, the remedy.
pub fn print_error(prefix: &str, error: impl Display, hint: Option<String>) {
    match hint {
        Some(hint) => print(prefix, format_args!("{error}\nhint: {hint}")),
        None => print(prefix, error),
    }
}
