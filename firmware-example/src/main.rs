//! PMI server on a microcontroller: hydrant-core serves the clients of a job over Ethernet.
//!
//! The main loop calls [`net`], which exchanges frames, and [`hydrant_embedded::turn`], which serves clients and hosts. The
//! network interrupt wakes the loop by a signal. A watchdog resets the board if the loop does not turn. All memory is in
//! [`memory`].
#![no_std]
#![no_main]
#![cfg_attr(feature = "bench", allow(dead_code, unreachable_code))]
#![cfg_attr(feature = "embassy", allow(dead_code))]

#[cfg(feature = "bench")]
mod bench;
mod board;
mod config;
#[cfg(feature = "embassy")]
mod driver;
mod fault;
mod interrupts;
mod log;
mod memory;
#[cfg(not(feature = "embassy"))]
mod net;
mod secret;
mod stack;
#[cfg(feature = "embassy")]
mod tasks;
mod time;
#[cfg(not(feature = "embassy"))]
mod turns;

use config::Config;

#[cortex_m_rt::entry]
fn main() -> ! {
    board::start();
    let mut core = cortex_m::Peripherals::take().expect("taken once");
    #[cfg(feature = "bench")]
    bench::run(&mut core.SYST);
    time::start(&mut core.SYST);
    board::watchdog_start();
    let config = Config::read();
    #[cfg(feature = "embassy")]
    {
        static CONFIG: static_cell::StaticCell<Config> = static_cell::StaticCell::new();
        match tasks::run(CONFIG.init(config)) {}
    }
    #[cfg(not(feature = "embassy"))]
    turns::run(&config)
}
