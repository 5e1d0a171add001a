//! What a daemon is told over its standard input.

use std::ffi::OsString;
use std::net::SocketAddr;

use hydrant_core::peer::tree::Tree;
use hydrant_placement::{Bootstrap, Host};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::super::link::{Ends, JobKey, Secret};

/// Before anything else, so that a daemon of whatever version knows what it reads.
const MAGIC: &[u8; 8] = b"hydrant\n";
/// The version of the launcher that speaks.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Longest record that is taken, in bytes: hosts by the hundred thousand.
const RECORD_MAX: u32 = 64 << 20;

/// What holds for all daemons of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Settings {
    /// What starts daemons.
    pub(crate) bootstrap: Bootstrap,
    /// The program that is started instead of the `ssh` or `srun` in the `PATH`.
    pub(crate) bootstrap_exec: Option<OsString>,
    /// The `hydrant` to be started on other machines.
    pub(crate) program: OsString,
    /// The interface on which daemons listen; the one that leads to their children when missing.
    pub(crate) iface: Option<String>,
    /// After how many milliseconds of silence a neighbour counts as gone.
    pub(crate) timeout: u64,
    /// How many milliseconds a daemon may take from its start until it has connected.
    pub(crate) start_time: u64,
}

/// All that a daemon has to know. Holds the secret of the link to its parent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) job: JobKey,
    pub(crate) secret: Secret,
    /// Its number.
    pub(crate) node: u32,
    /// Its parent's.
    pub(crate) parent: u32,
    /// Where the parent listens.
    pub(crate) addrs: Vec<SocketAddr>,
    /// The parent's host, for what is said of it.
    pub(crate) parent_host: String,
    pub(crate) tree: Tree,
    /// The hosts of the subtree, the daemon's own first.
    pub(crate) hosts: Vec<Host>,
    pub(crate) settings: Settings,
}

/// Why there is no record.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RecordError {
    /// Standard input ends, or holds something else.
    #[error(
        "is started by hydrant itself, which says over standard input what is to be done; there is no such record"
    )]
    None,
    /// The launcher is not of this version.
    #[error(
        "hydrant here is {VERSION}, and the launcher's is {0}: have the same version on all hosts, or say where it is with --remote-hydrant"
    )]
    Version(String),
    /// The record makes no sense.
    #[error("the launcher's record cannot be understood")]
    Malformed,
    /// Standard input cannot be read.
    #[error("cannot read standard input: {0}")]
    Io(#[from] Errno),
}

impl Record {
    /// The bytes that the daemon is given.
    pub(crate) fn encode(&self) -> Zeroizing<Vec<u8>> {
        let body = postcard::to_stdvec(self).map(Zeroizing::new);
        let body = body.expect("writing to memory fails for no type of a record");
        // With its final size from the start, so that no copy of the secret is left behind.
        let mut bytes = Zeroizing::new(Vec::with_capacity(MAGIC.len() + 1 + VERSION.len() + 4 + body.len()));
        bytes.extend_from_slice(MAGIC);
        bytes.push(VERSION.len() as u8);
        bytes.extend_from_slice(VERSION.as_bytes());
        bytes.extend_from_slice(&(body.len() as u32).to_be_bytes());
        bytes.extend_from_slice(&body);
        bytes
    }

    /// Reads the record from standard input, which is waited for.
    pub(crate) fn read() -> Result<Record, RecordError> {
        Record::decode(&mut |buffer| rustix::io::read(rustix::stdio::stdin(), buffer))
    }

    /// The record of which these are the bytes.
    #[cfg(test)]
    pub(crate) fn of(mut bytes: &[u8]) -> Result<Record, RecordError> {
        use std::io::Read;
        Record::decode(&mut |buffer| Ok(bytes.read(buffer).expect("memory can be read")))
    }

    fn decode(read: &mut dyn FnMut(&mut [u8]) -> Result<usize, Errno>) -> Result<Record, RecordError> {
        let mut exact = |len: usize| -> Result<Zeroizing<Vec<u8>>, RecordError> {
            let mut bytes = Zeroizing::new(vec![0; len]);
            let mut filled = 0;
            while filled < len {
                match read(&mut bytes[filled..]) {
                    Ok(0) => return Err(RecordError::None),
                    Ok(count) => filled += count,
                    Err(Errno::INTR) => {}
                    Err(errno) => return Err(errno.into()),
                }
            }
            Ok(bytes)
        };
        if exact(MAGIC.len())?[..] != MAGIC[..] {
            return Err(RecordError::None);
        }
        let len = exact(1)?[0];
        let version = exact(usize::from(len))?;
        if version[..] != *VERSION.as_bytes() {
            return Err(RecordError::Version(String::from_utf8_lossy(&version).escape_debug().to_string()));
        }
        let len = exact(4)?;
        let len = u32::from_be_bytes([len[0], len[1], len[2], len[3]]);
        if len > RECORD_MAX {
            return Err(RecordError::Malformed);
        }
        let body = exact(len as usize)?;
        let record: Record = postcard::from_bytes(&body).map_err(|_| RecordError::Malformed)?;
        if record.is_sound() { Ok(record) } else { Err(RecordError::Malformed) }
    }

    fn is_sound(&self) -> bool {
        let subtree = self.tree.subtree(self.node);
        self.tree.parent(self.node) == Some(self.parent)
            && self.hosts.len() == subtree.len()
            && !self.addrs.is_empty()
            && self.settings.timeout > 0
    }

    /// The link to the parent.
    pub(crate) fn ends(&self) -> Ends {
        Ends { job: self.job, parent: self.parent, child: self.node }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        Record {
            job: JobKey::random().unwrap(),
            secret: Secret::random().unwrap(),
            node: 1,
            parent: 0,
            addrs: vec!["127.0.0.1:99".parse().unwrap(), "[::1]:7".parse().unwrap()],
            parent_host: "head".to_owned(),
            tree: Tree::new(4, 2),
            hosts: vec![Host::new("a"), Host::with_slots("b", 4)],
            settings: Settings {
                bootstrap: Bootstrap::Exec(vec!["{host}".into(), "{args}".into()]),
                bootstrap_exec: None,
                program: "hydrant".into(),
                iface: Some("lo".to_owned()),
                timeout: 30_000,
                start_time: 60_000,
            },
        }
    }

    fn decode(mut bytes: &[u8]) -> Result<Record, RecordError> {
        // In small pieces, as pipes may give them.
        Record::decode(&mut |buffer| {
            let len = bytes.len().min(buffer.len()).min(7);
            buffer[..len].copy_from_slice(&bytes[..len]);
            bytes = &bytes[len..];
            Ok(len)
        })
    }

    #[test]
    fn a_record_arrives_as_it_was_sent() {
        let record = record();
        let read = decode(&record.encode()).unwrap();
        assert_eq!((read.node, read.tree, &read.hosts), (1, record.tree, &record.hosts));
        assert_eq!((read.addrs, read.settings, read.job), (record.addrs, record.settings, record.job));
        assert!(!format!("{:?}", read.secret).contains(|c: char| c.is_ascii_digit()));
    }

    #[test]
    fn other_versions_and_other_bytes_are_refused() {
        let mut bytes = record().encode().to_vec();
        for len in 0..bytes.len() {
            assert!(matches!(decode(&bytes[..len]), Err(RecordError::None)), "{len}");
        }
        assert!(matches!(decode(b"GET / HTTP/1.0\r\n\r\n"), Err(RecordError::None)));
        bytes[MAGIC.len() + 1] = b'9';
        let error = decode(&bytes).unwrap_err().to_string();
        let theirs = format!("the launcher's is 9{}", &VERSION[1..]);
        assert!(error.contains(VERSION) && error.contains(&theirs) && error.contains("--remote-hydrant"));
        for wrong in [
            Record { node: 0, ..record() },
            Record { hosts: Vec::new(), ..record() },
            Record { addrs: Vec::new(), ..record() },
            Record { tree: Tree::new(1, 2), ..record() },
        ] {
            assert!(matches!(decode(&wrong.encode()), Err(RecordError::Malformed)));
        }
    }
}
