//! PMI server on a microcontroller: hydrant-core serves the clients of a job over Ethernet.
//!
//! The main loop calls three modules. [`net`] exchanges frames, [`serve`] passes the clients' bytes to the server and
//! sends its replies, and [`management`] carries out the requests of hosts. [`node`] carries out those of the host of a
//! run. The network interrupt wakes the loop by a signal. Events for hosts are queued in a channel. A watchdog resets the
//! board if the loop does not turn. All memory is in [`memory`].
#![no_std]
#![no_main]
#![cfg_attr(feature = "bench", allow(dead_code, unreachable_code))]

#[cfg(feature = "bench")]
mod bench;
mod board;
mod calls;
mod channel;
mod config;
mod events;
mod fault;
mod interrupts;
mod link;
mod links;
mod log;
mod management;
mod memory;
mod net;
mod node;
mod noise;
mod secret;
mod serve;
mod stack;
mod time;

use config::Config;
use hydrant_core::manage::{OpenJob, OpenNode};
use link::Link;
use management::{HostSocket, Management};
use net::Net;
use node::Requests;
use serve::{Client, Memory, OWN, Serve};

#[cortex_m_rt::entry]
fn main() -> ! {
    board::start();
    let mut core = cortex_m::Peripherals::take().expect("taken once");
    #[cfg(feature = "bench")]
    bench::run(&mut core.SYST);
    time::start(&mut core.SYST);
    board::watchdog_start();
    let config = Config::read();
    let mut net = Net::start(&config);
    interrupts::unmask();
    let mut buffers = memory::client_buffers();
    let mut clients: [Client; memory::CLIENTS] = core::array::from_fn(|_| {
        Client::new(net.add(buffers.next().expect("there is a pair of buffers for each client")))
    });
    let mut buffers = memory::link_buffers();
    let hosts = core::array::from_fn(|_| {
        HostSocket::new(net.add(buffers.next().expect("there is a pair of buffers for each link")))
    });
    let parent = memory::parent_buffers().next().map(|buffers| net.add(buffers));
    let mut memory = Memory::new(&mut clients, parent);
    let mut requests = Requests::new(memory::requests());
    let mut management = Management::new(hosts, &config);
    if !secret::IS_SET {
        defmt::warn!("no secret: every host is accepted");
    }
    defmt::info!("{=str} serves up to {=u32} ranks", board::NAME, memory::RANKS);
    let mut node = None;
    loop {
        requests.clear();
        let mut serve = Serve::new(&mut memory, config.pmi_port, &mut net, node);
        node = run(&mut net, &mut serve, &mut requests, &mut management, &config);
    }
}

/// Serves the board's own jobs or a node, until the other is to be served. Returns the node.
fn run(
    net: &mut Net,
    serve: &mut Serve<'_>,
    requests: &mut Requests,
    management: &mut Management,
    config: &Config,
) -> Option<(OpenNode, Link)> {
    // Sockets listen before the network is polled: it would refuse a connection that comes first.
    loop {
        board::watchdog_feed();
        management.run(net, serve);
        if memory::NODES
            && let Some(node) = management.next_node(serve)
        {
            defmt::info!("node {=u32} of {=u32} is served", node.0.node, node.0.nodes);
            return Some(node);
        }
        let more = if let Some(handle) = serve.node.as_ref().filter(|_| memory::NODES).map(Link::handle) {
            let more = serve.run(net);
            if let Err(end) = requests.run(net, serve) {
                defmt::info!("the node has ended: {}", end);
                management.end_node(net, handle);
                if let Some(links) = serve.links.as_ref().filter(|_| memory::BOARD_LINKS > 0) {
                    defmt::info!(
                        "{=u32} messages sent to other boards, {=u32} by its host",
                        links.sent,
                        links.by_host
                    );
                    links.handles().for_each(|handle| management.end_node(net, handle));
                }
                return None;
            }
            if memory::BOARD_LINKS > 0 {
                serve.run_links(net);
            }
            more
        } else {
            stand_alone(net, serve, management, config);
            serve.run(net)
        };
        management.send_events(net);
        if !net.poll() && !more {
            net.sleep([serve.poll_at(net), management.poll_at()].into_iter().flatten().min());
            net.poll();
        }
        stack::check();
    }
}

/// Keeps a job of the configured size open, for boards without a host.
fn stand_alone(net: &mut Net, serve: &mut Serve<'_>, management: &mut Management, config: &Config) {
    management.report_over(net, serve);
    let Some(size) = config.size else { return };
    // Nothing can kill the processes of an aborted job. Its clients end when their connections are closed.
    let over = serve.jobs.get(OWN).filter(|job| job.alone && (job.ended || management.is_over(OWN)));
    if over.is_some()
        && let Err(error) = management.forget(net, serve, OWN)
    {
        defmt::error!("job {} cannot be forgotten: {}", OWN, error);
    }
    if serve.jobs.get(OWN).is_none() {
        let open = OpenJob { exits_reported: false, keep: true, ..OpenJob::new(&config.jobid, size) };
        match management.open(net, serve, &open) {
            Ok(()) => serve.jobs.get_mut(OWN).into_iter().for_each(|job| job.alone = true),
            Err(why) => defmt::panic!("the configured job cannot be: {}", why),
        }
    }
}
