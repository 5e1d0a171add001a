//! Models of the fences of other process managers, under the assumptions of [`measure`](crate::measure).
//!
//! A model sends the messages of an algorithm with their lengths. It has no key-value space and no clients. What a model
//! leaves out would cost the other process manager time: replies that confirm a message, and messages between the
//! processes of one host.

pub mod allgather;
pub mod hydra;
pub mod hydrant;
pub mod lazy;
pub mod prrte;
mod ranges;
pub mod slurm;

use crate::fabric::{Charge, Fabric};

/// Values of a fence on each daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Load {
    /// Number of daemons, without the head.
    pub daemons: u32,
    /// Ranks of each daemon.
    pub ranks: u32,
    /// Bytes of the values of each rank. With 0 nothing is put.
    pub value: u32,
}

/// Bytes of the values of a rank that are measured. 128 is about the size of an MPI library's address.
pub const VALUES: [u32; 3] = [0, 128, 4096];
/// Maximum length of one value; a rank puts longer ones in parts.
pub const PART: u32 = 1024;
/// Bytes of a key.
pub(crate) const KEY: u64 = 9;

impl Load {
    /// Ranks of all daemons.
    pub fn size(self) -> u32 {
        self.daemons * self.ranks
    }

    /// Pairs of each rank.
    pub fn parts(self) -> u32 {
        self.value.div_ceil(PART)
    }

    /// Pairs of each daemon.
    pub(crate) fn pairs(self) -> u64 {
        u64::from(self.ranks * self.parts())
    }

    /// Bytes of the pairs of a daemon, if each has so many more beside key and value.
    pub(crate) fn bytes(self, framing: u64) -> u64 {
        u64::from(self.ranks * self.value) + self.pairs() * (KEY + framing)
    }

    /// Bytes of one pair, if it has so many more beside key and value.
    pub(crate) fn pair(self, framing: u64) -> u64 {
        KEY + framing + u64::from(self.value.min(PART))
    }
}

/// Algorithm of a fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Model {
    /// Proxies of hydra with clients of PMI-1.
    HydraPmi1,
    /// Proxies of hydra with clients of PMI-2.
    HydraPmi2,
    /// Slurm with `--mpi=pmi2`.
    SlurmPmi2,
    /// Slurm with `--mpi=pmix`.
    SlurmPmix,
    /// Daemons of PRRTE.
    Prrte,
    /// All-gather by Bruck, which the daemons of Open MPI 3 and 4 had.
    Bruck,
}

impl Model {
    /// All models.
    pub const ALL: [Model; 6] =
        [Model::HydraPmi1, Model::HydraPmi2, Model::SlurmPmi2, Model::SlurmPmix, Model::Prrte, Model::Bruck];

    /// Name in tables and pictures.
    pub fn name(self) -> &'static str {
        match self {
            Model::HydraPmi1 => "hydra, PMI-1",
            Model::HydraPmi2 => "hydra, PMI-2",
            Model::SlurmPmi2 => "Slurm pmi2",
            Model::SlurmPmix => "Slurm pmix",
            Model::Prrte => "PRRTE",
            Model::Bruck => "Bruck",
        }
    }

    /// Counts a fence after which every value can be got.
    pub fn fence(self, load: Load, charge: Charge) -> Cost {
        match self {
            Model::HydraPmi1 => hydra::pmi1(load, charge),
            Model::HydraPmi2 => hydra::pmi2(load, charge),
            Model::SlurmPmi2 => slurm::pmi2(load, charge),
            Model::SlurmPmix => slurm::pmix(load, charge),
            Model::Prrte => prrte::fence(load, charge),
            Model::Bruck => allgather::bruck(load, charge),
        }
    }
}

/// Cost of a fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// Messages of all links.
    pub messages: u64,
    /// Bytes of all links.
    pub bytes: u64,
    /// Maximum number of bytes that one daemon or the head received.
    pub received: u64,
    /// Maximum number of bytes that one daemon or the head sent.
    pub sent: u64,
    /// From the last arrival to the last release, in nanoseconds.
    pub time: u64,
}

impl Cost {
    /// The cost of the messages so far, if the last rank was released at `time`.
    pub(crate) fn of<T>(fabric: &Fabric<T>, time: u64) -> Cost {
        let (messages, bytes) = fabric.total();
        let traffic = fabric.traffic();
        Cost {
            messages,
            bytes,
            received: traffic.iter().map(|traffic| traffic.received).max().unwrap_or(0),
            sent: traffic.iter().map(|traffic| traffic.sent).max().unwrap_or(0),
            time,
        }
    }
}
