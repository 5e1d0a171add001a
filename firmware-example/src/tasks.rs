//! The other form of the firmware: tasks of Embassy over embassy-net, with the feature `embassy`.
//!
//! The executor sleeps by WFI: Embassy's own one for Cortex-M waits by WFE, which spins in QEMU.

use core::convert::Infallible;
use core::sync::atomic::{AtomicBool, Ordering};

use embassy_executor::raw::Executor;
use embassy_net::{Ipv4Cidr, Runner, StackResources, StaticConfigV4};
use hydrant_embassy::{Reports, Settings};
use static_cell::StaticCell;

use crate::board::{self, Nic};
use crate::config::Config;
use crate::driver::Device;
use crate::memory::{self, ThisBoard};
use crate::{interrupts, secret, stack};

/// Given by the executor's tasks, taken by its loop.
static WOKEN: AtomicBool = AtomicBool::new(false);

#[unsafe(export_name = "__pender")]
fn pend(_: *mut ()) {
    WOKEN.store(true, Ordering::Release);
}

#[embassy_executor::task]
async fn network(mut runner: Runner<'static, Device>) -> ! {
    runner.run().await
}

#[embassy_executor::task]
async fn serve(stack: embassy_net::Stack<'static>, settings: Settings) -> ! {
    static REPORTS: Reports = Reports::new();
    stack.wait_config_up().await;
    let resources = hydrant_embassy::resources!(ThisBoard, stack);
    defmt::info!("{=str} serves up to {=u32} ranks", board::NAME, memory::RANKS);
    hydrant_embassy::serve(resources, settings, &REPORTS).await
}

/// Runs the tasks.
pub(crate) fn run(config: &'static Config) -> Infallible {
    static RESOURCES: StaticCell<StackResources<{ hydrant_embassy::sockets::<ThisBoard>() }>> =
        StaticCell::new();
    static EXECUTOR: StaticCell<Executor> = StaticCell::new();
    let nic = Nic::new();
    let [rx, tx] = memory::frames();
    let address = Ipv4Cidr::new(config.address.address(), config.address.prefix_len());
    let ipv4 = StaticConfigV4 { address, gateway: config.gateway, dns_servers: Default::default() };
    let (stack, runner) = embassy_net::new(
        Device { nic, rx, tx },
        embassy_net::Config::ipv4_static(ipv4),
        RESOURCES.init(StackResources::new()),
        memory::count_start().into(),
    );
    let settings = Settings {
        port: config.port,
        pmi_port: config.pmi_port,
        own: config.size.map(|size| (&*config.jobid, size)),
    };
    if !secret::IS_SET {
        defmt::warn!("no secret: every host is accepted");
    }
    let executor = EXECUTOR.init(Executor::new(core::ptr::null_mut()));
    let spawner = executor.spawner();
    spawner.spawn(network(runner).expect("spawned once"));
    spawner.spawn(serve(stack, settings).expect("spawned once"));
    interrupts::unmask();
    loop {
        board::watchdog_feed();
        WOKEN.store(false, Ordering::Release);
        // SAFETY: it is polled here alone, and the pender does not poll it.
        unsafe { executor.poll() };
        stack::check();
        cortex_m::interrupt::disable();
        if !WOKEN.load(Ordering::Acquire) {
            // Wakes for an interrupt that comes while they are off, too, so none is slept through.
            cortex_m::asm::wfi();
        }
        // SAFETY: they were on before: this is the main loop, and not in a critical section.
        unsafe { cortex_m::interrupt::enable() };
    }
}
