//! All-gathers without a root, in which all daemons do the same at the same time. One of them is followed.
//!
//! Source: SchedMD/slurm, `src/plugins/mpi/pmix/pmixp_coll_ring.c` at 0aba30e3 for the ring; open-mpi/ompi,
//! `orte/mca/grpcomm/brks/grpcomm_brks.c` at c68a0ba9 for Bruck.

use super::{Cost, Load};
use crate::fabric::{Charge, SPEED, handling};

/// Bytes of a header with the signature of the fence, about.
const HEADER: u64 = 128;
/// Bytes of a pair beside key and value, about: lengths, types and a rank.
const FRAMING: u64 = 16;

/// In each step a daemon sends its successor the pairs that it has received in the step before.
pub fn ring(load: Load, charge: Charge) -> Cost {
    let own = load.bytes(FRAMING);
    follow(load, charge, (1..load.daemons).map(|_| own))
}

/// In step k a daemon sends all that it has to the one 2^k after it, without what that one has.
pub fn bruck(load: Load, charge: Charge) -> Cost {
    let (own, daemons) = (load.bytes(FRAMING), load.daemons);
    let steps = (0..32).map(|step| 1u32 << step).take_while(move |&has| has < daemons);
    follow(load, charge, steps.map(move |has| own * u64::from(has.min(daemons - has))))
}

/// Follows a daemon that sends and receives a message with so many bytes of pairs in each step.
fn follow(load: Load, charge: Charge, steps: impl Iterator<Item = u64>) -> Cost {
    let (mut time, mut count, mut bytes) = (0, 0, 0);
    for pairs in steps {
        let len = HEADER + pairs;
        time += charge.sending(len) + len * SPEED.per_kilobyte / 1000 + SPEED.delay + handling(len);
        count += 1;
        bytes += len;
    }
    let daemons = u64::from(load.daemons);
    Cost { messages: daemons * count, bytes: daemons * bytes, received: bytes, sent: bytes, time }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::Fabric;

    /// The ring with every message of every daemon.
    fn ring_of_all(load: Load, charge: Charge) -> Cost {
        let daemons = load.daemons;
        let len = HEADER + load.bytes(FRAMING);
        let mut fabric = Fabric::new(daemons, charge);
        (0..daemons).for_each(|daemon| fabric.send(daemon, (daemon + 1) % daemons, len, daemon));
        let mut last = 0;
        while let Some(message) = fabric.receive() {
            let next = (message.to + 1) % daemons;
            last = last.max(fabric.now(message.to));
            if next != message.body {
                fabric.send(message.to, next, len, message.body);
            }
        }
        Cost::of(&fabric, last)
    }

    #[test]
    fn one_daemon_tells_for_all() {
        for charge in Charge::ALL {
            for daemons in [2, 3, 7, 16] {
                let load = Load { daemons, ranks: 4, value: 128 };
                assert_eq!(ring(load, charge), ring_of_all(load, charge), "{load:?} {charge:?}");
            }
        }
    }
}
