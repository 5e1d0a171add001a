//! Capacities of all tables, fixed when the server is created, and constants of the protocols.

use serde::{Deserialize, Serialize};

/// Longest key in bytes; what PMI-1's `get_maxes` announces and pmi2.h calls `PMI2_MAX_KEYLEN`.
pub const KEY_MAX: u32 = 64;
/// Longest value in bytes; PMI-1's `vallen_max` and pmi2.h's `PMI2_MAX_VALLEN`.
pub const VALUE_MAX: u32 = 1024;
/// Longest job id (PMI-1's kvsname) in bytes that the core gives out.
pub const JOBID_MAX: usize = 64;
/// What PMI-1's `get_maxes` announces as `kvsname_max`.
pub const KVSNAME_MAX: u32 = 256;
/// Bytes of key-value log that a record takes beside its key and its value.
pub const RECORD_HEADER: u32 = 16;
/// Longest message in bytes, of either protocol and with its framing; pmi2.h's `PMII_MAX_COMMAND_LEN`.
pub const MESSAGE_MAX: u32 = 64 * 1024;
/// Replies that one connection may be owed at once (more than one only where threads share it).
pub const PENDING_MAX: usize = 4;
/// Longest thread id of PMI-2 (`thrid`) in bytes.
pub const THRID_MAX: usize = 23;
/// How much of an abort message is kept, in bytes.
pub const MESSAGE_TEXT_MAX: usize = 200;
/// Longest published name in bytes.
pub const NAME_MAX: usize = 127;
/// Longest port of a published name in bytes, NUL not counted; MPICH's `MPI_MAX_PORT_NAME` is 1,024 with it.
pub const PORT_MAX: usize = 1023;
/// Longest name of a process set in bytes, NUL not counted (MPI 4.1, 11.3.2 wants at least 63).
pub const PSET_NAME_MAX: usize = 127;
/// Programs that one spawn may start.
pub const SPAWN_PROGRAMS_MAX: u32 = 256;
/// The buffer that [`crate::Server::poll`] needs for any reply, in bytes.
pub const OUTPUT_MAX: usize = 4352;

/// The longest message to another node in bytes, where no group's members need more.
pub const PEER_MESSAGE_MAX: usize = 32 * 1024;

/// The size of every table, fixed when a server is made.
///
/// A limit is a count of entries unless its name says bytes. Exhausting one refuses the request that asked for
/// more, with an error that carries the limit's [name](Limit::name), and leaves everything stored as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Jobs at the same time.
    pub jobs: u32,
    /// Ranks, of all jobs together.
    pub ranks: u32,
    /// Client connections: one a rank, and some for those who have not said who they are.
    pub conns: u32,
    /// Key-value pairs and attributes, of all jobs together.
    pub keys: u32,
    /// Bytes of key-value log: [`RECORD_HEADER`] bytes a pair, its key and its value, in steps of four.
    pub kvs_bytes: u32,
    /// Group barriers at the same time (the barrier of a whole job needs none).
    pub groups: u32,
    /// Published names, and names that lookups wait for.
    pub names: u32,
    /// Requests that the host carries out, at the same time: spawns, and requests about names where those are the
    /// host's business ([`JobSpec::remote_names`](crate::server::JobSpec::remote_names)). None on a host that does
    /// neither.
    pub spawns: u32,
    /// Bytes of one such request, and of what comes of it, at most [`MESSAGE_MAX`].
    pub spawn_bytes: u32,
    /// Process sets beside `mpi://WORLD` and `mpi://SELF`, of all jobs together.
    pub psets: u32,
    /// Links to servers on other nodes, at most [`LINKS_MAX`](crate::peer::links::LINKS_MAX); none on a node that is
    /// alone.
    pub links: u32,
}

impl Limits {
    /// Room for nothing, to start from.
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
    };

    /// Limits that suit a job of `ranks` ranks on a host with virtual memory: room for 64 pairs and 64 KiB a rank
    /// as far as 32-bit offsets reach, and for 1,024 more ranks in 63 jobs that it may spawn.
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
        }
    }

    /// The buffer that [`crate::Server::poll`] needs for any output, in bytes.
    pub const fn output_max(&self) -> usize {
        let spawn = self.spawn_bytes as usize;
        // The members of a group, for another node.
        let group = if self.links > 0 { self.ranks as usize / 8 + 32 } else { 0 };
        let more = if spawn > group { spawn } else { group };
        if more > OUTPUT_MAX { more } else { OUTPUT_MAX }
    }

    /// The buffer beyond which no output of [`crate::Server::poll`] grows, in bytes. What is told another node depends on the
    /// room there is, so that two servers that shall say the same are given the same.
    pub const fn output_room(&self) -> usize {
        let peers = if self.links > 0 { PEER_MESSAGE_MAX } else { 0 };
        if self.output_max() > peers { self.output_max() } else { peers }
    }

    /// The size of one limit.
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
            Limit::Owed => PENDING_MAX as u32,
        }
    }

    /// Changes one limit; false when it is not the host's to change.
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
            Limit::Owed => return false,
        };
        *field = size;
        true
    }
}

/// Names a limit, in errors and on a host's command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Limit {
    /// [`Limits::jobs`]
    Jobs,
    /// [`Limits::ranks`]
    Ranks,
    /// [`Limits::conns`]
    Conns,
    /// [`Limits::keys`]
    Keys,
    /// [`Limits::kvs_bytes`]
    KvsBytes,
    /// [`Limits::groups`]
    Groups,
    /// [`Limits::names`]
    Names,
    /// [`Limits::spawns`]
    Spawns,
    /// [`Limits::spawn_bytes`]
    SpawnBytes,
    /// [`Limits::psets`]
    Psets,
    /// [`Limits::links`]
    Links,
    /// [`PENDING_MAX`]
    Owed,
}

impl Limit {
    /// Every limit.
    pub const ALL: [Limit; 12] = [
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
        Limit::Owed,
    ];

    /// The name that errors use and that hosts take to set it.
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
            Limit::Owed => "replies-owed",
        }
    }

    /// The limit with that name.
    pub fn from_name(name: &str) -> Option<Limit> {
        Limit::ALL.into_iter().find(|limit| limit.name() == name)
    }
}
