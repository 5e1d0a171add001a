//! Sessions and their hints.

use hydrant_wire::info::{boolean, list, strip};

use crate::abi::Handle;
use crate::error::Error;
use crate::info::{INFO_VALUE_MAX, Info};

/// An open session.
pub(crate) struct Session {
    /// The hints in effect.
    pub(crate) hints: Info,
    pub(crate) errhandler: Handle,
}

impl Session {
    /// Creates a session with the hints in effect for those of the user.
    pub(crate) fn new(requested: Option<&Info>, errhandler: Handle) -> Result<Session, Error> {
        Ok(Session { hints: hints(requested)?, errhandler })
    }
}

const THREAD_LEVEL: &[u8] = b"thread_level";
const STRICT_FINALIZE: &[u8] = b"strict_finalize";
const MEMORY_KINDS: &[u8] = b"mpi_memory_alloc_kinds";
const THREAD_LEVELS: [&[u8]; 4] =
    [b"MPI_THREAD_SINGLE", b"MPI_THREAD_FUNNELED", b"MPI_THREAD_SERIALIZED", b"MPI_THREAD_MULTIPLE"];
/// Restrictors of memory kind `mpi` (MPI 5.0, 11.4.3); `system` has none.
const MPI_RESTRICTORS: [&[u8]; 3] = [b"alloc_mem", b"win_allocate", b"win_allocate_shared"];

/// Returns the hints in effect for those that the user requested.
fn hints(requested: Option<&Info>) -> Result<Info, Error> {
    let get = |key| requested.map_or(Ok(None), |info| info.get(key)).map(Option::unwrap_or_default);
    let mut hints = Info::default();
    // Any thread may make any call, so that every level is supported.
    let level = strip(get(THREAD_LEVEL)?);
    let level = THREAD_LEVELS.iter().find(|known| **known == level).unwrap_or(&THREAD_LEVELS[3]);
    hints.set(THREAD_LEVEL, level)?;
    let strict = boolean(get(STRICT_FINALIZE)?).unwrap_or(false);
    hints.set(STRICT_FINALIZE, if strict { b"true" } else { b"false" })?;
    hints.set(MEMORY_KINDS, &memory_kinds(get(MEMORY_KINDS)?))?;
    Ok(hints)
}

/// Returns the requested memory kinds that this library knows, and the two mandatory ones.
fn memory_kinds(requested: &[u8]) -> Vec<u8> {
    let mut kinds: Vec<&[u8]> = vec![b"mpi", b"system"];
    for kind in list(requested) {
        let mut parts = kind.split(|&byte| byte == b':');
        let known = match parts.next() {
            Some(b"mpi") => parts.all(|part| MPI_RESTRICTORS.contains(&part)),
            Some(b"system") => parts.next().is_none(),
            _ => false,
        };
        let len: usize = kinds.iter().map(|kind| kind.len() + 1).sum();
        if known && !kinds.contains(&kind) && len + kind.len() <= INFO_VALUE_MAX {
            kinds.push(kind);
        }
    }
    kinds.join(&b","[..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_memory_kinds_are_in_effect() {
        let text = |requested: &str| String::from_utf8(memory_kinds(requested.as_bytes())).unwrap();
        assert_eq!(text(""), "mpi,system");
        assert_eq!(text(" system , mpi:alloc_mem ,cuda:device"), "mpi,system,mpi:alloc_mem");
        assert_eq!(
            text("mpi:alloc_mem:win_allocate,mpi:magic,system:x"),
            "mpi,system,mpi:alloc_mem:win_allocate"
        );
        let many = "mpi:alloc_mem,".repeat(3) + &"mpi:win_allocate:alloc_mem:win_allocate,".repeat(40);
        assert!(text(&many).len() <= INFO_VALUE_MAX);
    }

    // Shows: MPI Info, Objects | a known key with a value that it cannot have | is left open | free: spawn refuses it,
    // sessions ignore it
    // Also: hydrant-start `malformed_values_are_invalid`
    #[test]
    fn invalid_hints_are_ignored() {
        let hints_of = |requested: &Info| hints(Some(requested)).unwrap();
        let value = |hints: &Info, key| String::from_utf8(hints.get(key).unwrap().unwrap().to_vec()).unwrap();
        let mut requested = Info::default();
        requested.set(THREAD_LEVEL, b" MPI_THREAD_FUNNELED ").unwrap();
        requested.set(STRICT_FINALIZE, b" true").unwrap();
        let hints = hints_of(&requested);
        assert_eq!(
            (value(&hints, THREAD_LEVEL), value(&hints, STRICT_FINALIZE)),
            ("MPI_THREAD_FUNNELED".into(), "true".into())
        );
        requested.set(THREAD_LEVEL, b"mpi_thread_funneled").unwrap();
        requested.set(STRICT_FINALIZE, b"True").unwrap();
        let hints = hints_of(&requested);
        assert_eq!(
            (value(&hints, THREAD_LEVEL), value(&hints, STRICT_FINALIZE)),
            ("MPI_THREAD_MULTIPLE".into(), "false".into())
        );
    }
}
