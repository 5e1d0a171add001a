//! Message counts of the models of other process managers, on small cases.

use hydrant_core::server::FenceMode;
use hydrant_sim::fabric::Charge;
use hydrant_sim::models::{Cost, Load, Model, hydrant, lazy};
use hydrant_sim::pattern::{Exchange, Pattern, VALUE};
use hydrant_sim::{exchange, measure};

fn fence(model: Model, daemons: u32, ranks: u32, value: u32) -> Cost {
    let load = Load { daemons, ranks, value };
    let [receiver, both] = Charge::ALL.map(|charge| model.fence(load, charge));
    assert_eq!((receiver.messages, receiver.bytes), (both.messages, both.bytes), "{model:?} {load:?}");
    assert!(receiver.time <= both.time, "{model:?} {load:?}: {receiver:?} {both:?}");
    receiver
}

#[test]
fn hydra_sends_batches_from_mpiexec_to_each_proxy() {
    // Pairs and arrival of each proxy, pairs and release for each.
    assert_eq!(fence(Model::HydraPmi1, 4, 2, 128).messages, 4 * 2 + 4 * 2);
    // An arrival and a release.
    assert_eq!(fence(Model::HydraPmi1, 4, 2, 0).messages, 4 + 4);
    // 2,000 pairs are three batches.
    assert_eq!(fence(Model::HydraPmi1, 40, 50, 128).messages, 40 * 2 + 40 * (3 + 1));
    let cost = fence(Model::HydraPmi1, 40, 50, 128);
    assert!(cost.sent > 40 * 40 * 50 * 128, "mpiexec sends all values to each proxy: {cost:?}");
}

#[test]
fn each_request_of_pmi2_goes_to_mpiexec() {
    // A put, a fence and their replies. 4,096 bytes are four puts.
    assert_eq!(fence(Model::HydraPmi2, 4, 2, 128).messages, 8 * 4);
    assert_eq!(fence(Model::HydraPmi2, 4, 2, 0).messages, 8 * 2);
    assert_eq!(fence(Model::HydraPmi2, 4, 2, 4096).messages, 8 * 10);
}

#[test]
fn a_tree_has_a_message_up_and_one_down_for_each_daemon() {
    for daemons in [1, 4, 49, 50, 200, 3000] {
        assert_eq!(fence(Model::SlurmPmi2, daemons, 2, 128).messages, 2 * u64::from(daemons));
        // Without values. The root is one of them.
        assert_eq!(fence(Model::SlurmPmix, daemons, 2, 0).messages, 2 * u64::from(daemons - 1));
        // Confirmations.
        assert_eq!(fence(Model::Prrte, daemons, 2, 128).messages, 3 * u64::from(daemons));
    }
}

#[test]
fn all_gathers_have_no_root() {
    assert_eq!(fence(Model::SlurmPmix, 10, 2, 128).messages, 10 * 9);
    // Steps of 1, 2, 4 and the last 2 of 10 daemons.
    assert_eq!(fence(Model::Bruck, 10, 2, 128).messages, 10 * 4);
    assert_eq!(fence(Model::Bruck, 8, 2, 128).messages, 8 * 3);
    for model in [Model::SlurmPmix, Model::Bruck] {
        let cost = fence(model, 10, 2, 128);
        assert_eq!((cost.received, cost.bytes), (cost.sent, 10 * cost.sent), "{model:?}");
    }
}

#[test]
fn a_daemon_receives_all_values_where_gets_are_answered_on_its_host() {
    for model in [Model::HydraPmi1, Model::SlurmPmi2, Model::SlurmPmix, Model::Prrte, Model::Bruck] {
        let cost = fence(model, 20, 4, 4096);
        assert!(cost.received >= 19 * 4 * 4096 && cost.received < 41 * 4 * 4200, "{model:?}: {cost:?}");
    }
}

#[test]
fn the_model_of_hydrant_is_near_real_servers() {
    for (daemons, ranks, value) in
        [(4, 1, 0), (40, 2, 0), (4, 4, 128), (40, 16, 128), (64, 4, 4096), (300, 2, 128)]
    {
        for charge in Charge::ALL {
            let load = Load { daemons, ranks, value };
            let (model, real) = (hydrant::fence(load, 16, charge), measure::fence(load, 16, charge));
            let near = |model: u64, real: u64| model * 10 <= real * 11 && real * 10 <= model * 11;
            assert_eq!(model.messages, real.messages, "{load:?}: {model:?} {real:?}");
            assert!(near(model.time, real.time), "{load:?} {charge:?}: {model:?} {real:?}");
            assert!(near(model.sent + 100, real.sent + 100), "{load:?}: {model:?} {real:?}");
        }
    }
}

#[test]
fn the_model_of_lazy_fences_sends_what_real_servers_send() {
    for (daemons, side, radix) in [(4, 4, 2), (27, 3, 3), (16, 8, 8), (64, 16, 8), (125, 5, 8)] {
        for pattern in Pattern::ALL {
            let exchange = Exchange { daemons, side, radix, pattern };
            let (model, real) = (lazy::exchange(exchange), exchange::simulate(exchange, FenceMode::Lazy));
            assert_eq!(model, real, "{exchange:?}");
        }
    }
}

#[test]
fn the_model_of_hydrant_is_near_real_servers_in_an_exchange() {
    for (daemons, side) in [(16, 8), (64, 16)] {
        let exchange = Exchange { daemons, side, radix: 8, pattern: Pattern::Halo };
        let load = Load { daemons, ranks: exchange.block(), value: VALUE };
        let (model, real) = (hydrant::exchange(load, 8), exchange::simulate(exchange, FenceMode::Collect));
        let near = |model: u64, real: u64| model * 50 <= real * 51 && real * 50 <= model * 51;
        assert_eq!(model.messages, real.messages, "{exchange:?}: {model:?} {real:?}");
        assert!(near(model.median, real.median) && near(model.received, real.received), "{model:?} {real:?}");
        assert!(near(model.time, real.time), "{exchange:?}: {model:?} {real:?}");
    }
}
