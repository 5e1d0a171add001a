//! Constants of the protocols, and the names of a server's limits.

use serde::{Deserialize, Serialize};

/// Maximum length of a key in bytes: `keylen_max` of PMI-1's `get_maxes`, `PMI2_MAX_KEYLEN` of pmi2.h.
pub const KEY_MAX: u32 = 64;
/// Maximum length of a value in bytes: `vallen_max` of PMI-1's `get_maxes`, `PMI2_MAX_VALLEN` of pmi2.h.
pub const VALUE_MAX: u32 = 1024;
/// Maximum length of a job id (PMI-1's kvsname) in bytes.
pub const JOBID_MAX: usize = 64;
/// Value of `kvsname_max` in the reply to PMI-1's `get_maxes`.
pub const KVSNAME_MAX: u32 = 256;
/// Bytes of key-value log that a record takes in addition to its key and its value.
pub const RECORD_HEADER: u32 = 16;
/// Maximum length of a PMI-2 thread id (`thrid`) in bytes.
pub const THRID_MAX: usize = 23;
/// Length in bytes to which the reason of a failed upcall is truncated.
pub const MESSAGE_TEXT_MAX: usize = 200;
/// Length in bytes to which an abort message is truncated. A server with less than 64 KiB of key-value log, on a board, truncates
/// it to [`MESSAGE_TEXT_MAX`].
pub const ABORT_TEXT_MAX: usize = 4096;
/// Maximum length of a published name in bytes.
pub const NAME_MAX: usize = 127;
/// Maximum length of the port of a published name in bytes without NUL. MPICH's `MPI_MAX_PORT_NAME` is 1,024 with NUL.
pub const PORT_MAX: usize = 1023;
/// Maximum length of a process set's name in bytes without NUL. MPI 4.1, 11.3.2 requires at least 63.
pub const PSET_NAME_MAX: usize = 127;
/// Prefix of a process set's name that is defined without a scheme: `ocean` is `app://ocean`. Both names find the set.
pub const PSET_SCHEME: &str = "app://";
/// Maximum number of programs in one spawn.
pub const SPAWN_PROGRAMS_MAX: u32 = 256;
/// Attribute of a job whose server reads escaped values of PMI-2 clients, which may hold NUL. Its value is `1`.
pub const ESCAPES_ATTR: &str = "hasEscapedValues";
/// Maximum length of a message in bytes, of either protocol and with its framing; `PMII_MAX_COMMAND_LEN` of pmi2.h.
pub const MESSAGE_MAX: u32 = 64 * 1024;
/// [`MESSAGE_MAX`] as the length of a buffer: `vec![0; MESSAGE_BUFFER]`. Only a commit of PMIx may be longer, see
/// [`message_max`].
pub const MESSAGE_BUFFER: usize = MESSAGE_MAX as usize;
/// Length in bytes of a buffer for any reply of a server.
pub const OUTPUT_MAX: usize = 4352;
/// Maximum number of pending replies of a connection. More than one occurs only if threads share the connection.
/// The server leaves further requests unread until a reply has been sent.
pub const PENDING_MAX: usize = 4;
/// Maximum number of bytes that a PMIx process commits for processes of its node, and as many for others. A reply with so much
/// data is no longer than [`MESSAGE_MAX`].
pub const COMMIT_BYTES_MAX: u32 = MESSAGE_MAX - 4096;
/// Comparisons of keys that one scope of a commit of PMIx may take. Data of [`COMMIT_BYTES_MAX`] bytes, half known and half new,
/// take fewer if each value has 11 bytes with its key.
pub const COMMIT_COMPARISONS_MAX: u32 = 1 << 23;
/// Bytes of a commit's message in addition to its data.
const COMMIT_REST: u32 = 256;

/// Returns the maximum length in bytes of a message to a server whose PMIx clients commit up to `commit_bytes` bytes: that
/// of a commit, which carries data twice, or [`MESSAGE_MAX`].
pub const fn message_max(commit_bytes: u32) -> u32 {
    let commit = commit_bytes.saturating_mul(2).saturating_add(COMMIT_REST);
    if commit > MESSAGE_MAX { commit } else { MESSAGE_MAX }
}

/// Name of a limit of a server (a field of `Limits` of hydrant-core), in errors and on a host's command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
// The variants begin with 1, so that an `Option` without a limit is zero, as in unused slots.
#[repr(u8)]
pub enum Limit {
    /// `Limits::jobs`
    Jobs = 1,
    /// `Limits::ranks`
    Ranks,
    /// `Limits::conns`
    Conns,
    /// `Limits::keys`
    Keys,
    /// `Limits::kvs_bytes`
    KvsBytes,
    /// `Limits::groups`
    Groups,
    /// `Limits::names`
    Names,
    /// `Limits::spawns`
    Spawns,
    /// `Limits::spawn_bytes`
    SpawnBytes,
    /// `Limits::psets`
    Psets,
    /// `Limits::links`
    Links,
    /// [`PENDING_MAX`]
    Owed,
    /// `Limits::commit_bytes`
    CommitBytes,
}

impl Limit {
    /// All limits.
    pub const ALL: [Limit; 13] = [
        Limit::Jobs,
        Limit::Ranks,
        Limit::Conns,
        Limit::Keys,
        Limit::KvsBytes,
        Limit::Groups,
        Limit::Names,
        Limit::Spawns,
        Limit::SpawnBytes,
        Limit::Psets,
        Limit::Links,
        Limit::CommitBytes,
        Limit::Owed,
    ];

    /// Returns the name that errors and command lines use.
    pub const fn name(self) -> &'static str {
        match self {
            Limit::Jobs => "jobs",
            Limit::Ranks => "ranks",
            Limit::Conns => "conns",
            Limit::Keys => "keys",
            Limit::KvsBytes => "kvs-bytes",
            Limit::Groups => "groups",
            Limit::Names => "names",
            Limit::Spawns => "spawns",
            Limit::SpawnBytes => "spawn-bytes",
            Limit::Psets => "psets",
            Limit::Links => "links",
            Limit::CommitBytes => "commit-bytes",
            Limit::Owed => "replies-owed",
        }
    }

    /// Returns the limit with that name.
    pub fn from_name(name: &str) -> Option<Limit> {
        Limit::ALL.into_iter().find(|limit| limit.name() == name)
    }
}
