//! Programs, records and random numbers for tests.

use std::time::Duration;

use hydrant_core::server::FenceMode;
use hydrant_core::{JobId, Limits};
use hydrant_placement::Binding;

use crate::protocol::{Boards, JobRecord, Program, Setup, StdinTarget};

/// A program of so many ranks.
pub(crate) fn program(ranks: u32) -> Program {
    Program {
        ranks,
        command: "a.out".into(),
        args: Vec::new(),
        env: Vec::new(),
        wdir: None,
        path: None,
        psets: Vec::new(),
    }
}

/// A job without nodes.
pub(crate) fn record(id: u32, ordinal: u32, programs: &[u32]) -> JobRecord {
    JobRecord {
        id: JobId(id),
        ordinal,
        name: format!("job-{ordinal}"),
        programs: programs.iter().copied().map(program).collect(),
        blocks: Vec::new(),
        mapping: String::new(),
        hosts: Vec::new(),
        psets: Vec::new(),
        spawned: None,
    }
}

/// Settings that need no answer.
pub(crate) fn setup() -> Setup {
    Setup {
        limits: Limits::for_ranks(4),
        plugin: None,
        boards: Boards::default(),
        record: None,
        stdin: StdinTarget::default(),
        bind: Binding::default(),
        gpus_per_rank: None,
        memory_alloc_kinds: None,
        mem_pool: None,
        attributes: Vec::new(),
        universe_size: None,
        cleanup: true,
        drain: Duration::from_secs(5),
        kill_grace: None,
        verbose: false,
        progress: false,
        by_port: false,
        mpi_psets: false,
        fence_warning: Duration::from_secs(1),
        fence: FenceMode::Collect,
        lookup_wait: Duration::ZERO,
        pmi1_subversion: 2,
        pseudo_terminals: None,
        merge_stderr: false,
        files: Vec::new(),
    }
}

/// Random numbers of a seed: SplitMix64.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// A number below `n`.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    /// True in so many of 100 calls.
    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}
