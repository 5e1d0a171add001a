//! hydrant's core as one task of Embassy: [`serve`] serves the clients and hosts of a [`Board`] over `embassy-net`.
//!
//! ```text
//! task: Runner::run ◄──── embassy-net ────► task: serve ──Signal──► other tasks
//! ```
//!
//! The board has an implementation of [`Board`] with its sizes and its generator of random numbers, and [`resources!`] places
//! the memory in statics. `examples/tap.rs` is a whole one, for Linux.
#![no_std]

mod net;
mod resources;
mod socket;

use embassy_sync::blocking_mutex::raw::CriticalSectionRawMutex;
use embassy_sync::signal::Signal;
use embassy_time::Instant;
use hydrant_core::limits::MESSAGE_TEXT_MAX;
use hydrant_core::manage;
use hydrant_embedded::{Management, Memory, Requests, Serve, Turn, turn, wake_at};

pub use hydrant_core::manage::BoardReport;
pub use hydrant_core::storage::{FixedStorage, Storage};
pub use hydrant_core::{Limits, fixed_storage};
pub use hydrant_embedded::{Board, Sizes};
pub use net::{Net, waiting};
pub use resources::Resources;
#[doc(hidden)]
pub use resources::{add, parts};

/// State of the board after each turn, for other tasks: one that feeds a watchdog, or shows how many jobs were served.
pub type Reports = Signal<CriticalSectionRawMutex, BoardReport>;

/// Settings of a board.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Port for hosts.
    pub port: u16,
    /// Port for clients of the first job, below those of the others.
    pub pmi_port: u16,
    /// Name and size of a job that the board serves without a host, one after the other.
    pub own: Option<(&'static str, u32)>,
}

impl Settings {
    /// The usual ports, and no job.
    pub const DEFAULT: Settings = Settings { port: manage::PORT, pmi_port: manage::PMI_PORT, own: None };
}

/// Limits of a board that serves jobs of up to so many ranks on one host, with `spare` more clients that have not said who they
/// are.
pub const fn limits(ranks: u32, spare: u32) -> Limits {
    Limits {
        jobs: 1,
        ranks,
        conns: ranks + spare,
        keys: 8 * ranks,
        kvs_bytes: 512 * ranks,
        groups: 4,
        names: 2,
        psets: 4,
        spawns: 2,
        spawn_bytes: MESSAGE_TEXT_MAX as u32,
        commit_bytes: if cfg!(feature = "pmix") { 1024 } else { 0 },
        ..Limits::NONE
    }
}

/// Sockets of a board, for [`StackResources`](embassy_net::StackResources).
pub const fn sockets<B: Board>() -> usize {
    B::CLIENTS + B::LINKS + B::PARENTS
}

/// Milliseconds since the start, for [`Board::millis`].
pub fn millis() -> u64 {
    Instant::now().as_millis()
}

/// Serves clients and hosts, for ever. `resources` are those of the [`resources!`] of the board's stack, whose runner is another
/// task of the same executor.
///
/// # Panics
/// The [own job](Settings::own) is larger than the tables.
pub async fn serve<B: Board<Net = Net>>(
    resources: Resources<B>,
    settings: Settings,
    reports: &'static Reports,
) -> ! {
    let Resources { mut net, tables, scratch, requests, returns, clients, hosts, slots, links } = resources;
    let mut memory = Memory::<B>::new(tables, scratch, clients, links);
    let mut requests = Requests::new(requests, returns);
    let mut management = Management::new(hosts, slots, settings.port);
    let mut node = None;
    loop {
        requests.clear();
        let mut serve = Serve::new(&mut memory, settings.pmi_port, &mut net, node.take());
        node = loop {
            net.refresh();
            match turn(&mut net, &mut serve, &mut requests, &mut management, settings.own) {
                Ok(Turn::Wait { more }) => {
                    reports.signal(serve.board_report(&net));
                    if more {
                        yield_now().await;
                    } else {
                        net.changed(wake_at(&net, &serve, &management)).await;
                    }
                }
                Ok(Turn::Serve(node)) => break node,
                Err(why) => panic!("the configured job cannot be: {why:?}"),
            }
        };
    }
}

/// Lets other tasks run.
async fn yield_now() {
    let mut is_first = true;
    core::future::poll_fn(|cx| {
        if core::mem::take(&mut is_first) {
            cx.waker().wake_by_ref();
            return core::task::Poll::Pending;
        }
        core::task::Poll::Ready(())
    })
    .await;
}
