//! PMI server on a microcontroller: hydrant-core serves the clients of a job over Ethernet.
//!
//! The main loop calls four modules. [`net`] exchanges frames, [`serve`] passes the clients' bytes to the server and
//! sends its replies, [`management`] carries out the requests of hosts, and [`node`] those of the host whose node is served. The
//! network interrupt wakes the loop by a signal. A watchdog resets the board if the loop does not turn. All memory is in
//! [`memory`].
#![no_std]
#![no_main]
#![cfg_attr(feature = "bench", allow(dead_code, unreachable_code))]

#[cfg(feature = "bench")]
mod bench;
mod board;
mod calls;
mod channel;
mod config;
mod connection;
mod fault;
mod interrupts;
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
use connection::Connection;
use hydrant_core::manage::OpenNode;
use management::{HostSocket, Management};
use net::Net;
use node::Requests;
use serve::{Client, Memory, Serve};

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

/// Serves the configured jobs or a node, until the other is to be served. Returns the node.
fn run(
    net: &mut Net,
    serve: &mut Serve<'_>,
    requests: &mut Requests,
    management: &mut Management,
    config: &Config,
) -> Option<(OpenNode, Connection)> {
    // Sockets listen before the network is polled: it would refuse a connection that comes first.
    loop {
        board::watchdog_feed();
        management.run(net, serve);
        if let Some(node) = management.next_node(serve) {
            defmt::info!("node {=u32} of {=u32} is served", node.0.node, node.0.nodes);
            return Some(node);
        }
        let more = if let Some(handle) = serve.node.as_ref().map(Connection::handle) {
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
            if let Some(size) = config.size
                && let Err(why) = serve.keep_job(net, &config.jobid, size)
            {
                defmt::panic!("the configured job cannot be: {}", why);
            }
            serve.run(net)
        };
        if !net.poll() && !more {
            net.sleep([serve.poll_at(net), management.poll_at()].into_iter().flatten().min());
            net.poll();
        }
        stack::check();
    }
}
