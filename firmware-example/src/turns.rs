//! The main loop, over smoltcp.

use hydrant_core::manage::OpenNode;
use hydrant_embedded::{
    Board as _, Client, Connection, HostSocket, Management, Memory, Requests, Serve, Sizes as _, Turn, turn,
    wake_at,
};

use crate::config::Config;
use crate::memory::{self, ThisBoard};
use crate::net::Net;
use crate::{board, interrupts, secret, stack};

/// Serves, for ever.
// A part of its caller, so that their frames are one.
#[inline(always)]
pub(crate) fn run(config: &Config) -> ! {
    let mut net = Net::start(config, memory::frames(), memory::sockets(), memory::count_start());
    interrupts::unmask();
    let mut buffers = memory::client_buffers();
    let mut clients: [Client<ThisBoard>; memory::CLIENTS] =
        core::array::from_fn(|_| Client::new(net.add(buffers.next().expect("a pair for each socket"))));
    let mut buffers = memory::link_buffers();
    let mut hosts: [HostSocket<ThisBoard>; ThisBoard::LINKS] =
        core::array::from_fn(|_| HostSocket::new(net.add(buffers.next().expect("a pair for each socket"))));
    let parent = memory::parent_buffers().next().map(|buffers| net.add(buffers));
    let links = parent.filter(|_| ThisBoard::PARENTS > 0).map(memory::links);
    let mut memory = Memory::new(memory::tables(), memory::scratch(), &mut clients, links);
    let mut requests = Requests::new(memory::requests(), memory::returns());
    let mut management = Management::new(&mut hosts, memory::host_slots(), config.port);
    if !secret::IS_SET {
        defmt::warn!("no secret: every host is accepted");
    }
    defmt::info!("{=str} serves up to {=u32} ranks", board::NAME, memory::RANKS);
    let mut node = None;
    loop {
        requests.clear();
        let mut serve = Serve::new(&mut memory, config.pmi_port, &mut net, node);
        node = serve_one(&mut net, &mut serve, &mut requests, &mut management, config);
    }
}

/// Serves the configured jobs or a node, until the other is to be served. Returns the node.
fn serve_one(
    net: &mut Net,
    serve: &mut Serve<'_, ThisBoard>,
    requests: &mut Requests,
    management: &mut Management<'_, ThisBoard>,
    config: &Config,
) -> Option<(OpenNode, Connection<ThisBoard>)> {
    let own = config.size.map(|size| (&*config.jobid, size));
    loop {
        board::watchdog_feed();
        let more = match turn(net, serve, requests, management, own) {
            Ok(Turn::Wait { more }) => more,
            Ok(Turn::Serve(node)) => return node,
            Err(why) => defmt::panic!("the configured job cannot be: {}", why),
        };
        if !net.poll() && !more {
            net.sleep(wake_at(net, serve, management));
            net.poll();
        }
        stack::check();
    }
}
