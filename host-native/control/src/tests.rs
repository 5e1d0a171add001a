//! Programs and records for tests.

use std::time::Duration;

use hydrant_core::{JobId, Limits};
use hydrant_placement::CpuBinding;

use crate::protocol::{JobRecord, Program, Setup};

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
        psets: Vec::new(),
        spawned: None,
    }
}

/// Settings that need no answer.
pub(crate) fn setup() -> Setup {
    Setup {
        limits: Limits::for_ranks(4),
        plugin: None,
        record: None,
        bind: CpuBinding::None,
        universe_size: None,
        cleanup: true,
        verbose: false,
        by_port: false,
        mpi_psets: false,
        fence_warning: Duration::from_secs(1),
        lookup_wait: Duration::ZERO,
        pmi1_subversion: 2,
    }
}
