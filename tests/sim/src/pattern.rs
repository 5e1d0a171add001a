//! Exchanges that are counted: ranks in a grid put a value each, enter a fence, and get values of others.

use hydrant_core::Limits;

use crate::fabric::Fabric;

/// Bytes of the value of each rank, about the size of an MPI library's address.
pub const VALUE: u32 = 128;

/// Ranks whose values a rank gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// The ranks before and after.
    Ring,
    /// The 26 neighbours in a periodic grid of three dimensions.
    Halo,
    /// Rank 0.
    One,
    /// The ranks before and after, by a client that names no rank.
    RingWithoutHints,
}

impl Pattern {
    /// All patterns.
    pub const ALL: [Pattern; 4] = [Pattern::Ring, Pattern::Halo, Pattern::One, Pattern::RingWithoutHints];

    /// Name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Pattern::Ring => "ring",
            Pattern::Halo => "26 neighbours",
            Pattern::One => "rank 0",
            Pattern::RingWithoutHints => "ring without hints",
        }
    }

    /// Returns whether gets name the rank that has put the value.
    pub fn has_hints(self) -> bool {
        self != Pattern::RingWithoutHints
    }
}

/// A fence of `side`³ ranks and the gets after it, one after the other in each rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// Number of daemons, without the head. Each has the same number of ranks.
    pub daemons: u32,
    /// Ranks of each dimension of the grid, at least 3.
    pub side: u32,
    /// Maximum number of children of a node.
    pub radix: u32,
    /// Values that are got.
    pub pattern: Pattern,
}

impl Exchange {
    /// Ranks of all daemons.
    pub fn ranks(&self) -> u32 {
        self.side.pow(3)
    }

    /// Ranks of each daemon, which are consecutive.
    pub fn block(&self) -> u32 {
        self.ranks() / self.daemons
    }

    /// Returns the node of a rank.
    pub fn node(&self, rank: u32) -> u32 {
        1 + rank / self.block()
    }

    /// Returns the rank whose value is the subject of a rank's get with this number.
    pub fn source(&self, rank: u32, get: u32) -> Option<u32> {
        let (ranks, side) = (self.ranks(), self.side);
        match self.pattern {
            Pattern::Ring | Pattern::RingWithoutHints => {
                [rank + ranks - 1, rank + 1].get(get as usize).map(|rank| rank % ranks)
            }
            Pattern::One => (get == 0).then_some(0),
            Pattern::Halo => {
                // The 14th of the 27 near it is the rank itself.
                let near = if get < 13 { get } else { get + 1 };
                let along = |at: u32, step: u32| (at + side + step % 3 - 1) % side;
                let (x, y, z) = (rank % side, rank / side % side, rank / side / side);
                let (x, y, z) = (along(x, near), along(y, near / 3), along(z, near / 9));
                (near < 27).then_some(x + side * (y + side * z))
            }
        }
    }

    /// The limits of the servers.
    pub fn limits(&self) -> Limits {
        let ranks = self.ranks();
        Limits {
            jobs: 1,
            ranks,
            conns: self.block(),
            keys: 64 * ranks,
            kvs_bytes: 8 * ranks * (VALUE + 32),
            links: self.radix + 1,
            ..Limits::NONE
        }
    }
}

/// Cost of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// Messages of all links.
    pub messages: u64,
    /// Maximum number of bytes that the head or a daemon received.
    pub received: u64,
    /// Median of the bytes that the daemons received.
    pub median: u64,
    /// From the last arrival in the fence to the last reply to a get, in nanoseconds.
    pub time: u64,
}

impl Cost {
    /// The cost of the messages so far, if the last get was answered at `time`.
    pub(crate) fn of<T>(fabric: &Fabric<T>, time: u64) -> Cost {
        let mut received: Vec<u64> = fabric.traffic().iter().map(|traffic| traffic.received).collect();
        let head = received.remove(0);
        received.sort_unstable();
        Cost {
            messages: fabric.total().0,
            received: received.last().copied().unwrap_or(0).max(head),
            median: received.get(received.len() / 2).copied().unwrap_or(0),
            time,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn neighbours_in_a_grid_differ_by_one_in_each_dimension() {
        let exchange = Exchange { daemons: 5, side: 5, radix: 2, pattern: Pattern::Halo };
        let place = |rank: u32| [rank % 5, rank / 5 % 5, rank / 25];
        for rank in 0..125 {
            let sources: Vec<u32> = (0..).map_while(|get| exchange.source(rank, get)).collect();
            assert_eq!(sources.iter().collect::<BTreeSet<_>>().len(), 26);
            for source in sources {
                let near = |(a, b): (u32, u32)| [0, 1, 4].contains(&a.abs_diff(b));
                assert!(source != rank && place(source).into_iter().zip(place(rank)).all(near));
            }
        }
    }
}
