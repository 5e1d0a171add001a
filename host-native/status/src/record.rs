//! Records of runs, jobs and ranks. They travel between processes as postcard, and to the user as JSON.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Text that need not be UTF-8: a path, an argument, a key.
///
/// In JSON it is a string if it is UTF-8, and otherwise an object with one member `bytes`, an array of numbers.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Text(pub Vec<u8>);

#[derive(Serialize)]
struct Bytes<'a> {
    bytes: &'a [u8],
}

impl Text {
    /// Text of at most `max` bytes of `bytes`.
    pub fn cut(bytes: &[u8], max: usize) -> Text {
        Text(bytes[..bytes.len().min(max)].to_vec())
    }
}

impl From<&OsStr> for Text {
    fn from(text: &OsStr) -> Text {
        Text(text.as_bytes().to_vec())
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Text {
        Text(text.as_bytes().to_vec())
    }
}

/// Control characters are escaped. Bytes that are not UTF-8 are replaced.
impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let escape = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
        f.pad(&String::from_utf8_lossy(&self.0).chars().map(escape).collect::<String>())
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(&self.0))
    }
}

impl Serialize for Text {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(&self.0) {
            Ok(text) if serializer.is_human_readable() => serializer.serialize_str(text),
            Err(_) if serializer.is_human_readable() => Bytes { bytes: &self.0 }.serialize(serializer),
            _ => self.0.serialize(serializer),
        }
    }
}

/// Reads the binary form only.
impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Text, D::Error> {
        Vec::deserialize(deserializer).map(Text)
    }
}

/// A running `hydrant run`, `hydrant offload`, `hydrant up`, or `hydrant serve` of jobs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// Process id, by which commands name the run.
    pub pid: u32,
    /// Version of hydrant.
    pub version: String,
    /// Host of this process.
    pub host: String,
    /// Milliseconds since the start.
    pub elapsed_ms: u64,
    /// Number of hosts with ranks. A server counts the addresses from which ranks are connected.
    pub hosts: u32,
    /// Number of running jobs: 1, and those that were spawned. A server counts the jobs that it serves.
    pub jobs: u32,
    /// Number of ranks of all running jobs.
    pub ranks: u32,
    /// Number of ranks whose process runs. A server counts the ranks that are connected.
    pub running: u32,
    /// First program. For a server, its command.
    pub program: Text,
    /// How processes are started on other hosts: `ssh`, `srun` and so on; `local` if all run on this host; `none` for a server.
    pub bootstrap: String,
    /// Address at which a server serves. None for a run, which starts its ranks itself.
    pub address: Option<String>,
    /// The fleet, if this is one.
    pub fleet: Option<Fleet>,
}

/// A fleet: hosts that take jobs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fleet {
    /// Its name.
    pub name: String,
    /// Slots of all hosts.
    pub slots: u32,
    /// Slots that no rank has.
    pub free: u32,
    /// Jobs that wait for room.
    pub waiting: u32,
}

/// A job of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// Number that requests name it by. It is used again after the end of the job.
    pub number: u32,
    /// 0 for a job that no rank spawned. Spawned jobs count from 1.
    pub ordinal: u32,
    /// Job id that ranks see.
    pub name: String,
    /// Job id of the job whose rank spawned it.
    pub spawned_by: Option<String>,
    /// Whether the job is being ended.
    pub ending: bool,
    /// Number of ranks.
    pub ranks: u32,
    /// Programs in the order of the command line, at most [`PROGRAMS_MAX`]. A server does not know them.
    pub programs: Vec<Program>,
}

/// Most programs of a job that are listed.
pub const PROGRAMS_MAX: usize = 32;
/// Most bytes of a program's name, or of a key, that are sent.
pub const TEXT_MAX: usize = 512;
/// Most ranks in one reply.
pub const RANKS_MAX: u32 = 128;

/// A program of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// Its name as on the command line.
    pub command: Text,
    /// Number of its ranks.
    pub ranks: u32,
}

/// A rank of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rank {
    /// Its number.
    pub rank: u32,
    /// Its host. A server knows the address of a rank that is connected.
    pub host: Option<String>,
    /// Its process id, also after its end. A server does not know it.
    pub pid: Option<u32>,
    /// Number of its program.
    pub program: u32,
    /// Its state.
    pub state: State,
    /// Exit code of a rank that has exited.
    pub exit_code: Option<u8>,
    /// Signal that ended a rank that was killed.
    pub signal: Option<u8>,
    /// What it waits for.
    pub waits_for: Option<Wait>,
}

/// State of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It has no process yet.
    NotStarted,
    /// Another launcher starts its process, and it has not connected to this server.
    NotConnected,
    /// Its process runs, and it has not initialized PMI or PMIx.
    Started,
    /// Its process runs, and it is known to be connected. More is not known: its PMI server is in a sandbox or at a
    /// board that serves no nodes, or its host does not answer.
    Running,
    /// It is between init and finalize.
    Initialized,
    /// It has finalized.
    Finalized,
    /// Its process has exited.
    Exited,
    /// A signal has killed its process.
    Killed,
    /// Its host is lost.
    Lost,
}

impl State {
    /// Returns whether the process runs.
    pub fn is_running(self) -> bool {
        matches!(self, State::Started | State::Running | State::Initialized | State::Finalized)
    }
}

/// Reply that a rank waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wait {
    /// A fence of all ranks.
    Fence {
        /// Number of the fence in its job, from 1 on.
        number: u32,
        /// Milliseconds since the first rank of the same host has arrived.
        since_ms: u64,
    },
    /// A collective of some ranks: a barrier or fence of a group, a connection of jobs, a new group.
    Group {
        /// Its kind.
        kind: String,
        /// Milliseconds since the first member on the same host has arrived.
        since_ms: u64,
    },
    /// The ring of PMI-2.
    Ring,
    /// Data that another rank has not put yet.
    Data {
        /// Job id of that rank.
        job: String,
        /// The rank.
        rank: u32,
    },
    /// The value of a key that another host may have.
    Pair(Text),
    /// A node attribute that no rank has put yet.
    NodeAttribute(Text),
    /// A name that is not published yet.
    Name(Text),
    /// The start of the processes of a spawn.
    Spawn,
    /// Another request, such as a name published at another process.
    Request,
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wait::Fence { number, since_ms } => write!(f, "fence {number}, {}", seconds(*since_ms)),
            Wait::Group { kind, since_ms } => write!(f, "{kind}, {}", seconds(*since_ms)),
            Wait::Ring => f.write_str("ring"),
            Wait::Data { rank, .. } => write!(f, "data of rank {rank}"),
            Wait::Pair(key) => write!(f, "value of {key}"),
            Wait::NodeAttribute(key) => write!(f, "node attribute {key}"),
            Wait::Name(name) => write!(f, "name {name}"),
            Wait::Spawn => f.write_str("spawn"),
            Wait::Request => f.write_str("request"),
        }
    }
}

/// A time as `12.3 s`, `4 min 5 s`, `3 h 7 min` or `2 d 5 h`.
pub fn seconds(millis: u64) -> String {
    let whole = millis / 1000;
    match whole {
        0..60 => format!("{whole}.{} s", millis % 1000 / 100),
        60..3600 => format!("{} min {} s", whole / 60, whole % 60),
        3600..86_400 => format!("{} h {} min", whole / 3600, whole / 60 % 60),
        _ => format!("{} d {} h", whole / 86_400, whole / 3600 % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_a_string_or_bytes() {
        let json = |text: &Text| serde_json::to_string(text).unwrap();
        assert_eq!(json(&Text::from("a \"b\" ü")), r#""a \"b\" ü""#);
        let odd = Text(b"a\xff".to_vec());
        assert_eq!(json(&odd), r#"{"bytes":[97,255]}"#);
        assert_eq!(odd.to_string(), "a\u{fffd}");
        assert_eq!(Text::from("a\x1b[0m\n").to_string(), "a\\u{1b}[0m\\n");
        let bytes = postcard::to_stdvec(&odd).unwrap();
        assert_eq!(postcard::from_bytes::<Text>(&bytes).unwrap(), odd);
    }

    #[test]
    fn waits_are_objects_or_words() {
        let json = |wait: Wait| serde_json::to_string(&wait).unwrap();
        assert_eq!(
            json(Wait::Fence { number: 2, since_ms: 1500 }),
            r#"{"fence":{"number":2,"since_ms":1500}}"#
        );
        assert_eq!(json(Wait::Spawn), r#""spawn""#);
        assert_eq!(json(Wait::Name("x".into())), r#"{"name":"x"}"#);
        assert_eq!(serde_json::to_string(&State::NotStarted).unwrap(), r#""not_started""#);
    }

    #[test]
    fn times_have_two_units_at_most() {
        let times = [1_230, 245_000, 11_220_000, 190_800_000].map(seconds);
        assert_eq!(times, ["1.2 s", "4 min 5 s", "3 h 7 min", "2 d 5 h"]);
    }
}
