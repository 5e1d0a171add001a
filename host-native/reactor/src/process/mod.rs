//! Child processes: looking up a program, starting one without copying this process, and killing process groups after
//! the end of this process.

mod guardian;
mod helper;
mod lookup;
mod spawn;

pub use guardian::Guardian;
pub use helper::{HelperError, start_helper};
pub use lookup::{DEFAULT_PATH, check_executable, find_in_path};
pub use spawn::{Attributes, Request, spawn};
