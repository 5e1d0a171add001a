//! Fences of hydra: every proxy has a connection to mpiexec, and to no other proxy.
//!
//! Source: pmodels/mpich, `src/pm/hydra/proxy/pmip_pmi.c` at 0455a125 and `src/pm/hydra/mpiexec/pmiserv_misc.c` at
//! 14553019 for PMI-1, `src/pm/hydra/mpiexec/pmiserv_kvs.c` at 08d29301 for PMI-2, `src/pmi/src/pmi_wire.h` for
//! `MAX_PMI_ARGS`.

use super::{Cost, Load};
use crate::fabric::{Charge, Fabric};

/// Maximum number of pairs in a message: `MAX_PMI_ARGS` less one.
const BATCH: u64 = 999;
/// Bytes of a header between proxy and mpiexec, and of a command without pairs, about.
const HEADER: u64 = 32;
const COMMAND: u64 = 16;
/// Bytes of a pair beside key and value: `=` and a space.
const FRAMING: u64 = 2;
/// mpiexec.
const HEAD: u32 = 0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Body {
    Pairs,
    Arrival,
    Release,
    Put,
    Stored,
    Fence,
    Passed,
}

/// A proxy sends the pairs of its ranks in batches, then its arrival. mpiexec sends all pairs to each proxy, in batches,
/// then the release.
pub fn pmi1(load: Load, charge: Charge) -> Cost {
    let (daemons, all) = (load.daemons, load.pairs());
    let mut fabric = Fabric::new(daemons + 1, charge);
    for proxy in 1..=daemons {
        send_pairs(&mut fabric, HEAD, proxy, all, load);
        fabric.send(proxy, HEAD, HEADER + COMMAND, Body::Arrival);
    }
    let mut arrived = 0;
    let mut released = 0;
    while let Some(message) = fabric.receive() {
        match message.body {
            Body::Arrival => {
                arrived += 1;
                if arrived == daemons {
                    release(&mut fabric, u64::from(daemons) * all, load);
                }
            }
            Body::Release => released = released.max(fabric.now(message.to)),
            _ => {}
        }
    }
    Cost::of(&fabric, released)
}

fn send_pairs(fabric: &mut Fabric<Body>, to: u32, from: u32, pairs: u64, load: Load) {
    for bytes in batches(pairs, load) {
        fabric.send(from, to, bytes, Body::Pairs);
    }
}

fn release(fabric: &mut Fabric<Body>, pairs: u64, load: Load) {
    for bytes in batches(pairs, load) {
        for proxy in 1..=load.daemons {
            fabric.send(HEAD, proxy, bytes, Body::Pairs);
        }
    }
    for proxy in 1..=load.daemons {
        fabric.send(HEAD, proxy, HEADER + COMMAND, Body::Release);
    }
}

/// Lengths of the messages with so many pairs.
fn batches(pairs: u64, load: Load) -> impl Iterator<Item = u64> {
    let pair = load.pair(FRAMING);
    let full = (0..pairs / BATCH).map(|_| BATCH);
    full.chain(Some(pairs % BATCH).filter(|&rest| rest > 0)).map(move |count| HEADER + COMMAND + count * pair)
}

/// Each put and each fence of a rank is a request to mpiexec and its reply. A get of a rank is another one, which waits
/// there for the ranks that have not entered the fence.
pub fn pmi2(load: Load, charge: Charge) -> Cost {
    let Load { daemons, ranks, .. } = load;
    let mut fabric = Fabric::new(daemons + 1, charge);
    let put = HEADER + COMMAND + load.pair(FRAMING);
    let rounds = load.parts();
    for _ in 0..ranks {
        for proxy in 1..=daemons {
            next(&mut fabric, proxy, (rounds, put));
        }
    }
    let mut released = 0;
    while let Some(message) = fabric.receive() {
        let (puts, body) = message.body;
        match body {
            Body::Put => fabric.send(HEAD, message.from, HEADER + COMMAND, (puts - 1, Body::Stored)),
            Body::Stored => next(&mut fabric, message.to, (puts, put)),
            Body::Fence => fabric.send(HEAD, message.from, HEADER + COMMAND, (0, Body::Passed)),
            _ => released = released.max(fabric.now(message.to)),
        }
    }
    Cost::of(&fabric, released)
}

/// Sends the next request of a rank, which has so many puts left.
fn next(fabric: &mut Fabric<(u32, Body)>, proxy: u32, (puts, put): (u32, u64)) {
    match puts {
        0 => fabric.send(proxy, HEAD, HEADER + COMMAND, (0, Body::Fence)),
        _ => fabric.send(proxy, HEAD, put, (puts, Body::Put)),
    }
}
