//! Fences of hydrant beside the models of other process managers.

use crate::fabric::Charge;
use crate::measure;
use crate::models::{self, Load, Model, VALUES, hydrant};

/// Ranks of each node.
pub const RANKS: u32 = 16;
/// Maximum numbers of children that are compared.
pub const RADICES: [u32; 7] = [2, 3, 4, 6, 8, 16, 32];
/// Messages of a fence up to which the model of hydrant is run.
const MESSAGES_MAX: u64 = 20_000_000;

/// A fence of hydrant and its lower bound.
#[derive(Clone, Debug)]
pub struct Point {
    /// Nodes, ranks and values.
    pub load: Load,
    /// Maximum number of children of a node.
    pub radix: u32,
    /// Who pays for a message.
    pub charge: Charge,
    /// Lower bound of the time, in nanoseconds.
    pub bound: u64,
    /// Its cost.
    pub own: Own,
}

impl Point {
    /// Counts a fence.
    pub fn new(load: Load, radix: u32, memory: u64, charge: Charge) -> Point {
        eprintln!("{load:?}, radix {radix}, {charge:?}");
        let own = Own::of(load, radix, memory, charge);
        Point { load, radix, charge, bound: measure::bound(load, radix), own }
    }

    /// Returns the time divided by its bound.
    pub fn times(&self) -> Option<f64> {
        self.own.time().map(|time| time as f64 / self.bound as f64)
    }
}

/// Fences of up to `most` nodes. The simulation of one may take `memory` bytes.
pub fn points(most: u32, radix: u32, memory: u64) -> Vec<Point> {
    let mut points = Vec::new();
    for daemons in [2, 16, 64, 256, 1024, 4096, 10_000].into_iter().filter(|&daemons| daemons <= most) {
        for ranks in [1, 16, 128] {
            points
                .extend(VALUES.map(|value| {
                    Point::new(Load { daemons, ranks, value }, radix, memory, Charge::Receiver)
                }));
        }
    }
    points
}

/// Fences of the same nodes in trees of several widths, charged in both ways.
pub fn widths(memory: u64) -> Vec<[Point; 2]> {
    let of = |radix| {
        VALUES.map(|value| {
            let load = Load { daemons: 256, ranks: RANKS, value };
            Charge::ALL.map(|charge| Point::new(load, radix, memory, charge))
        })
    };
    RADICES.into_iter().flat_map(of).collect()
}

/// The same fence by all.
#[derive(Clone, Debug)]
pub struct Row {
    /// Nodes, ranks and values.
    pub load: Load,
    /// Who pays for a message.
    pub charge: Charge,
    /// Fence of hydrant.
    pub hydrant: Own,
    /// Costs of [`Model::ALL`].
    pub models: Vec<models::Cost>,
}

/// Fence of hydrant.
#[derive(Clone, Debug)]
pub enum Own {
    /// By real servers.
    Simulated(measure::Cost),
    /// By the model, where real servers have no room.
    Modelled(models::Cost),
    /// Neither has the memory or the time.
    Missing,
}

impl Own {
    /// From the last arrival to the last release, in nanoseconds.
    pub fn time(&self) -> Option<u64> {
        match self {
            Own::Simulated(cost) => Some(cost.time),
            Own::Modelled(cost) => Some(cost.time),
            Own::Missing => None,
        }
    }

    fn of(load: Load, radix: u32, memory: u64, charge: Charge) -> Own {
        if measure::memory(load) <= memory {
            return Own::Simulated(measure::fence(load, radix, charge));
        }
        match hydrant::messages(load, radix) {
            ..MESSAGES_MAX => Own::Modelled(hydrant::fence(load, radix, charge)),
            _ => Own::Missing,
        }
    }
}

/// Compares fences of up to `most` nodes. The simulation of a fence may take `memory` bytes.
pub fn rows(most: u32, radix: u32, memory: u64) -> Vec<Row> {
    let nodes = [4, 16, 64, 256, 1024, 4096, 10_000].into_iter().filter(|&nodes| nodes <= most);
    let loads = nodes.flat_map(|daemons| VALUES.map(|value| Load { daemons, ranks: RANKS, value }));
    let loads: Vec<Load> = loads.collect();
    let mut rows = Vec::new();
    for charge in Charge::ALL {
        for &load in &loads {
            let hydrant = Point::new(load, radix, memory, charge).own;
            let models = Model::ALL.iter().map(|model| model.fence(load, charge)).collect();
            rows.push(Row { load, charge, hydrant, models });
        }
    }
    rows
}
