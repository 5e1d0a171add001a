//! Scenarios of the cluster: nodes, programs of the ranks, and faults, all from one seed.

use fastrand::Rng;
use hydrant_control::protocol::StdinTarget;
use hydrant_core::peer::tree::{LATE, Tree};
use hydrant_core::server::FenceMode;

use super::script::{Ending, Step};
use crate::net::Speed;
use crate::rank::{self, KEYS, Kind, Meeting};

/// A millisecond of virtual time, in nanoseconds.
pub(super) const MS: u64 = 1_000_000;
/// Time until the loss of a link, or of a host that stands still, is noticed.
pub(super) const HEARTBEAT: u64 = 30 * MS;

/// Most daemons of a run, ranks of all of its programs, and children of a node.
pub(super) const DAEMONS_MAX: u32 = 9;
/// Most daemons that are started later.
pub(super) const LATE_MAX: u32 = 2;
pub(super) const RANKS_MAX: u32 = RANKS_OF_FIRST + 2 * RANKS_OF_SPAWNED;
pub(super) const RADIX_MAX: u32 = 4;
/// Most ranks of the first program, and of each of the two that ranks spawn.
const RANKS_OF_FIRST: u32 = 12;
const RANKS_OF_SPAWNED: u32 = 4;

/// Parameters of a run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Seed of the random choices of the plan and of its run.
    pub seed: u64,
    /// Number of daemons. Node 0 is the head.
    pub daemons: u32,
    /// Maximum number of children of a node.
    pub radix: u32,
    /// Timing of links.
    pub speed: Speed,
    /// Slowness factor of each node.
    pub slowness: Vec<u64>,
    /// A rank that fails ends its job.
    pub cleanup: bool,
    /// Pairs that travel with fences.
    pub fence: FenceMode,
    /// Programs. The first one is the job of the command line, ranks spawn the others.
    pub programs: Vec<Program>,
    /// Node of each rank of the first program, in ascending order of ranks.
    pub places: Vec<u32>,
    /// Time at which all daemons have joined, in nanoseconds.
    pub joined_at: u64,
    /// Hosts that have no daemon before a spawn needs it, behind the others.
    pub unused: u32,
    /// Hosts that join.
    pub joins: Vec<Join>,
    /// Hosts that leave.
    pub departures: Vec<Departure>,
    /// Daemons that are lost. There are several only in a run that goes on after failures.
    pub losses: Vec<Loss>,
    /// Hosts that stand still for a time in which their neighbours do not give them up.
    pub freezes: Vec<Freeze>,
    /// Times at which the user presses Ctrl-C.
    pub interrupts: Vec<u64>,
    /// A node whose daemon lies, and the times of its lies.
    pub liar: Option<(u32, Vec<u64>)>,
    /// Servers are on boards, and messages between boards have links of their own.
    pub are_linked: bool,
    /// Clients that are no ranks: the times at which they connect, and their nodes.
    pub strangers: Vec<(u64, u32)>,
    /// The reader of the output does not read between these times.
    pub stall: (u64, u64),
    /// Node that cannot start one of its ranks.
    pub start_fails: Option<u32>,
    /// Standard input.
    pub input: Option<Input>,
    /// Milliseconds that a look-up waits for its name.
    pub lookup_wait: u32,
}

/// A host that joins.
#[derive(Clone, Copy, Debug)]
pub struct Join {
    /// Time at which the user names it, if it is not a spawn that needs it.
    pub at: u64,
    /// Nanoseconds until its daemon has connected or has failed.
    pub delay: u64,
    /// The daemon cannot be started.
    pub fails: bool,
}

/// A host that leaves.
#[derive(Clone, Copy, Debug)]
pub struct Departure {
    /// Its node, which the run may not have.
    pub node: u32,
    /// Time at which the user names it.
    pub at: u64,
    /// Its ranks are ended.
    pub force: bool,
}

/// Loss of a daemon.
#[derive(Clone, Copy, Debug)]
pub struct Loss {
    /// Its node.
    pub node: u32,
    /// Time of the loss.
    pub at: u64,
    /// What happens to it.
    pub how: How,
}

/// How a daemon is lost.
#[derive(Clone, Copy, Debug)]
pub enum How {
    /// Its processes are killed with it.
    Killed,
    /// It runs on, and the link to its parent is cut.
    Cut,
    /// Its host stands still for so many nanoseconds. Its neighbours give it up before it goes on.
    Frozen(u64),
}

/// A host that stands still: its daemon and its ranks.
#[derive(Clone, Copy, Debug)]
pub struct Freeze {
    /// Its node. 0 is the head.
    pub node: u32,
    /// Time of the stop.
    pub at: u64,
    /// Nanoseconds until it goes on.
    pub len: u64,
}

/// Standard input of the run.
#[derive(Clone, Copy, Debug)]
pub struct Input {
    /// Ranks of the first program that read it.
    pub target: StdinTarget,
    /// Its length in bytes.
    pub len: u32,
    /// Nanoseconds between two pieces.
    pub pause: u64,
}

/// Scripts of the ranks of a program.
#[derive(Clone, Debug)]
pub struct Program {
    /// PMI version: 1 or 2.
    pub protocol: u32,
    /// Steps of each rank.
    pub scripts: Vec<Vec<Step>>,
    /// Meetings of the ranks.
    pub meetings: Vec<Meeting>,
}

impl Plan {
    /// Number of daemons that may be started later.
    pub(super) fn late(&self) -> u32 {
        if self.joins.is_empty() { self.unused } else { LATE_MAX }
    }

    /// The tree of all nodes.
    pub(super) fn tree(&self) -> Tree {
        Tree::new(self.daemons + 1 + self.late(), self.radix | (self.late() * LATE))
    }

    /// The plan of a seed.
    pub fn new(seed: u64) -> Plan {
        let mut random = Rng::with_seed(seed);
        let random = &mut random;
        let most = if random.bool() { 3 } else { DAEMONS_MAX };
        let daemons = random.u32(1..=most);
        let size = random.u32(1..=RANKS_OF_FIRST);
        let speed = Speed {
            delay: random.u64(1_000..=2 * MS),
            jitter: if random.bool() { 0 } else { random.u64(1..=5 * MS) },
            per_kilobyte: random.u64(100..=100_000),
            window: random.u64(1..=16_384),
        };
        let is_liar = random.u32(..4) == 0;
        let cleanup = random.u32(..4) > 0;
        let spawns = if random.u32(..3) == 0 { random.u32(1..=2) } else { 0 };
        // Of a run with a liar the lies are the only faults.
        let fails = !is_liar && random.u32(..5) < 2;
        let once = |chance: u32, random: &mut Rng| !is_liar && random.u32(..chance) == 0;
        let lose = |random: &mut Rng| Loss {
            node: random.u32(1..=daemons),
            at: random.u64(0..80 * MS),
            how: How::new(random),
        };
        let mut losses: Vec<Loss> = once(6, random).then(|| lose(random)).into_iter().collect();
        let mut interrupts = Vec::new();
        if once(7, random) {
            interrupts.extend((0..random.u32(1..=2)).map(|_| random.u64(0..60 * MS)));
        }
        let begin = random.u64(0..40 * MS);
        let stall = if random.bool() { (begin, begin + random.u64(0..100 * MS)) } else { (0, 0) };
        let lies = |random: &mut Rng| (0..random.u32(1..=6)).map(|_| random.u64(3 * MS..60 * MS)).collect();
        let stranger = |random: &mut Rng| (random.u64(0..50 * MS), random.u32(1..=daemons));
        let mut programs = vec![program(size, spawns, cleanup, fails, random)];
        for _ in 0..spawns {
            let size = random.u32(1..=RANKS_OF_SPAWNED);
            let fails = fails && random.bool();
            programs.push(program(size, 0, cleanup, fails, random));
        }
        // A sequence of its own: the rest of the plan is the same with and without input.
        let others = &mut Rng::with_seed(seed ^ 0x5851_f42d);
        let input = (others.u32(..3) == 0).then(|| input(&mut programs[0], others));
        if !cleanup && !is_liar {
            let others = &mut Rng::with_seed(seed ^ 0x6c07_8965);
            losses.extend((0..others.u32(..4)).map(|_| lose(others)));
        }
        let are_linked = !is_liar && daemons > 1 && Rng::with_seed(seed ^ 0x2545_f491).u32(..3) == 0;
        let others_join = &mut Rng::with_seed(seed ^ 0x3c6e_f372);
        let mut joins = Vec::new();
        if !are_linked && others_join.bool() {
            joins.extend((0..others_join.u32(1..=LATE_MAX + 1)).map(|_| Join::new(others_join)));
            if !is_liar && others_join.u32(..4) == 0 {
                let node = daemons + others_join.u32(1..=LATE_MAX);
                losses.push(Loss { node, at: others_join.u64(0..90 * MS), how: How::new(others_join) });
            }
        }
        let spawns_need = &mut Rng::with_seed(seed ^ 0x1b87_3593);
        let has_unused = !are_linked && spawns > 0 && spawns_need.u32(..3) > 0;
        let unused = if has_unused { spawns_need.u32(1..=LATE_MAX) } else { 0 };
        let others_leave = &mut Rng::with_seed(seed ^ 0x1f83_d9ab);
        let mut departures = Vec::new();
        if !joins.is_empty() && !is_liar {
            let leave = |random: &mut Rng| Departure {
                node: random.u32(1..=daemons + LATE_MAX),
                at: random.u64(0..80 * MS),
                force: random.bool(),
            };
            departures.extend((0..others_leave.u32(..4)).map(|_| leave(others_leave)));
        }
        let others_freeze = &mut Rng::with_seed(seed ^ 0x9b05_688c);
        let mut freezes = Vec::new();
        if !is_liar && others_freeze.u32(..3) == 0 {
            freezes.extend((0..others_freeze.u32(1..4)).map(|_| Freeze::new(daemons, others_freeze)));
        }
        for loss in &mut losses {
            if others_freeze.u32(..3) == 0 {
                loss.how = How::Frozen(others_freeze.u64(HEARTBEAT + MS..8 * HEARTBEAT));
            }
        }
        Plan {
            seed,
            daemons,
            unused,
            joins,
            departures,
            radix: random.u32(2..=RADIX_MAX),
            speed,
            slowness: (0..=daemons).map(|_| if random.u32(..8) == 0 { 200 } else { 1 }).collect(),
            cleanup,
            programs,
            places: places(daemons, size, random),
            joined_at: random.u64(0..20 * MS),
            losses,
            freezes,
            interrupts,
            liar: is_liar.then(|| (random.u32(1..=daemons), lies(random))),
            are_linked,
            strangers: (0..random.u32(..6)).map(|_| stranger(random)).collect(),
            stall,
            start_fails: once(12, random).then(|| random.u32(1..=daemons)),
            input,
            lookup_wait: if others.bool() { 0 } else { others.u32(1..40) },
            fence: if random.u32(..3) == 0 { FenceMode::Lazy } else { FenceMode::Collect },
        }
    }
}

impl How {
    fn new(random: &mut Rng) -> How {
        if random.bool() { How::Cut } else { How::Killed }
    }
}

impl Freeze {
    fn new(daemons: u32, random: &mut Rng) -> Freeze {
        // Freezes of one node may follow each other without a pause.
        let len = random.u64(0..HEARTBEAT / 4);
        Freeze { node: random.u32(0..=daemons), at: random.u64(0..80 * MS), len }
    }
}

impl Join {
    pub(super) fn new(random: &mut Rng) -> Join {
        Join { at: random.u64(0..60 * MS), delay: random.u64(0..10 * MS), fails: random.u32(..4) == 0 }
    }
}

/// Adds input, and the steps of the ranks that read it.
///
/// All ranks read before they wait for each other: a rank that does not read holds up the others.
fn input(program: &mut Program, random: &mut Rng) -> Input {
    let size = program.scripts.len() as u32;
    let target = if random.bool() { StdinTarget::All } else { StdinTarget::Rank(random.u32(..size)) };
    for (rank, steps) in (0..).zip(&mut program.scripts).filter(|(rank, _)| target.includes(*rank)) {
        let mut reads = Vec::new();
        for _ in 0..random.u32(..3) {
            let len = if random.bool() { random.u32(1..2_000) } else { random.u32(1..200_000) };
            reads.push(Step::Read { len });
            if random.bool() {
                reads.push(Step::Sleep(random.u64(0..5 * MS)));
            }
        }
        reads.push(if random.u32(..3) == 0 { Step::CloseInput } else { Step::Read { len: u32::MAX } });
        // A rank that reads alone may read at any time.
        let at = if target == StdinTarget::Rank(rank) { random.usize(..steps.len()) } else { 0 };
        steps.splice(at..at, reads);
    }
    let most = if random.bool() { 4_000 } else { 800_000 };
    Input { target, len: random.u32(..most), pause: if random.bool() { 0 } else { random.u64(1..3 * MS) } }
}

/// Node of each rank: in blocks, round robin, or at random.
fn places(daemons: u32, size: u32, random: &mut Rng) -> Vec<u32> {
    let how = random.u32(..3);
    let block = size.div_ceil(daemons);
    let place = |rank: u32, random: &mut Rng| match how {
        0 => rank / block,
        1 => rank % daemons,
        _ => random.u32(..daemons),
    };
    (0..size).map(|rank| 1 + place(rank, random)).collect()
}

fn program(size: u32, spawns: u32, cleanup: bool, fails: bool, random: &mut Rng) -> Program {
    let protocol = random.u32(1..=2);
    if spawns == 0 && random.u32(..8) == 0 {
        return without_mpi(protocol, size, fails, random);
    }
    let mut meetings = Vec::new();
    let mut scripts: Vec<Vec<Step>> = (0..size)
        .map(|_| {
            let late = random.u32(..6) == 0;
            let mut steps = if late { vec![Step::Sleep(random.u64(0..20 * MS))] } else { Vec::new() };
            steps.push(Step::Pmi(rank::Step::Init));
            steps
        })
        .collect();
    for round in 1..=random.u32(1..=3) {
        for steps in &mut scripts {
            talk(steps, random);
            for _ in 0..random.u32(..3) {
                let (key, len) = (random.u32(..KEYS), random.usize(2..40));
                steps.push(Step::Pmi(rank::Step::Put { key, round, len, greedy: false }));
            }
        }
        let kind = if protocol == 2 && random.u32(..4) == 0 { Kind::Ring } else { Kind::Fence };
        meetings.push(Meeting { members: (0..size).collect(), kind });
        for steps in &mut scripts {
            steps.push(Step::Pmi(rank::Step::Meet { meeting: meetings.len() - 1 }));
            for _ in 0..random.u32(..3) {
                let (rank, key) = (random.u32(..size), random.u32(..KEYS));
                steps.push(Step::Pmi(rank::Step::Get { rank, key }));
            }
        }
    }
    for spawned in 1..=spawns {
        let spawner = random.usize(..scripts.len());
        scripts[spawner].push(Step::Spawn { program: spawned });
    }
    for steps in &mut scripts {
        steps.push(Step::Pmi(rank::Step::Finalize));
        talk(steps, random);
        steps.push(Step::End(Ending::Exit(0)));
    }
    let failing = if fails { random.u32(1..=2) } else { 0 };
    for _ in 0..failing {
        let steps = &mut scripts[random.usize(..size as usize)];
        fail(steps, protocol, cleanup, random);
    }
    Program { protocol, scripts, meetings }
}

/// Ranks that only write.
fn without_mpi(protocol: u32, size: u32, fails: bool, random: &mut Rng) -> Program {
    let mut scripts = vec![Vec::new(); size as usize];
    for steps in &mut scripts {
        steps.push(Step::Sleep(random.u64(0..30 * MS)));
        talk(steps, random);
        let code = if fails && random.u32(..3) == 0 { random.u8(1..) } else { 0 };
        steps.push(Step::End(Ending::Exit(code)));
    }
    Program { protocol, scripts, meetings: Vec::new() }
}

/// Output, requests about names, and pauses.
fn talk(steps: &mut Vec<Step>, random: &mut Rng) {
    for _ in 0..random.u32(..3) {
        let most = if random.u32(..10) == 0 { 300_000 } else { 3_000 };
        steps.push(match random.u32(..8) {
            0 => Step::Sleep(random.u64(0..3 * MS)),
            1 => Step::Publish { name: random.u32(..3) },
            2 => Step::Lookup { name: random.u32(..3) },
            3 => Step::Unpublish { name: random.u32(..3) },
            _ => Step::Write { stderr: random.bool(), len: random.u32(1..most) },
        });
        let asks =
            |step: &Step| matches!(step, Step::Publish { .. } | Step::Lookup { .. } | Step::Unpublish { .. });
        let is = |step: &Step, wanted: rank::Step| *step == Step::Pmi(wanted);
        let initialized = steps.iter().any(|step| is(step, rank::Step::Init));
        let finalized = steps.iter().any(|step| is(step, rank::Step::Finalize));
        if steps.last().is_some_and(asks) && (!initialized || finalized) {
            steps.pop();
        }
    }
}

/// Cuts a script short by a failure.
fn fail(steps: &mut Vec<Step>, protocol: u32, cleanup: bool, random: &mut Rng) {
    if steps.last() != Some(&Step::End(Ending::Exit(0))) {
        return;
    }
    let begin = steps.iter().position(|step| *step == Step::Pmi(rank::Step::Init)).unwrap_or(0) + 1;
    let end =
        steps.iter().position(|step| *step == Step::Pmi(rank::Step::Finalize)).unwrap_or(begin).max(begin);
    let anywhere = random.usize(..steps.len());
    let inside = random.usize(begin..=end);
    let (at, ending) = match random.u32(..6) {
        0 => (inside, Ending::Abort(random.u8(..))),
        1 if protocol == 2 => (inside, Ending::SelfAbort(random.u8(1..))),
        2 if cleanup => (inside, Ending::CutOff),
        3 => (inside, Ending::Exit(0)),
        4 => (anywhere, Ending::Exit(random.u8(1..))),
        _ => (anywhere, Ending::Signal(if random.bool() { 11 } else { 9 })),
    };
    steps.truncate(at);
    steps.push(Step::End(ending));
}
