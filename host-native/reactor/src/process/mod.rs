//! Child processes: looking up a program, and starting one without copying this process.

mod helper;
mod lookup;
mod spawn;

pub use helper::{HelperError, start_helper};
pub use lookup::{DEFAULT_PATH, check_executable, find_in_path};
pub use spawn::{Attributes, Request, spawn};
