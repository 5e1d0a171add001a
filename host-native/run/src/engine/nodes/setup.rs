//! Setup message of the head, and the plan that a daemon makes of it.

use hydrant_control::protocol::Setup;
use hydrant_core::Limits;

use super::super::output::pseudo_terminals;
use crate::plan::{Options, Plan, Pty};

/// Setup for all nodes, with limits that suit all of them.
pub(super) fn setup_of(plan: &Plan, limits: Limits) -> Setup {
    Setup {
        by_port: plan.options.pmi_port.is_some(),
        pseudo_terminals: pseudo_terminals(&plan.options),
        ..Setup::new(limits, plan.settings.clone())
    }
}

/// Plan of a daemon. Options that concern the head alone are left out.
pub(super) fn plan_of(setup: Setup) -> Plan {
    let options = Options {
        // The head has decided.
        pty: Pty::Never,
        pmi_port: setup.by_port.then(|| (std::net::Ipv4Addr::LOCALHOST, 0).into()),
        ..Options::default()
    };
    Plan { programs: Vec::new(), settings: setup.settings, options, notes: Vec::new() }
}
