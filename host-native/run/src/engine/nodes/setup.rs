//! Settings of a run that daemons receive from the head.

use hydrant_control::ExitCodeOf;
use hydrant_control::protocol::{Boards, Setup};
use hydrant_core::Limits;

use super::super::output::pseudo_terminals;
use crate::plan::{Cluster, Options, Prefix, Pty, UniverseSize};

/// Settings for all nodes, with limits that suit all of them.
pub(super) fn setup_of(options: &Options, limits: Limits) -> Setup {
    Setup {
        limits,
        plugin: None,
        boards: Boards::default(),
        record: None,
        stdin: options.stdin,
        bind: options.bind.clone(),
        gpus_per_rank: options.gpus_per_rank,
        memory_alloc_kinds: options.memory_alloc_kinds.clone(),
        mem_pool: options.mem_pool,
        attributes: options.attributes.clone(),
        universe_size: options.universe_size.known(),
        cleanup: options.cleanup,
        drain: options.drain,
        kill_grace: options.kill_grace,
        verbose: options.verbose,
        progress: false,
        by_port: options.pmi_port.is_some(),
        mpi_psets: options.mpi_psets,
        fence_warning: options.fence_warning,
        fence: options.fence,
        lookup_wait: options.lookup_wait,
        pmi1_subversion: options.pmi1_subversion,
        pseudo_terminals: pseudo_terminals(options),
        merge_stderr: options.merge_stderr,
        files: Vec::new(),
    }
}

/// Options of a daemon. Those that concern the head alone are left out.
pub(super) fn options_of(setup: Setup) -> Options {
    Options {
        prefix: Prefix::default(),
        // The head has decided.
        pty: Pty::Never,
        universe_size: setup.universe_size.map_or(UniverseSize::Infinite, UniverseSize::Size),
        outfile_pattern: None,
        errfile_pattern: None,
        merge_stderr: setup.merge_stderr,
        copy_output: false,
        stdin: setup.stdin,
        bind: setup.bind,
        gpus_per_rank: setup.gpus_per_rank,
        memory_alloc_kinds: setup.memory_alloc_kinds,
        mem_pool: setup.mem_pool,
        attributes: setup.attributes,
        topology: None,
        cleanup: setup.cleanup,
        // The head counts failures.
        exit_code_of: ExitCodeOf::First,
        drain: setup.drain,
        kill_grace: setup.kill_grace,
        verbose: setup.verbose,
        exit_report: false,
        json: None,
        timeout: None,
        stack_traces: false,
        pmi_port: setup.by_port.then(|| (std::net::Ipv4Addr::LOCALHOST, 0).into()),
        mpi_psets: setup.mpi_psets,
        fence_warning: setup.fence_warning,
        fence: setup.fence,
        lookup_wait: setup.lookup_wait,
        pmi1_subversion: setup.pmi1_subversion,
        name_server: None,
        record: None,
        limits: Vec::new(),
        offload: None,
        sandbox: None,
        spare: None,
        cluster: Cluster::default(),
    }
}
