//! Random sequences of everything that clients and a host can do, against a simple model: every reply and every
//! output is what the model says, and the five invariants of `ARCHITECTURE.md` hold after each step.

mod asks;
pub(crate) mod commands;
mod encode;
mod gather;
mod life;
mod psets;
pub(crate) mod replay;
mod says;
mod state;
mod steps;
mod world;

use hydrant_core::Limits;
use hydrant_driver::MappedStorage;

use commands::{Setup, Step};
use replay::Tape;
use world::World;

/// Seed of all servers, any number.
const SEED: u32 = 7;

/// Plays a sequence. Returns its inputs and outputs, and the state at its end.
pub(crate) fn play(limits: Limits, setup: &Setup, steps: &[Step]) -> (Tape, Vec<u8>) {
    let mut memory = MappedStorage::new(&limits);
    let mut world = World::new(limits, &mut memory);
    world.open_job(setup.job);
    for step in steps {
        world.step(step);
    }
    world.quiesce();
    let end = world.full_snapshot();
    (world.tape, end)
}
