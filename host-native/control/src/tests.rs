//! Programs, records and random numbers for tests.

use std::time::Duration;

use hydrant_core::{JobId, Limits};

use crate::protocol::{JobRecord, Program, RunSettings, Setup};

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
        universe_size: None,
        hosts: Vec::new(),
        spawned: None,
        submitted: None,
    }
}

/// Settings that need no answer.
pub(crate) fn setup() -> Setup {
    let settings = RunSettings { fence_warning: Duration::from_secs(1), ..RunSettings::default() };
    Setup::new(Limits::for_ranks(4), settings)
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
