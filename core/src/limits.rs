//! Capacities of all tables, fixed when the server is created, and constants of the server and the protocols.

pub use hydrant_wire::limits::*;
use serde::{Deserialize, Serialize};

/// First bytes of the key of an [attribute](crate::Input::Attr) of the node. The name of the attribute follows.
pub const NODE_ATTR_PREFIX: &[u8] = b"node:";
/// Attribute of a job that is `TRUE` if a debugger runs the job: `debugged` in the reply to `fullinit`, `DEBUGGED_KEY` of
/// pmi2.h.
pub const DEBUGGED_ATTR: &str = "debugged";
/// Attribute of a job that is `TRUE` if the client's PMI library is to report what it does: `pmiverbose` in the reply to
/// `fullinit`, `PMIVERBOSE_KEY` of pmi2.h.
pub const VERBOSE_ATTR: &str = "pmiverbose";
/// Attribute of a job that is `TRUE` if the ranks of this node exceed its processors: `PMIX_NODE_OVERSUBSCRIBED` of PMIx, by
/// whose presence Open MPI 5 lets waiting ranks yield their processor.
pub const OVERSUBSCRIBED_ATTR: &str = "pmix.ndosub";
/// Attribute of a job that is `TRUE` if the host answers queries of PMIx clients that the server does not answer itself and their
/// gets of process ids, looks at files that they monitor, and writes to the log of the system: requests of
/// [`Output::Upcall`](crate::Output::Upcall) that `HostCall` of `wire::pmix` reads. Without the feature `cluster` such requests are
/// refused.
pub const QUERIES_ATTR: &str = "pmix.query";
/// Attribute of a job that is for tools of PMIx (a debugger, `pps`), one after the other: of one rank, which no process was started
/// for. Its value is the job id, which such a tool gets. At the server that it connects to, a tool with a namespace of its own
/// gives that to the job instead. The text `pmix.srv.nspace` ([`TEXT_ATTR_PREFIX`]) is the name of the server for tools.
/// Without the feature `cluster` tools are refused.
pub const TOOL_ATTR: &str = "pmix.tool";
/// First bytes of the name of an attribute of a job that PMIx clients get as a STRING: about the job under the rest of the name,
/// and about a rank if `@` and its number follow. It may be set while clients are connected. A text of the job that is longer
/// than a value continues in the attributes with `.1`, `.2`, … behind that name; a client gets none of a text longer than
/// [`Limits::text_max`]. Without the feature `cluster` clients do not get texts.
pub const TEXT_ATTR_PREFIX: &str = "text:";
/// First bytes of the name of an attribute of a job with names of its hosts, as PMIx clients get them (`PMIX_HOSTNAME`), separated
/// by commas: attribute `i` is about nodes `i *` [`HOSTS_EACH`] and the following ones. A node without a name has an empty one.
/// Names that a value has no room for follow in the attributes with `.1`, `.2`, … behind that name.
pub const HOSTS_ATTR_PREFIX: &str = "pmix.hname.";
/// Nodes of an attribute with names of hosts. Names of 31 bytes fit in one value.
pub const HOSTS_EACH: u32 = 32;
/// Attributes of a job whose ranks wait for a debugger in `PMIx_Init`, and where their program wants: `PMIX_DEBUG_STOP_IN_INIT` and
/// `PMIX_DEBUG_STOP_IN_APP` of PMIx. The value is a list of the ranks that wait, such as `0-3,7`, or `TRUE` for all.
pub const STOP_ATTRS: [&str; 2] = ["pmix.dbg.init", "pmix.dbg.notify"];
/// Attribute of a job of debuggers: rank, or `4294967294` for all, and job id of the processes to debug, with a blank in between.
/// `PMIX_DEBUG_TARGET` of PMIx.
pub const TARGET_ATTR: &str = "pmix.dbg.tgt";
/// Maximum length in bytes of a text of a job, see [`Limits::text_max`]: the topology of a machine of 512 hardware threads.
pub const TEXT_MAX: usize = 512 * 1024;
/// Bytes of a reply with a text in addition to the text: header, status, process and key.
pub const TEXT_REST: usize = JOBID_MAX + KEY_MAX as usize + 128;
/// Bytes of a stored commit in front of its data.
pub(crate) const COMMIT_HEADER: u32 = 5;
/// Maximum number of event codes that a PMIx client registers for. All events together count as none. Each takes 12 bytes of a
/// connection, of which a board without neighbours has few.
pub const EVENT_CODES_MAX: usize = if cfg!(feature = "cluster") { 16 } else { 8 };
/// Minimum of [`Limits::spawn_bytes`] on a host that starts processes. With less, spawns are refused, and the bytes serve
/// other upcalls.
pub const SPAWN_BYTES_MIN: u32 = 256;

/// Milliseconds after which a rank counts as lost whose connection was closed between init and finalize. Its exit, which
/// says more, mostly follows within this time.
pub const CUT_OFF_DELAY: u64 = 500;

/// Returns the milliseconds that exits without failure wait for others before neighbours are told of them together. It grows
/// with the ranks, because each message costs a walk over them.
pub(crate) const fn exit_delay(limits: &Limits) -> u64 {
    50 + limits.ranks as u64 / 4096
}

/// Number of nodes with ranks up to which [`FenceMode::Auto`](crate::server::FenceMode::Auto) collects all pairs.
pub const AUTO_NODES_MAX: u32 = 64;
/// Whether servers of several nodes have lazy fences. A board without neighbours saves their code.
pub(crate) const LAZY_FENCES: bool = cfg!(feature = "cluster");

/// Whether the host answers queries of PMIx clients, and tells them texts. A board without neighbours saves the code.
#[cfg(feature = "pmix")]
pub(crate) const HOST_FACTS: bool = cfg!(feature = "cluster");

/// Maximum length in bytes of a message to another node, unless the members of a group need more. Nodes with short logs send
/// [shorter](Limits::peer_message_max) ones.
pub const PEER_MESSAGE_MAX: usize = 32 * 1024;

/// Capacities of all tables, fixed when a server is created.
///
/// A limit is a number of entries unless its name contains `bytes`. A request that exceeds a limit is refused with an
/// error that carries the limit's [name](Limit::name). Stored data is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Maximum number of jobs at the same time.
    pub jobs: u32,
    /// Maximum number of ranks, of all jobs together.
    pub ranks: u32,
    /// Maximum number of client connections: one per rank, and some for clients that have not identified themselves.
    pub conns: u32,
    /// Maximum number of key-value pairs and attributes, of all jobs together.
    pub keys: u32,
    /// Bytes of key-value log. A pair takes [`RECORD_HEADER`] bytes, its key and its value, rounded up to a multiple
    /// of four.
    pub kvs_bytes: u32,
    /// Maximum number of group barriers at the same time. The barrier of a whole job takes none.
    pub groups: u32,
    /// Maximum number of published names, of names that look-ups wait for, and of events and monitors of PMIx clients, together.
    /// Events and monitors take at most a quarter each.
    pub names: u32,
    /// Maximum number of upcalls at the same time: spawns, files of PMIx clients to remove, and requests about names if the
    /// job has [`JobSpec::remote_names`](crate::server::JobSpec::remote_names). 0 on a host that supports none of these.
    pub spawns: u32,
    /// Bytes of one upcall's request or result, at most [`MESSAGE_MAX`]. Less than [`SPAWN_BYTES_MIN`] on a host that
    /// starts no processes.
    pub spawn_bytes: u32,
    /// Maximum number of process sets in addition to `mpi://WORLD` and `mpi://SELF`, of all jobs together. There is room for
    /// 256 of them with any members. More are refused as this limit unless their members are a few runs, as those of hosts
    /// are.
    pub psets: u32,
    /// Maximum number of links to servers on other nodes, at most [`LINKS_MAX`](crate::peer::LINKS_MAX). 0 for
    /// a single node.
    pub links: u32,
    /// Maximum bytes that a PMIx rank puts for processes of its node, and as many for others, up to [`COMMIT_BYTES_MAX`].
    /// A quarter of [`MESSAGE_MAX`] is enough for MPI libraries. 0 on a host that serves no PMIx.
    pub commit_bytes: u32,
}

/// The larger of two lengths, in constants.
pub(crate) const fn max(one: usize, other: usize) -> usize {
    if one > other { one } else { other }
}

impl Limits {
    /// Limits of 0, as a base for struct update syntax.
    pub const NONE: Limits = Limits {
        jobs: 0,
        ranks: 0,
        conns: 0,
        keys: 0,
        kvs_bytes: 0,
        groups: 0,
        names: 0,
        spawns: 0,
        spawn_bytes: 0,
        psets: 0,
        links: 0,
        commit_bytes: 0,
    };

    /// Returns limits for a job of `ranks` ranks on a host with virtual memory. A rank has 64 pairs and 64 KiB, as far
    /// as 32-bit offsets reach. There is room for 1,024 more ranks in 63 spawned jobs.
    pub fn for_ranks(ranks: u32) -> Limits {
        let spawned = 1024;
        let strangers = 64;
        let all = ranks.saturating_add(spawned);
        Limits {
            jobs: 64,
            ranks: all,
            conns: all.saturating_add(strangers),
            keys: all.saturating_mul(64),
            kvs_bytes: (u64::from(all) * 64 * 1024).min(u64::from(u32::MAX) / 4 * 3) as u32,
            groups: 64,
            names: 64,
            spawns: 64,
            spawn_bytes: MESSAGE_MAX,
            psets: 256,
            links: 0,
            commit_bytes: if cfg!(feature = "pmix") { COMMIT_BYTES_MAX } else { 0 },
        }
    }

    /// Returns the maximum length of a client's message in bytes ([`message_max`]).
    pub const fn message_max(&self) -> u32 {
        message_max(self.commit_bytes)
    }

    /// Returns the length in bytes of the buffer that [`crate::Server::poll`] needs for any output.
    pub const fn output_max(&self) -> usize {
        max(self.reply_max(), self.text_max() + TEXT_REST)
    }

    /// Returns the maximum length in bytes of an output that is no text.
    pub(crate) const fn reply_max(&self) -> usize {
        max(self.spawn_bytes as usize, self.part_max())
    }

    /// Returns the length in bytes of the longest text of a job that a PMIx client gets, see [`TEXT_ATTR_PREFIX`]: up to
    /// [`TEXT_MAX`] on a host with a log of several megabytes.
    pub const fn text_max(&self) -> usize {
        let share = if self.commit_bytes > 0 { self.kvs_bytes as usize / 64 } else { 0 };
        max(if share < TEXT_MAX { share } else { TEXT_MAX }, self.reply_max() - TEXT_REST)
    }

    /// Returns the length in bytes to which an abort message is truncated. It follows from another limit, because a board with
    /// little memory has no room for the longest message of each job.
    pub const fn abort_text_max(&self) -> usize {
        if self.kvs_bytes < 64 * 1024 { MESSAGE_TEXT_MAX } else { ABORT_TEXT_MAX }
    }

    /// Returns the length in bytes of the longest output that is no upcall and cannot be sent in parts.
    const fn part_max(&self) -> usize {
        // Members of a group, in a message to another node, and those that it has lost: a set of each for each job.
        let sets = self.ranks as usize / 8 + self.jobs as usize * 24;
        let group = if self.links > 0 { 2 * sets + 32 } else { 0 };
        // Committed data, and the process that they are of.
        let commit = if self.commit_bytes > 0 { self.commit_bytes as usize + JOBID_MAX + 64 } else { 0 };
        max(max(group, commit), OUTPUT_MAX)
    }

    /// Returns the buffer length in bytes above which outputs of [`crate::Server::poll`] do not get longer. The length
    /// of messages to other nodes depends on the buffer. Two servers give equal outputs only with equal buffer
    /// lengths.
    pub const fn output_room(&self) -> usize {
        let peers = if self.links > 0 { self.peer_message_max() } else { 0 };
        max(self.output_max(), peers)
    }

    /// Returns the maximum length in bytes of a message to another node. It depends only on limits that all nodes have in
    /// common. A message has at most a quarter of the log, so that nodes with small tables need small buffers.
    pub const fn peer_message_max(&self) -> usize {
        let share = self.kvs_bytes as usize / 4;
        max(if share < PEER_MESSAGE_MAX { share } else { PEER_MESSAGE_MAX }, self.part_max())
    }

    /// Returns the size of one limit.
    pub fn of(&self, limit: Limit) -> u32 {
        match limit {
            Limit::Jobs => self.jobs,
            Limit::Ranks => self.ranks,
            Limit::Conns => self.conns,
            Limit::Keys => self.keys,
            Limit::KvsBytes => self.kvs_bytes,
            Limit::Groups => self.groups,
            Limit::Names => self.names,
            Limit::Spawns => self.spawns,
            Limit::SpawnBytes => self.spawn_bytes,
            Limit::Psets => self.psets,
            Limit::Links => self.links,
            Limit::CommitBytes => self.commit_bytes,
            Limit::Owed => PENDING_MAX as u32,
        }
    }

    /// Returns the limits that are larger than those of `most`.
    pub fn exceeding(self, most: Limits) -> impl Iterator<Item = Limit> {
        Limit::ALL.into_iter().filter(move |&limit| self.of(limit) > most.of(limit))
    }

    /// Sets one limit. Returns false if the host cannot change it.
    pub fn set(&mut self, limit: Limit, size: u32) -> bool {
        let field = match limit {
            Limit::Jobs => &mut self.jobs,
            Limit::Ranks => &mut self.ranks,
            Limit::Conns => &mut self.conns,
            Limit::Keys => &mut self.keys,
            Limit::KvsBytes => &mut self.kvs_bytes,
            Limit::Groups => &mut self.groups,
            Limit::Names => &mut self.names,
            Limit::Spawns => &mut self.spawns,
            Limit::SpawnBytes => &mut self.spawn_bytes,
            Limit::Psets => &mut self.psets,
            Limit::Links => &mut self.links,
            Limit::CommitBytes => &mut self.commit_bytes,
            Limit::Owed => return false,
        };
        *field = size;
        true
    }
}
