//! MPI libraries and client libraries of process managers, by the names of their files.

/// Protocol between a rank and its process manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// PMI-1 or PMI-2.
    Pmi,
    /// PMIx.
    Pmix,
}

impl Protocol {
    /// Its name for users.
    pub fn name(self) -> &'static str {
        match self {
            Protocol::Pmi => "PMI-1 or PMI-2",
            Protocol::Pmix => "PMIx",
        }
    }
}

/// MPI library or client library of a process manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Library {
    /// Its name for users.
    pub name: &'static str,
    /// Protocol that it speaks.
    pub protocol: Protocol,
    /// Variable by which it finds its process manager.
    pub variable: &'static str,
}

pub(crate) const OPEN_MPI: Library =
    Library { name: "Open MPI", protocol: Protocol::Pmix, variable: "PMIX_NAMESPACE" };
const LIBPMIX: Library = Library { name: "libpmix", protocol: Protocol::Pmix, variable: "PMIX_NAMESPACE" };
const MPICH: Library = Library { name: "MPICH's ABI", protocol: Protocol::Pmi, variable: "PMI_RANK" };
const LIBPMI: Library = Library { name: "libpmi", protocol: Protocol::Pmi, variable: "PMI_RANK" };

/// Returns the library with the file name of a shared object, as `libmpi.so.12`.
pub fn library(file: &str) -> Option<Library> {
    match file.split_once(".so.")? {
        ("libmpi", "12" | "0") | ("libmpich" | "libmpi_abi", _) => Some(MPICH),
        ("libmpi", _) => Some(OPEN_MPI),
        ("libpmix", _) => Some(LIBPMIX),
        ("libpmi" | "libpmi2", _) => Some(LIBPMI),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_known_by_their_files() {
        let known = [
            ("libmpi.so.40", Some(OPEN_MPI)),
            ("libmpi.so.12", Some(MPICH)),
            ("libmpich.so.12", Some(MPICH)),
            ("libmpi_abi.so.0", Some(MPICH)),
            ("libpmix.so.2", Some(LIBPMIX)),
            ("libpmi2.so.0", Some(LIBPMI)),
            ("libc.so.6", None),
            ("libmpi.so", None),
        ];
        for (file, expected) in known {
            assert_eq!(library(file), expected, "{file}");
        }
    }
}
