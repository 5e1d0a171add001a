//! Cost of an exchange, a fence and the gets after it, with collecting and with lazy fences.

use std::collections::VecDeque;

use hydrant_core::server::FenceMode;
use hydrant_driver::MappedStorage;

use crate::fabric::Charge;
use crate::measure::{open_nodes, play};
use crate::models::{Load, hydrant, lazy};
use crate::node::{Deed, Layout};
use crate::pattern::{Cost, Exchange, Pattern, VALUE};

/// Daemons and ranks of each dimension.
const SIZES: [(u32, u32); 5] = [(64, 16), (256, 16), (1024, 32), (10_000, 100), (100_000, 100)];
/// Daemons up to which real servers are run.
const SIMULATED_MAX: u32 = 256;
/// Messages up to which a model moves all values to all daemons, about.
const MESSAGES_MAX: u64 = 40_000_000;

/// Counts an exchange by real servers.
pub fn simulate(exchange: Exchange, fence: FenceMode) -> Cost {
    let ranks = exchange.ranks();
    let places = (0..ranks).map(|rank| exchange.node(rank)).collect();
    let layout = Layout { nodes: exchange.daemons + 1, radix: exchange.radix, places };
    let limits = exchange.limits();
    let mut memory: Vec<MappedStorage> = (0..layout.nodes).map(|_| MappedStorage::new(&limits)).collect();
    let mut nodes = open_nodes(&mut memory, limits, &layout, fence);
    let mut deeds: Vec<Deed> = Vec::new();
    let mut requests = Vec::new();
    for rank in 0..ranks {
        let node = &mut nodes[layout.places[rank as usize] as usize];
        let put = format!("cmd=kvs-put;key=card-{rank};value={};", "v".repeat(VALUE as usize));
        node.hear(0, rank, b"cmd=init pmi_version=2 pmi_subversion=0\n");
        for text in [format!("cmd=fullinit;pmirank={rank};"), put] {
            while node.poll(&mut deeds) {}
            node.hear(0, rank, &frame(&text));
        }
        while node.poll(&mut deeds) {}
        deeds.clear();
        let get = |of: u32| {
            let hint = if exchange.pattern.has_hints() { i64::from(of) } else { -1 };
            frame(&format!("cmd=kvs-get;srcid={hint};key=card-{of};"))
        };
        let gets = (0..).map_while(|number| exchange.source(rank, number)).map(get);
        requests.push([frame("cmd=kvs-fence;")].into_iter().chain(gets).collect::<VecDeque<_>>());
    }
    let (fabric, time) = play(&mut nodes, &layout, requests, Charge::Receiver);
    Cost::of(&fabric, time)
}

fn frame(text: &str) -> Vec<u8> {
    format!("{:6}{text}", text.len()).into_bytes()
}

/// Cost of an exchange in the table.
#[derive(Clone, Debug)]
pub struct Row {
    /// Daemons and ranks.
    pub exchange: Exchange,
    /// Pairs that travel with fences. With [`FenceMode::Collect`] all patterns cost the same.
    pub fence: FenceMode,
    /// Whether a model has calculated it.
    pub is_modelled: bool,
    /// Its cost, unless it has too many messages.
    pub cost: Option<Cost>,
}

impl Row {
    fn new(exchange: Exchange, fence: FenceMode) -> Row {
        eprintln!("{exchange:?}, {fence:?}");
        let is_modelled = exchange.daemons > SIMULATED_MAX;
        let load = Load { daemons: exchange.daemons, ranks: exchange.block(), value: VALUE };
        let moves_all = fence == FenceMode::Collect || !exchange.pattern.has_hints();
        let cost = match fence {
            _ if !is_modelled => Some(simulate(exchange, fence)),
            _ if moves_all && hydrant::messages(load, exchange.radix) > MESSAGES_MAX => None,
            FenceMode::Collect => Some(hydrant::exchange(load, exchange.radix)),
            _ => Some(lazy::exchange(exchange)),
        };
        Row { exchange, fence, is_modelled, cost }
    }
}

/// Counts exchanges of up to `most` daemons.
pub fn rows(most: u32, radix: u32) -> Vec<Row> {
    let of = |(daemons, side)| {
        let exchange = |pattern| Exchange { daemons, side, radix, pattern };
        let lazy = Pattern::ALL.map(|pattern| Row::new(exchange(pattern), FenceMode::Lazy));
        [Row::new(exchange(Pattern::Ring), FenceMode::Collect)].into_iter().chain(lazy)
    };
    SIZES.into_iter().filter(|&(daemons, _)| daemons <= most).flat_map(of).collect()
}
