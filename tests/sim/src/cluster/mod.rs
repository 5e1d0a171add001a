//! The whole cluster: head, daemons, PMI servers, processes and links, from a seed.
//!
//! Head and daemons are the state machines of hydrant-control, the servers those of hydrant-core, and names are those of
//! hydrant-names. The simulation is their host: it carries out their actions as the launcher does. Ranks follow
//! scripts: they read input and write output, put, meet, spawn, publish names and wait for them, and fail. Links delay
//! and block, daemons are lost or lie, users press Ctrl-C, and clients that are no ranks connect. In some runs the servers are
//! those of boards with links of their own.
//!
//! At the end of each run:
//!
//! - The run has ended, and none of its processes is left.
//! - The exit code is that of a failure that no other failure has caused, and its rank or host is named.
//! - In a job that goes on after failures, the ranks of lost hosts are dead, and every fence among the others completes.
//! - Each byte that a pipe took has arrived at the head, in order, unless the host of the rank is lost.
//! - Ranks get the input in order and to its end, and the head reads at most 256 KiB ahead of the slowest of them.
//! - Clients of other runs, which read at the head, find what was put before a meeting that a rank has left.
//! - Each request about a name has one answer: a look-up finds what is published, and fails when its time has passed.
//! - If a daemon lies, its host is named, or the ranks of all other hosts have ended well.
//!
//! Sockets are not simulated: the encryption and the credit of links, the descriptors of clients, and the handshake at a
//! node's port are code around system calls, and have tests of their own.

mod daemon;
mod head;
mod head_host;
mod input;
mod liar;
mod links;
mod names;
mod node;
mod plan;
mod process;
mod readers;
mod script;
mod stdin;
mod steps;
mod world;

use std::cell::Cell;
use std::time::Duration;

use hydrant_control::protocol::{Program, RankBlock, RunSettings, Setup, StdinTarget};
use hydrant_control::{Config, Daemon, DaemonConfig, FirstJob, Head};
use hydrant_core::peer::tree::ROOT_ONE;
use hydrant_core::{Limits, Server};
use hydrant_driver::MappedStorage;
use hydrant_names::{LIMITS_OF_RUN, LocalNames};
use hydrant_placement::{Host, MapBy};

pub use plan::Plan;
pub use world::Summary;

use head_host::HeadHost;
use node::Node;
use world::World;

/// Connections of each node beside those of ranks.
const STRANGERS: u32 = 4;

/// Runs the plan of a seed to its end.
///
/// # Panics
/// A guarantee is broken.
pub fn run(seed: u64) -> Summary {
    play(seed, &[]).0
}

/// Runs the plan of a seed twice to its end, the second time with a successor of each server from a random step on.
///
/// # Panics
/// A guarantee is broken, or the runs differ in an output.
pub fn run_succeeded(seed: u64) -> Summary {
    let (summary, steps) = play(seed, &[]);
    let mut random = fastrand::Rng::with_seed(seed);
    let at: Vec<u64> = steps.iter().map(|&steps| random.u64(..steps.max(1))).collect();
    assert_eq!(play(seed, &at).0, summary, "the run with successors at {at:?} differs");
    summary
}

/// Runs a plan. The server of each node has a successor from the step in `at` on. Returns the number of steps of each.
fn play(seed: u64, at: &[u64]) -> (Summary, Vec<u64>) {
    let plan = Plan::new(seed);
    let ranks = plan.programs.iter().map(|program| program.scripts.len() as u32).sum();
    let limits = limits(ranks, plan.radix + plan.late());
    let tree = plan.tree();
    let count = tree.nodes();
    let of_names = limits_of_names(limits.ranks);
    let mut memory = MEMORY.take().unwrap_or_else(Memory::new);
    let form = if plan.are_linked { ROOT_ONE } else { 0 };
    let shape = (count, tree.form() | form);
    let nodes = (0..count).zip(&mut memory.nodes).map(|(number, memory)| {
        let mut node = Node::new(number, shape, limits, memory, seed as u32);
        let config = DaemonConfig {
            node: number,
            process: 50 + number,
            needs_ready: false,
            verbose: false,
            progress: false,
            kill_grace: None,
        };
        node.daemon = (number > 0).then(|| Daemon::new(config));
        node.alive = number <= plan.daemons;
        node
    });
    let mut nodes: Vec<Node<'_>> = nodes.collect();
    for ((node, &at), memory) in nodes.iter_mut().zip(at).zip(&mut memory.successors) {
        if let Some(server) = &mut node.server {
            server.succeed_at(at, memory);
        }
    }
    let names = Server::new(of_names, memory.names.lend(), 0).expect("the memory is as long as required");
    let head = Head::new(config(&plan), first_job(&plan, limits));
    let mut world = World::new(plan, HeadHost::new(head, LocalNames::new(Box::new(names))), nodes);
    let played = (world.run(), world.steps());
    drop(world);
    MEMORY.set(Some(memory));
    played
}

/// Memory of all servers of a run, for any plan. Each run takes it from the run before.
struct Memory {
    nodes: Vec<MappedStorage>,
    successors: Vec<MappedStorage>,
    names: MappedStorage,
}

thread_local! {
    static MEMORY: Cell<Option<Memory>> = const { Cell::new(None) };
}

impl Memory {
    fn new() -> Memory {
        let most = limits(plan::RANKS_MAX, plan::RADIX_MAX + plan::LATE_MAX);
        let of_nodes =
            || (0..=plan::DAEMONS_MAX + plan::LATE_MAX).map(|_| MappedStorage::new(&most)).collect();
        Memory {
            nodes: of_nodes(),
            successors: of_nodes(),
            names: MappedStorage::new(&limits_of_names(plan::RANKS_MAX)),
        }
    }
}

fn limits(ranks: u32, radix: u32) -> Limits {
    Limits {
        jobs: 4,
        ranks,
        conns: ranks + STRANGERS,
        keys: ranks * 32,
        kvs_bytes: 1 << 16,
        groups: 4,
        spawns: 4,
        spawn_bytes: 512,
        psets: 8,
        links: radix + 2,
        ..Limits::NONE
    }
}

/// Limits of the name service: a connection of each job and of each look-up that waits. Some runs have more look-ups.
fn limits_of_names(ranks: u32) -> Limits {
    let conns = 4 + ranks / 2;
    Limits { jobs: conns, ranks: conns, conns, names: 3, ..LIMITS_OF_RUN }
}

fn config(plan: &Plan) -> Config {
    Config {
        host: "login".into(),
        hosts: (1..=plan.daemons + plan.unused)
            .map(|node| Host::with_slots(&format!("n{node}"), 4))
            .collect(),
        unused: plan.unused,
        late: plan.late() - plan.unused,
        least: Some(1),
        map_by: MapBy::Slot,
        verbose: false,
        cleanup: plan.cleanup,
        stays: false,
        universe_size: None,
        exit_code_of: hydrant_control::ExitCodeOf::First,
        exit_report: false,
        is_alone: false,
        shares_names: false,
        fence_warning: 10,
        plugin: None,
        process: 7,
        order_max: Some(1 << 16),
        radix: plan.radix,
        link_addrs: Vec::new(),
    }
}

fn first_job(plan: &Plan, limits: Limits) -> FirstJob {
    let mut blocks: Vec<RankBlock> = Vec::new();
    for (rank, &node) in (0..).zip(&plan.places) {
        match blocks.last_mut() {
            Some(last) if last.node == node => last.count += 1,
            _ => blocks.push(RankBlock { node, first: rank, count: 1 }),
        }
    }
    let program = Program {
        ranks: plan.places.len() as u32,
        command: script::command(0).into(),
        args: Vec::new(),
        env: Vec::new(),
        wdir: None,
        path: None,
        psets: Vec::new(),
    };
    let (programs, mapping) = (vec![program], "(vector,(0,1,1))".into());
    let (setup, awaits_debugger) = (setup(plan, limits), false);
    FirstJob { programs, blocks, mapping, nonce: 1, setup, awaits_debugger }
}

fn setup(plan: &Plan, limits: Limits) -> Setup {
    let settings = RunSettings {
        stdin: plan.input.map_or(StdinTarget::None, |input| input.target),
        cleanup: plan.cleanup,
        fence_warning: Duration::from_millis(10),
        fence: plan.fence,
        lookup_wait: Duration::from_millis(plan.lookup_wait.into()),
        ..RunSettings::default()
    };
    let mut setup = Setup::new(limits, settings);
    if plan.are_linked {
        setup.boards.targets = (1..=plan.daemons).map(|node| (node, format!("dpu{node}"))).collect();
        setup.boards.link = Some([7; 16]);
    }
    setup
}
