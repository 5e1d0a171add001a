//! The core in a program that has nothing but `core`: no operating system, no C library, no allocator.
//!
//! It is built for machines of that kind, and a test looks at what the linker made of it. A crate in the graph that
//! allocates would not even link, because no allocator is there to be found.
#![no_std]

use core::hint::black_box;
use core::sync::atomic::AtomicU32;

use hydrant_core::limits::{Limits, OUTPUT_MAX};
use hydrant_core::server::{Input, JobSpec, Output};
use hydrant_core::storage::{Conn, Group, Job, Layout, RankSlot};
use hydrant_core::{ConnId, Fault, JobId, Rank, Server, Storage, Time};

const RANKS: u32 = 2;
const LIMITS: Limits = Limits { jobs: 1, ranks: RANKS, conns: RANKS, keys: 16, kvs_bytes: 1024, groups: 1, ..Limits::NONE };
const NEED: Layout = Layout::of(&LIMITS);

/// What each rank says, in PMI-1 and in PMI-2.
const LINES: &[u8] = b"cmd=init pmi_version=1 pmi_subversion=1\ncmd=get_maxes\ncmd=put kvsname=kvs key=a value=b\n\
    cmd=barrier_in\ncmd=get kvsname=kvs key=a\ncmd=finalize\n";
const COUNTED: &[u8] = b"cmd=init pmi_version=2 pmi_subversion=0\n    23cmd=fullinit;pmirank=1;\
    26    cmd=kvs-put;key=c;value=d;    14cmd=kvs-fence;    18cmd=kvs-get;key=a;13    cmd=finalize;";

/// Serves a job of two ranks and gives the number of bytes that it answered; the highest bit says that it failed.
#[unsafe(no_mangle)]
pub extern "C" fn hydrant_exercise() -> u32 {
    serve().unwrap_or(1 << 31)
}

fn serve() -> Result<u32, Fault> {
    let mut jobs = [const { None }; NEED.jobs].map(|_: Option<()>| Job::default());
    let mut conns = [const { None }; NEED.conns].map(|_: Option<()>| Conn::default());
    let mut ranks = [RankSlot::default(); NEED.ranks];
    let mut groups = [const { None }; NEED.groups].map(|_: Option<()>| Group::default());
    let (mut log, mut bits) = ([0; NEED.log], [0; NEED.bits]);
    let index = [const { AtomicU32::new(0) }; NEED.index];
    let slabs = Storage {
        jobs: &mut jobs,
        ranks: &mut ranks,
        conns: &mut conns,
        log: &mut log,
        index: &index,
        groups: &mut groups,
        names: &mut [],
        spawns: &mut [],
        requests: &mut [],
        psets: &mut [],
        links: &mut [],
        bits: &mut bits,
    };
    let mut server = Server::new(LIMITS, slabs, black_box(1))?;
    let job = JobId(0);
    let spec = JobSpec::new(job, "kvs", RANKS);
    server.handle(Time(0), Input::RegisterJob(spec))?;
    for rank in 0..RANKS {
        server.handle(Time(0), Input::Opened { conn: ConnId(rank), job, rank: Some(Rank(rank)) })?;
    }
    // Nobody can know what clients say, so the compiler must not, either.
    let mut said = [black_box(LINES), black_box(COUNTED)];
    let mut answered = 0;
    loop {
        let mut moved = false;
        for (conn, rest) in (0..).map(ConnId).zip(&mut said) {
            let consumed = server.handle(Time(0), Input::Bytes { conn, bytes: rest, full: false })?;
            *rest = rest.get(consumed.bytes as usize..).unwrap_or_default();
            moved |= consumed.bytes > 0;
        }
        let mut buf = [0; OUTPUT_MAX];
        while let Some(output) = server.poll(&mut buf) {
            if let Output::Bytes { bytes, .. } = output {
                answered += bytes.len() as u32;
            }
            moved = true;
        }
        if !moved {
            break;
        }
    }
    let mut saved = [0; 4096];
    server.snapshot(&mut saved)?;
    Ok(answered)
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {
        core::hint::spin_loop();
    }
}
