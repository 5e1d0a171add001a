//! The short run of the simulator; the long one is the command `sim run`.

use hydrant_sim::fabric::Charge;
use hydrant_sim::models::Load;
use hydrant_sim::{Scenario, measure, world};

/// Of which some lose a daemon, and some err.
const SEEDS: std::ops::Range<u64> = 0..250;

#[test]
fn invariants_hold_in_every_scenario() {
    let mut jobs = 0;
    let mut lost = 0;
    for seed in SEEDS {
        let scenario = Scenario::new(seed);
        let summary = std::panic::catch_unwind(|| world::run(&scenario));
        let summary = summary.unwrap_or_else(|_| panic!("seed {seed} breaks a promise"));
        jobs += summary.jobs;
        lost += u32::from(summary.lost);
    }
    assert!(jobs > 300 && lost > 10, "{jobs} jobs ended and {lost} daemons were lost: hardly a test");
}

#[test]
fn a_server_restored_at_any_moment_goes_on_as_the_one_before() {
    for seed in 0..60 {
        let summary = std::panic::catch_unwind(|| world::run_succeeded(&Scenario::new(seed)));
        summary.unwrap_or_else(|_| panic!("seed {seed} breaks a promise"));
    }
}

#[test]
fn a_seed_decides_everything() {
    for seed in [3, 17, 101] {
        let scenario = Scenario::new(seed);
        assert_eq!(world::run(&scenario), world::run(&Scenario::new(seed)), "seed {seed}");
    }
}

#[test]
fn data_goes_up_once_and_comes_down_once() {
    for (daemons, ranks, radix) in [(2, 16, 2), (16, 256, 2), (16, 256, 16), (64, 256, 4), (100, 1000, 8)] {
        let load = Load { daemons, ranks: ranks / daemons, value: 128 };
        let cost = measure::fence(load, radix, Charge::Receiver);
        // What a fence says beside the data is short, but not nothing.
        let control = 16.0 * f64::from(radix + 1) / cost.data as f64;
        assert!(cost.received_times() <= 1.1 + control, "{cost:?}");
        assert!(cost.sent_times() <= 1.1 + control, "{cost:?}");
        let levels = f64::from(daemons).log(f64::from(radix)).ceil() as u32 + 1;
        assert!(cost.depth <= levels, "{cost:?}: {levels} levels suffice");
        // An arrival up and a release down over each link, and the data in pieces of at least 4 KiB.
        let links = u64::from(daemons);
        let pieces = cost.data * 11 / 10 / 4096 + 1;
        assert!(cost.messages <= links * (2 + 2 * pieces), "{cost:?}");
    }
}
