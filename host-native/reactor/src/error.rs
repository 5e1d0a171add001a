//! Failed system call and its operation.

use std::io;

use rustix::io::Errno;

/// A system call failed that has no reason to.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {why}")]
pub struct Error {
    /// The operation, for example `epoll_wait`.
    pub what: &'static str,
    /// The error of the system.
    pub why: io::Error,
}

impl Error {
    /// For `map_err`: adds the name of the operation.
    pub fn during<E: Into<io::Error>>(what: &'static str) -> impl Fn(E) -> Error {
        move |why| Error { what, why: why.into() }
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        error.why
    }
}

impl From<Error> for Errno {
    fn from(error: Error) -> Errno {
        Errno::from_io_error(&error.why).unwrap_or(Errno::IO)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_operation_comes_first() {
        let error = Error::during("epoll_create")(Errno::MFILE);
        assert_eq!(error.to_string(), format!("epoll_create: {}", io::Error::from(Errno::MFILE)));
        assert_eq!(Errno::from(error), Errno::MFILE);
    }
}
