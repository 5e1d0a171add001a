//! Steps of a test case, small enough to shrink: indices are resolved modulo what exists.

use hydrant_core::wire::SetOperation;
use proptest::prelude::*;

/// Everything that a case begins with.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    /// Whether every table is small, so that it runs full.
    pub(crate) small: bool,
    /// Varies the limits, most of them if they are small.
    pub(crate) sizes: [u8; 10],
    /// The first job; its ranks join before the first step.
    pub(crate) job: JobPlan,
}

/// A job to come.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JobPlan {
    pub(crate) size: u8,
    pub(crate) cleanup: bool,
    /// Whether look-ups wait.
    pub(crate) waits: bool,
    /// Whether fences can be late.
    pub(crate) warns: bool,
    /// Which ranks speak PMI-2, a bit each.
    pub(crate) v2: u8,
    /// Which ranks come through the port, a bit each.
    pub(crate) port: u8,
    /// How many attributes the host gives it.
    pub(crate) attrs: u8,
}

/// One step of a case.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// The host opens a job, and all its ranks join.
    Job(JobPlan),
    /// The host deregisters a job in any state of its processes.
    Forget {
        job: u8,
    },
    /// A process ends.
    Exit {
        job: u8,
        rank: u8,
        how: u8,
    },
    /// A process asks to be ended alone, and is.
    Leave {
        job: u8,
        rank: u8,
    },
    /// A connection is opened, and its handshake is completed if `joins`.
    Open {
        job: u8,
        rank: u8,
        port: bool,
        v2: bool,
        joins: bool,
    },
    /// A client goes away.
    Close {
        conn: u8,
    },
    /// A client says one message, in two pieces when `cut` falls within it.
    Ask {
        conn: u8,
        ask: Ask,
        cut: u8,
    },
    /// A client says several at once.
    Burst {
        conn: u8,
        asks: Vec<Ask>,
    },
    /// Several clients of a job send the same request.
    EachClient {
        job: u8,
        but: u8,
        ask: Ask,
    },
    /// A client says what is no PMI.
    Rubbish {
        conn: u8,
        which: u8,
    },
    /// A client's message fills the host's buffer and does not end.
    Overfull {
        conn: u8,
        ask: Ask,
    },
    /// The host cannot write to a client, or can again.
    Blocked {
        conn: u8,
    },
    Writable {
        conn: u8,
    },
    /// Time passes.
    Tick {
        millis: u16,
    },
    /// The host carries out a spawn: well, badly, or badly once its job was there.
    Launch {
        spawn: u8,
        how: u8,
    },
    /// The host defines a process set of ranks of a job and all ranks of another one.
    PsetOfTwo {
        jobs: [u8; 2],
        name: u8,
        members: Vec<u8>,
    },
    /// The host defines a process set.
    Pset {
        job: u8,
        name: u8,
        first: u8,
        count: u8,
    },
    /// The host breaks the contract.
    Mistake {
        which: u8,
        at: u8,
    },
}

/// What a client asks. Keys, values and names are numbers of [`text`]s.
#[derive(Clone, Debug)]
pub(crate) enum Ask {
    Init { version: u8 },
    InitAck { rank: u8 },
    FullInit { rank: Option<u8>, job: u8 },
    GetMaxes,
    GetUniverseSize,
    GetAppnum,
    GetJobId,
    Put { job: u8, key: u8, value: u8 },
    Get { job: u8, key: u8 },
    Fence,
    Group { members: Vec<u8>, tag: u8 },
    PutNodeAttr { key: u8, value: u8 },
    GetNodeAttr { key: u8, wait: bool },
    GetJobAttr { key: u8 },
    Publish { name: u8, port: u8 },
    Unpublish { name: u8 },
    Lookup { name: u8 },
    Spawn { sizes: Vec<u8>, preput: Option<(u8, u8)> },
    Connect { job: u8 },
    Disconnect { job: u8 },
    Ring { count: u8, left: u8, right: u8 },
    PsetCount,
    PsetName { index: u8 },
    PsetInfo { name: u8 },
    PsetMembers { name: u8, from: u8 },
    PsetDefine { name: u8, members: Vec<u8> },
    PsetCombine { name: u8, operation: u8, of: [u8; 2] },
    PsetNext { after: u8 },
    PsetRetire { name: u8 },
    PsetPrune,
    Abort { code: Option<i8>, world: bool, message: u8 },
    Finalize,
    Unknown,
}

/// A key: some common, some that the server knows, some that it cannot take.
pub(crate) fn key(which: u8) -> Vec<u8> {
    match which % 14 {
        n @ 0..=4 => format!("k{n}").into_bytes(),
        5 => b"sp ace;semi\\".to_vec(),
        6 => b"universeSize".to_vec(),
        7 => b"PMI_dead_processes".to_vec(),
        8 => b"localRanks".to_vec(),
        9 => b"a0".to_vec(),
        10 => b"physTopology".to_vec(),
        11 => vec![b'k'; 64],
        12 => vec![b'k'; 65],
        _ => Vec::new(),
    }
}

/// A value, a port or a message.
pub(crate) fn text(which: u8) -> Vec<u8> {
    match which % 13 {
        n @ 0..=3 => format!("v{n}").into_bytes(),
        4 => Vec::new(),
        5 => b"a b;c;;d=e\\f".to_vec(),
        6 => vec![b'x'; 120],
        7 => b"two\nlines".to_vec(),
        8 => vec![b'y'; 1023],
        9 => vec![b';'; 1024],
        10 => vec![b'z'; 1025],
        11 => b"\0a\x01\0;".to_vec(),
        _ => vec![0xe4, 0xff],
    }
}

/// A published name.
pub(crate) fn name(which: u8) -> Vec<u8> {
    match which % 7 {
        n @ 0..=3 => format!("n{n}").into_bytes(),
        4 => vec![b'n'; 127],
        5 => vec![b'n'; 128],
        _ => Vec::new(),
    }
}

/// The name of a process set.
pub(crate) fn pset(which: u8) -> &'static str {
    match which % 10 {
        0 => "mpi://WORLD",
        1 => "mpi://self",
        2 => "p0",
        3 => "p1",
        4 => "app://p0",
        5 => "app://ocean",
        6 => "semi;colon",
        7 => "",
        8 => "MPI://mine",
        _ => "has blank",
    }
}

/// The operation on two process sets.
pub(crate) fn operation(which: u8) -> SetOperation {
    [SetOperation::Union, SetOperation::Intersection, SetOperation::Difference][usize::from(which % 3)]
}

fn members() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(0u8..5, 1..4)
}

fn handshakes() -> impl Strategy<Value = Ask> {
    prop_oneof![
        (0u8..4).prop_map(|version| Ask::Init { version }),
        (0u8..5).prop_map(|rank| Ask::InitAck { rank }),
        (prop::option::weighted(0.8, 0u8..5), 0u8..3).prop_map(|(rank, job)| Ask::FullInit { rank, job }),
        Just(Ask::Finalize),
        Just(Ask::Finalize),
    ]
}

fn stored() -> impl Strategy<Value = Ask> {
    let (key, value) = (0u8..14, 0u8..12);
    prop_oneof![
        4 => (prop::option::weighted(0.2, 0u8..5), key.clone(), value.clone())
            .prop_map(|(job, key, value)| Ask::Put { job: job.unwrap_or(0), key, value }),
        4 => (0u8..5, key.clone()).prop_map(|(job, key)| Ask::Get { job, key }),
        2 => (key.clone(), value).prop_map(|(key, value)| Ask::PutNodeAttr { key, value }),
        3 => (key.clone(), any::<bool>()).prop_map(|(key, wait)| Ask::GetNodeAttr { key, wait }),
        1 => key.prop_map(|key| Ask::GetJobAttr { key }),
        1 => Just(Ask::GetJobId),
        1 => prop_oneof![Just(Ask::GetMaxes), Just(Ask::GetUniverseSize), Just(Ask::GetAppnum)],
    ]
}

fn gathering() -> impl Strategy<Value = Ask> {
    prop_oneof![
        3 => Just(Ask::Fence),
        3 => (members(), 0u8..3).prop_map(|(members, tag)| Ask::Group { members, tag }),
        1 => (0u8..3).prop_map(|tag| Ask::Group { members: Vec::new(), tag }),
        3 => (0u8..9, 0u8..12, 0u8..12).prop_map(|(count, left, right)| Ask::Ring { count, left, right }),
    ]
}

fn dynamic() -> impl Strategy<Value = Ask> {
    prop_oneof![
        3 => (0u8..7, 0u8..12).prop_map(|(name, port)| Ask::Publish { name, port }),
        1 => (0u8..7).prop_map(|name| Ask::Unpublish { name }),
        3 => (0u8..7).prop_map(|name| Ask::Lookup { name }),
        3 => (prop::collection::vec(1u8..3, 1..3), prop::option::of((0u8..14, 0u8..12)))
            .prop_map(|(sizes, preput)| Ask::Spawn { sizes, preput }),
        4 => (0u8..5).prop_map(|job| Ask::Connect { job }),
        1 => (0u8..5).prop_map(|job| Ask::Disconnect { job }),
        1 => Just(Ask::PsetCount),
        1 => (0u8..6).prop_map(|index| Ask::PsetName { index }),
        2 => (0u8..10).prop_map(|name| Ask::PsetInfo { name }),
        2 => (0u8..10, 0u8..5).prop_map(|(name, from)| Ask::PsetMembers { name, from }),
        3 => (0u8..10, members()).prop_map(|(name, members)| Ask::PsetDefine { name, members }),
        3 => (2u8..6, 0u8..3, [0u8..6, 0u8..6])
            .prop_map(|(name, operation, of)| Ask::PsetCombine { name, operation, of }),
        3 => (0u8..6).prop_map(|after| Ask::PsetNext { after }),
        2 => (0u8..10).prop_map(|name| Ask::PsetRetire { name }),
        2 => Just(Ask::PsetPrune),
        1 => (prop::option::of(any::<i8>()), prop::bool::weighted(0.3), 0u8..12)
            .prop_map(|(code, world, message)| Ask::Abort { code, world, message }),
        1 => Just(Ask::Unknown),
    ]
}

fn ask() -> impl Strategy<Value = Ask> {
    prop_oneof![1 => handshakes(), 5 => stored(), 5 => gathering(), 5 => dynamic()]
}

fn plan() -> impl Strategy<Value = JobPlan> {
    let flags = (any::<bool>(), any::<bool>(), any::<bool>());
    (1u8..5, flags, any::<u8>(), prop_oneof![Just(0), any::<u8>()], 0u8..3).prop_map(
        |(size, (cleanup, waits, warns), v2, port, attrs)| JobPlan {
            size,
            cleanup,
            waits,
            warns,
            v2,
            port,
            attrs,
        },
    )
}

fn step() -> impl Strategy<Value = Step> {
    let (job, conn) = (0u8..4, 0u8..12);
    prop_oneof![
        2 => plan().prop_map(Step::Job),
        1 => job.clone().prop_map(|job| Step::Forget { job }),
        4 => (job.clone(), 0u8..5, 0u8..4).prop_map(|(job, rank, how)| Step::Exit { job, rank, how }),
        2 => (job.clone(), 0u8..5).prop_map(|(job, rank)| Step::Leave { job, rank }),
        3 => (job.clone(), 0u8..5, any::<[bool; 3]>())
            .prop_map(|(job, rank, [port, v2, joins])| Step::Open { job, rank, port, v2, joins }),
        1 => conn.clone().prop_map(|conn| Step::Close { conn }),
        24 => (conn.clone(), ask(), any::<u8>()).prop_map(|(conn, ask, cut)| Step::Ask { conn, ask, cut }),
        4 => (conn.clone(), prop::collection::vec(ask(), 2..8))
            .prop_map(|(conn, asks)| Step::Burst { conn, asks }),
        8 => (job.clone(), 0u8..9, prop_oneof![2 => gathering(), 1 => stored(), 1 => handshakes()])
            .prop_map(|(job, but, ask)| Step::EachClient { job, but, ask }),
        1 => (conn.clone(), 0u8..4).prop_map(|(conn, which)| Step::Rubbish { conn, which }),
        1 => (conn.clone(), ask()).prop_map(|(conn, ask)| Step::Overfull { conn, ask }),
        1 => conn.clone().prop_map(|conn| Step::Blocked { conn }),
        2 => conn.prop_map(|conn| Step::Writable { conn }),
        2 => (0u16..1500).prop_map(|millis| Step::Tick { millis }),
        3 => (0u8..3, 0u8..4).prop_map(|(spawn, how)| Step::Launch { spawn, how }),
        4 => (job, prop_oneof![1 => 0u8..10, 3 => 2u8..6], 0u8..3, 0u8..5)
            .prop_map(|(job, name, first, count)| Step::Pset { job, name, first, count }),
        4 => ([0u8..4, 0u8..4], 2u8..6, members())
            .prop_map(|(jobs, name, members)| Step::PsetOfTwo { jobs, name, members }),
        1 => (0u8..12, 0u8..8).prop_map(|(which, at)| Step::Mistake { which, at }),
    ]
}

/// A whole case.
pub(crate) fn case() -> impl Strategy<Value = (Setup, Vec<Step>)> {
    let setup = (any::<bool>(), any::<[u8; 10]>(), plan()).prop_map(|(small, sizes, job)| Setup {
        small,
        sizes,
        job,
    });
    (setup, prop::collection::vec(step(), 1..60))
}
