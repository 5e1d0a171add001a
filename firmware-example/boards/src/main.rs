//! hydrant's core as a task of Embassy, on boards with Ethernet that can be bought.
//!
//! ```text
//! task: ethernet ◄──── frames ────► task: network ◄──── embassy-net ────► task: main
//! ```
//!
//! A module of `board` has what differs: pins, clocks, the Ethernet controller, the watchdog and the generator of random
//! numbers.
#![no_std]
#![no_main]

mod board;
mod fault;
mod random;
mod server;
mod settings;
#[cfg(feature = "cortex")]
#[path = "../../src/stack.rs"]
mod stack;

use defmt_rtt as _;
use embassy_executor::Spawner;
use embassy_net::{Runner, StackResources};
use embassy_time::{Duration, Ticker};
use hydrant_embassy::{Board as _, Reports, Settings};
use static_cell::ConstStaticCell;

use server::ThisBoard;

/// Feeds the watchdog. A task that hangs keeps this one from it.
#[embassy_executor::task]
async fn watch(mut watchdog: board::Watchdog) -> ! {
    let mut ticker = Ticker::every(Duration::from_secs(1));
    loop {
        board::feed(&mut watchdog);
        #[cfg(feature = "cortex")]
        stack::check();
        ticker.next().await;
    }
}

#[embassy_executor::task]
async fn network(mut runner: Runner<'static, board::Device>) -> ! {
    runner.run().await
}

#[cfg_attr(feature = "esp32-c6", esp_rtos::main)]
#[cfg_attr(not(feature = "esp32-c6"), embassy_executor::main)]
async fn main(spawner: Spawner) {
    // One more socket is that of DHCP.
    static RESOURCES: ConstStaticCell<StackResources<{ hydrant_embassy::sockets::<ThisBoard>() + 1 }>> =
        ConstStaticCell::new(StackResources::new());
    static REPORTS: Reports = Reports::new();
    let (device, watchdog) = board::start(spawner).await;
    spawner.spawn(watch(watchdog).expect("spawned once"));
    let seed = *random::draw().first_chunk().expect("a hash has 32 bytes");
    let (resources, seed) = (RESOURCES.take(), u64::from_le_bytes(seed));
    let (stack, runner) = embassy_net::new(device, settings::network(), resources, seed);
    spawner.spawn(network(runner).expect("spawned once"));
    if ThisBoard::SECRET.is_none() {
        defmt::warn!("no secret: every host is accepted");
    }
    stack.wait_config_up().await;
    if let Some(config) = stack.config_v4() {
        let (name, ranks) = (ThisBoard::NAME, ThisBoard::LIMITS.ranks);
        defmt::info!("{=str} serves up to {=u32} ranks at {}", name, ranks, config.address);
    }
    hydrant_embassy::serve(hydrant_embassy::resources!(ThisBoard, stack), Settings::DEFAULT, &REPORTS).await
}
