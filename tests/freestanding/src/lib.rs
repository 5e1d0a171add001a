//! The core in a program that has nothing but `core`: no operating system, no C library, no allocator.
//!
//! It is built for machines of that kind, and a test looks at what the linker made of it. A crate in the graph that
//! allocates would not even link, because no allocator is there to be found.
#![no_std]

use core::cell::UnsafeCell;
use core::hint::black_box;

use hydrant_core::limits::{Limits, OUTPUT_MAX};
use hydrant_core::server::{Input, JobSpec, Output};
use hydrant_core::storage::FixedStorage;
use hydrant_core::{ConnId, Fault, JobId, Rank, Server, Time, fixed_storage};

const RANKS: u32 = 2;
const LIMITS: Limits =
    Limits { jobs: 1, ranks: RANKS, conns: RANKS, keys: 16, kvs_bytes: 1024, groups: 1, ..Limits::NONE };

/// A static without a lock.
struct Unguarded<T>(UnsafeCell<T>);

// SAFETY: the program has one thread.
unsafe impl<T> Sync for Unguarded<T> {}

#[unsafe(export_name = "hydrant_storage")]
static STORAGE: Unguarded<fixed_storage!(LIMITS)> = Unguarded(UnsafeCell::new(FixedStorage::new()));

/// What each rank says, in PMI-1 and in PMI-2.
const LINES: &[u8] =
    b"cmd=init pmi_version=1 pmi_subversion=1\ncmd=get_maxes\ncmd=put kvsname=kvs key=a value=b\n\
    cmd=barrier_in\ncmd=get kvsname=kvs key=a\ncmd=finalize\n";
const COUNTED: &[u8] = b"cmd=init pmi_version=2 pmi_subversion=0\n    23cmd=fullinit;pmirank=1;\
    26    cmd=kvs-put;key=c;value=d;    14cmd=kvs-fence;    18cmd=kvs-get;key=a;13    cmd=finalize;";

/// Serves a job of two ranks and gives the number of bytes that it answered; the highest bit says that it failed.
#[unsafe(no_mangle)]
pub extern "C" fn hydrant_exercise() -> u32 {
    serve().unwrap_or(1 << 31)
}

fn serve() -> Result<u32, Fault> {
    // SAFETY: the machine has one thread, and this function runs once.
    let storage = unsafe { &mut *STORAGE.0.get() };
    let mut server = Server::new(LIMITS, storage.lend(), black_box(1))?;
    let job = JobId(0);
    let spec = JobSpec::new(job, "kvs", RANKS);
    server.handle(Time(0), Input::RegisterJob(spec))?;
    for rank in 0..RANKS {
        server.handle(Time(0), Input::Opened { conn: ConnId(rank), job, rank: Some(Rank(rank)) })?;
    }
    // The compiler must not know the clients' bytes, or it computes the replies itself.
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
        while let Some(output) = server.poll(&mut buf)? {
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
