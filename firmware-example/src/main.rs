//! The process manager on a microcontroller: hydrant's core, unchanged, serving a job's PMI clients over Ethernet.
//!
//! One loop does everything: [`net`] takes in frames, [`serve`] hands the core what clients said and sends what it
//! answers, [`link`] does what the host asks that manages the board. Between them stand a signal, given by the network's
//! interrupt, and a channel of events. All memory is in [`memory`].
#![no_std]
#![no_main]
#![cfg_attr(feature = "bench", allow(dead_code, unreachable_code))]

#[cfg(feature = "bench")]
mod bench;
mod board;
mod config;
mod events;
mod fault;
mod link;
mod log;
mod memory;
mod net;
mod serve;
mod stack;
mod time;

use config::Config;
use hydrant_core::manage::OpenJob;
use link::{Link, Links};
use net::Net;
use serve::{Client, Serve};

#[cortex_m_rt::entry]
fn main() -> ! {
    board::start();
    let mut core = cortex_m::Peripherals::take().expect("nobody has taken them before");
    #[cfg(feature = "bench")]
    bench::run(&mut core.SYST);
    time::start(&mut core.SYST);
    let config = Config::read();
    let mut net = Net::start(&config);
    net::unmask();
    let mut buffers = memory::client_buffers();
    let clients = core::array::from_fn(|_| {
        Client::new(net.add(buffers.next().expect("there is a pair of buffers for each client")))
    });
    let mut buffers = memory::link_buffers();
    let links = core::array::from_fn(|_| {
        Link::new(net.add(buffers.next().expect("there is a pair of buffers for each link")))
    });
    let mut serve = Serve::new(clients, config.pmi_port).expect("the slabs are as long as the limits say");
    let mut links = Links::new(links, &config);
    defmt::info!("{=str} serves up to {=u32} ranks", board::NAME, memory::RANKS);
    loop {
        net.poll();
        links.run(&mut net, &mut serve);
        stand_alone(&mut net, &mut serve, &config);
        let more = serve.run(&mut net);
        links.send_events(&mut net);
        if !net.poll() && !more {
            net.sleep([serve.poll_at(), links.poll_at()].into_iter().flatten().min());
        }
        stack::check();
    }
}

/// Keeps a job of the configured size open, for boards that nobody manages.
fn stand_alone(net: &mut Net, serve: &mut Serve, config: &Config) {
    let over = serve.over();
    let Some(size) = config.size else { return };
    if let Some(job) = over
        && let Err(why) = serve.forget_job(net, job)
    {
        defmt::error!("job {} cannot be forgotten: {}", job, why);
    }
    if serve.job.is_none() {
        let open = OpenJob { exits_told: false, keep: true, ..OpenJob::new(&config.jobid, size) };
        let opened = serve.open_job(net, &open).and_then(|job| serve.serve_job(job));
        match opened {
            Ok(()) => serve.job.iter_mut().for_each(|job| job.alone = true),
            Err(why) => defmt::panic!("the configured job cannot be: {}", why),
        }
    }
}
