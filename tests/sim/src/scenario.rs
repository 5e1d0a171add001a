//! Scenarios of seeds: nodes, links, scripts of ranks, failures.

use std::ops::Range;

use hydrant_core::server::FenceMode;
use hydrant_core::trace::Exit;

use crate::net::Speed;
use crate::node::Layout;
use crate::rank::{KEYS, Kind, Meeting, Script, Step};

/// Parameters of a run.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Seed of the random choices of the scenario and of its run.
    pub seed: u64,
    /// Nodes and ranks.
    pub layout: Layout,
    /// Timing of links.
    pub speed: Speed,
    /// Slowness factor of each node.
    pub slowness: Vec<u64>,
    /// A rank that fails ends its job.
    pub cleanup: bool,
    /// Jobs, one after the other.
    pub jobs: Vec<Program>,
    /// A daemon that is lost, and when, in nanoseconds.
    pub lost: Option<(u32, u64)>,
    /// Bytes of log.
    pub kvs_bytes: u32,
    /// The host makes occasional mistakes.
    pub mistakes: bool,
    /// Pairs that travel with fences.
    pub fence: FenceMode,
}

/// Scripts of the ranks of one job.
#[derive(Clone, Debug)]
pub struct Program {
    /// Each rank's script.
    pub scripts: Vec<Script>,
    /// Meetings of the ranks.
    pub meetings: Vec<Meeting>,
    /// The job ends by a failure.
    pub fails: bool,
}

impl Scenario {
    /// The scenario of a seed.
    pub fn new(seed: u64) -> Scenario {
        let mut random = fastrand::Rng::with_seed(seed);
        let most = if random.bool() { 4 } else { 20 };
        let daemons = random.u32(1..=most);
        let size = random.u32(1..=24).max(daemons.min(8));
        let places = places(daemons, size, &mut random);
        let layout = Layout { nodes: daemons + 1, radix: random.u32(2..=5), places };
        let speed = Speed {
            delay: random.u64(1_000..=2_000_000),
            jitter: if random.bool() { 0 } else { random.u64(1..=5_000_000) },
            per_kilobyte: random.u64(100..=100_000),
            window: random.u64(1..=16_384),
        };
        let slowness = (0..layout.nodes).map(|_| if random.u32(..8) == 0 { 200 } else { 1 }).collect();
        let cleanup = random.bool();
        let greedy = random.u32(..6) == 0;
        // Large values pass the tree in pieces.
        let (lens, kvs_bytes) = match random.u32(..4) {
            _ if greedy => (2..40, size * 3000),
            0 => (500..1000, 1 << 21),
            _ => (2..40, 1 << 18),
        };
        let lost = (random.u32(..8) == 0).then(|| (random.u32(1..=daemons), random.u64(0..60_000_000)));
        let jobs = (0..random.u32(1..=3))
            .map(|job| Program::new(&format!("kvs_sim_{job}"), size, cleanup, greedy, &lens, &mut random))
            .collect();
        let mistakes = random.u32(..4) == 0;
        // Waiting gets need room, which greedy ranks leave no one.
        let lazy = !greedy && random.bool();
        let fence = if lazy { FenceMode::Lazy } else { FenceMode::Collect };
        Scenario { seed, layout, speed, slowness, cleanup, jobs, lost, kvs_bytes, mistakes, fence }
    }
}

/// Node of each rank: in blocks, round robin, or at random.
fn places(daemons: u32, size: u32, random: &mut fastrand::Rng) -> Vec<u32> {
    let how = random.u32(..3);
    let block = size.div_ceil(daemons);
    let place = |rank: u32, random: &mut fastrand::Rng| match how {
        0 => rank / block,
        1 => rank % daemons,
        _ => random.u32(..daemons),
    };
    (0..size).map(|rank| 1 + place(rank, random)).collect()
}

impl Program {
    fn new(
        name: &str,
        size: u32,
        cleanup: bool,
        greedy: bool,
        lens: &Range<usize>,
        random: &mut fastrand::Rng,
    ) -> Program {
        let protocol = random.u32(1..=2);
        let mut meetings = Vec::new();
        let mut steps = vec![vec![Step::Init]; size as usize];
        let hogs: Vec<bool> = (0..size).map(|_| greedy && random.u32(..4) == 0).collect();
        for round in 1..=random.u32(1..=4) {
            for (steps, &hog) in steps.iter_mut().zip(&hogs) {
                for _ in 0..random.u32(0..=4) {
                    let (len, greedy) = if hog { (1000, true) } else { (random.usize(lens.clone()), false) };
                    steps.push(Step::Put { key: random.u32(..KEYS), round, len, greedy });
                }
            }
            if protocol == 1 {
                add_groups(size, round, &mut meetings, &mut steps, random);
            }
            let kind =
                if protocol == 2 && !greedy && random.u32(..4) == 0 { Kind::Ring } else { Kind::Fence };
            meetings.push(Meeting { members: (0..size).collect(), kind });
            for steps in &mut steps {
                steps.push(Step::Meet { meeting: meetings.len() - 1 });
                for _ in 0..random.u32(0..=4) {
                    steps.push(Step::Get { rank: random.u32(..size), key: random.u32(..KEYS) });
                }
            }
        }
        let mut fails = false;
        for steps in &mut steps {
            steps.extend([Step::Finalize, Step::End(Exit::Code(0))]);
            // In a job that survives failures some ranks die. In other jobs a death ends the job.
            if random.u32(..if cleanup { 40 } else { 6 }) == 0 {
                fails |= cleanup;
                let last = steps.len() - 2;
                steps.truncate(random.usize(1..=last));
                steps.push(Step::End(Exit::Signal(9)));
            }
        }
        let script = |steps| Script { steps, at: 0, name: name.to_owned(), protocol, exit: None };
        let scripts = steps.into_iter().map(script).collect();
        Program { scripts, meetings, fails }
    }
}

/// Adds meetings of groups of ranks, in the same order for all ranks.
fn add_groups(
    size: u32,
    round: u32,
    meetings: &mut Vec<Meeting>,
    steps: &mut [Vec<Step>],
    random: &mut fastrand::Rng,
) {
    for tag in 0..random.u32(0..=3) {
        let share = random.u32(1..=4);
        let members: Vec<u32> = (0..size).filter(|_| random.u32(..4) < share).collect();
        if members.is_empty() {
            continue;
        }
        for &member in &members {
            steps[member as usize].push(Step::Meet { meeting: meetings.len() });
        }
        // The same tag comes again for other members, and for the same ones in another round.
        meetings.push(Meeting { members, kind: Kind::Group(tag * (round % 2)) });
    }
}
