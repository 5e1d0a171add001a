//! State of this process, its requests, and the return codes of `pmi.h`.

use std::ffi::c_int;
use std::sync::{Arc, Mutex, OnceLock};

use hydrant_client::c::{CallError, Code, Library, Lifecycle, segment};
use hydrant_client::{Connection, Environment, Segment, Transport, to_bytes, to_string};
use hydrant_wire::client::{Identity, Start};
use hydrant_wire::limits;
use hydrant_wire::{Command, Op, Protocol, Reply, Text};

/// How errors are printed and returned.
pub(crate) const LIBRARY: Library =
    Library { name: "hydrant-pmi1", init: "PMI_Init", debug: "PMI_DEBUG", code };

/// `PMI_ERR_INVALID_KVS`, in the place of `PMI2_ERR_OTHER`.
const INVALID_KVS: c_int = 14;

/// Returns the code of an error: the one that `pmi.h` names for the function, which is also Slurm's.
fn code(error: &CallError) -> c_int {
    let code = match error {
        CallError::NoSuchSpace => return INVALID_KVS,
        CallError::NoSuchKey => Code::InvalidKey,
        CallError::Truncated => Code::InvalidLength,
        error => match error.code() {
            Code::Init | Code::Other => Code::Fail,
            Code::InvalidKeyLength => Code::InvalidKey,
            Code::InvalidValLength => Code::InvalidVal,
            code => code,
        },
    };
    code as c_int
}

/// Longest texts, in bytes: `get_maxes`.
#[derive(Clone, Copy)]
pub(crate) struct Maxes {
    pub(crate) kvsname: u32,
    pub(crate) key: u32,
    pub(crate) value: u32,
}

impl Maxes {
    /// The lengths of hydrant's servers, for a process that has not joined.
    pub(crate) const OWN: Maxes =
        Maxes { kvsname: limits::KVSNAME_MAX, key: limits::KEY_MAX, value: limits::VALUE_MAX };
}

/// A process between `PMI_Init` and `PMI_Finalize`.
pub(crate) struct Process {
    connection: Mutex<Connection<Box<dyn Transport>>>,
    pub(crate) identity: Identity,
    /// Subversion of the server's PMI-1: groups from 2 on.
    pub(crate) subversion: u32,
    pub(crate) maxes: Maxes,
    pub(crate) kvsname: String,
    pub(crate) spawned: bool,
    /// Whether the server is inside this process.
    pub(crate) singleton: bool,
    /// Shared memory with the job's key-value space, if the server offers it.
    pub(crate) segment: Option<Segment>,
    /// Whether the server undoes escapes in values of `put`, once that has been found out.
    unescapes: OnceLock<bool>,
}

static PROCESS: Lifecycle<Process> = Lifecycle::new();

impl Process {
    /// Joins the job. A second call returns the same process.
    pub(crate) fn init() -> Result<Arc<Process>, CallError> {
        PROCESS.init(Protocol::V1, Process::join)
    }

    fn join(
        environment: &Environment,
        transport: Box<dyn Transport>,
        start: Start,
    ) -> Result<Process, CallError> {
        let mut connection = Connection::open(transport, Protocol::V1, start, None)?;
        let (identity, subversion) = (connection.identity(), connection.subversion());
        let maxes = connection.request(&Command::GetMaxes, |reply| match *reply {
            Reply::Maxes { kvsname, key, value } => Some(Maxes { kvsname, key, value }),
            _ => None,
        })?;
        let kvsname = connection.request(&Command::GetJobId, |reply| match reply {
            Reply::JobId(id) => Some(to_string(id)),
            _ => None,
        })?;
        let segment = segment(&LIBRARY, environment, &kvsname);
        let (spawned, singleton) = (environment.spawned, environment.server.is_none());
        let connection = Mutex::new(connection);
        let unescapes = OnceLock::new();
        Ok(Process {
            connection,
            identity,
            subversion,
            maxes,
            kvsname,
            spawned,
            singleton,
            segment,
            unescapes,
        })
    }

    /// Whether `PMI_Init` has succeeded, also after `PMI_Finalize`.
    pub(crate) fn was_initialized() -> bool {
        PROCESS.was_initialized()
    }

    /// Returns the process between `PMI_Init` and `PMI_Finalize`.
    pub(crate) fn current() -> Result<Arc<Process>, CallError> {
        PROCESS.current()
    }

    /// Leaves the job, after outstanding calls of other threads. Nothing happens in a process that has not joined or has
    /// left.
    pub(crate) fn finalize() -> Result<(), CallError> {
        match PROCESS.finalize() {
            Ok(process) => process.execute(&Command::Finalize),
            Err(CallError::Uninitialized | CallError::Finalized) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Sends a request, waits for the reply and returns what `read` takes from it.
    pub(crate) fn request<R>(
        &self,
        command: &Command<'_>,
        read: impl FnOnce(&Reply<'_>) -> Option<R>,
    ) -> Result<R, hydrant_client::Error> {
        self.connection.lock().map_err(|_| hydrant_client::Error::Poisoned)?.request(command, read)
    }

    /// Sends a request that has no result, and waits until the server has confirmed it.
    pub(crate) fn execute(&self, command: &Command<'_>) -> Result<(), CallError> {
        Ok(self.request(command, |_| Some(()))?)
    }

    /// Requests the end of the job. While another thread waits for a reply nothing is sent: the server reacts to the end
    /// of this process instead.
    pub(crate) fn abort(&self, code: c_int, message: &[u8]) -> Result<(), CallError> {
        let Ok(mut connection) = self.connection.try_lock() else { return Ok(()) };
        // A line feed ends the message in PMI-1.
        let lines: Vec<&[u8]> = message.split(|&byte| byte == b'\n').collect();
        let message = lines.join(&br"\n"[..]);
        let message = Text::plain(&message);
        Ok(connection.send(&Command::Abort { code: Some(code), world: true, message })?)
    }

    /// Puts a pair. Blanks and backslashes of the value are escaped for a server that undoes that.
    pub(crate) fn put(&self, kvs: Text<'_>, key: Text<'_>, value: Text<'_>) -> Result<(), CallError> {
        let needs_escapes = value.parts().flatten().any(is_special);
        if needs_escapes && self.undoes_escapes()? {
            return self.put_as_is(kvs, key, Text::plain(&escaped(value)));
        }
        self.put_as_is(kvs, key, value)
    }

    fn put_as_is(&self, kvs: Text<'_>, key: Text<'_>, value: Text<'_>) -> Result<(), CallError> {
        self.request(&Command::Put { kvs: Some(kvs), key, value }, |_| Some(())).map_err(no_space)
    }

    /// Whether the server undoes escapes in values, as hydra does since MPICH 4.1. hydrant, older hydras and Slurm take
    /// values as they are. No reply tells, so a pair of this process does: older hydras do not find it before the next
    /// barrier, the others return what they have made of it.
    fn undoes_escapes(&self) -> Result<bool, CallError> {
        if self.segment.is_some() || self.singleton {
            return Ok(false);
        }
        if let Some(&known) = self.unescapes.get() {
            return Ok(known);
        }
        let key = format!("libpmi-escapes-{}", self.identity.rank);
        let (kvs, key) = (Text::from(self.kvsname.as_str()), Text::from(key.as_str()));
        self.put_as_is(kvs, key, Text::plain(br"\\"))?;
        let unescapes = match self.get(kvs, key) {
            Ok(value) => value == br"\",
            Err(CallError::NoSuchKey) => false,
            Err(error) => return Err(error),
        };
        Ok(*self.unescapes.get_or_init(|| unescapes))
    }

    /// Requests the value of a key from the server.
    pub(crate) fn get(&self, kvs: Text<'_>, key: Text<'_>) -> Result<Vec<u8>, CallError> {
        let value = self.request(&Command::Get { kvs: Some(kvs), key, source: None }, |reply| match reply {
            Reply::Found(Op::Get, value) => Some(Some(to_bytes(value))),
            Reply::Missing(Op::Get) => Some(None),
            _ => None,
        });
        value.map_err(no_space)?.ok_or(CallError::NoSuchKey)
    }
}

/// Whether a server that undoes escapes changes this byte, or ends the value there.
fn is_special(byte: &u8) -> bool {
    matches!(byte, b' ' | b'\\')
}

fn escaped(value: Text<'_>) -> Vec<u8> {
    let bytes = value.parts().flatten();
    bytes.flat_map(|byte| [b'\\', *byte].into_iter().skip(usize::from(!is_special(byte)))).collect()
}

/// Converts the error of a request that names a key-value space. An invalid argument is the space: the library has
/// checked the others.
pub(crate) fn no_space(error: hydrant_client::Error) -> CallError {
    match error {
        hydrant_client::Error::Refused { rc, .. } if rc == Code::InvalidArg as c_int => {
            CallError::NoSuchSpace
        }
        error => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_those_of_pmi_h() {
        let argument = |code| CallError::Argument(code, "");
        for (error, wanted) in [
            (CallError::Uninitialized, -1),
            (CallError::NoNodeSize, -1),
            (argument(Code::InvalidArg), 3),
            (CallError::NoSuchKey, 4),
            (argument(Code::InvalidKeyLength), 4),
            (argument(Code::InvalidValLength), 6),
            (CallError::Truncated, 8),
            (CallError::NoSuchSpace, 14),
            (CallError::Client(hydrant_client::Error::Closed), -1),
        ] {
            assert_eq!(code(&error), wanted, "{error}");
        }
    }
}
