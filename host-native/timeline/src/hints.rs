//! Hints about what would make a start faster, where its summary has measured the cause.

use crate::summary::{Summary, Usage};

/// Least milliseconds of a rank, on average, that a hint is about.
const LEAST: u64 = 20;
/// Least part of a start-up that a hint is about: one of so many parts.
const PART: u64 = 10;
/// Least milliseconds of a sleep of one second, beside which little else is waited for.
const ASLEEP: u64 = 950;

impl Summary {
    /// Returns what would make the start faster. The summary has measured each cause.
    pub fn hints(&self) -> Vec<String> {
        let hints = [self.components(), self.topology(), self.processors(), self.disks(), self.late()];
        hints.into_iter().flatten().collect()
    }

    /// Whether ranks spend so much time, in sum, that it matters.
    fn matters(&self, sum: u64, ranks: u64) -> bool {
        sum >= LEAST.saturating_mul(ranks.max(1)) && sum.saturating_mul(PART) >= self.all.sum
    }

    /// Open MPI closes its component btl/ofi with a sleep of one second: version 5 in `MPI_Init` if no rank can use it, version 4
    /// in `MPI_Finalize`.
    fn components(&self) -> Option<String> {
        let Usage { ranks, openmpi, libfabric, .. } = self.usage;
        let finalize = self.parts.iter().find(|part| part.name == "finalize").map_or(0, |part| part.sum);
        let [start, end] = [self.usage.waiting() / ranks.max(1), finalize / self.ranks.max(1)];
        let what = match start >= end {
            true => format!("before its first fence a rank waited {start} ms for no processor"),
            false => format!("MPI_Finalize took {end} ms"),
        };
        (ranks > 0 && openmpi == ranks && libfabric == ranks && start.max(end) >= ASLEEP).then(|| {
            format!(
                "{what}. Open MPI's component btl/ofi sleeps for a second when it is closed: without a network for it, leave it out \
                 with '--mca btl ^ofi'"
            )
        })
    }

    fn topology(&self) -> Option<String> {
        let (ranks, time) = self.scans;
        let is_mpich = self.usage.openmpi == 0;
        (ranks > 0 && is_mpich && self.matters(time, ranks)).then(|| {
            format!(
                "{ranks} ranks scanned their machine for {} ms each, because they got no topology file. With hwloc's \
                 lstopo-no-graphics (Debian: hwloc-nox) on each host, 8 ranks or more of a host share one scan; for fewer, name a \
                 file: --job-attr PMI_hwloc_xmlfile=FILE",
                time / ranks
            )
        })
    }

    fn processors(&self) -> Option<String> {
        let Usage { ranks, queued, .. } = self.usage;
        (ranks > 0 && self.matters(queued, ranks)).then(|| {
            let mean = queued / ranks;
            format!("a rank waited {mean} ms for a processor, because others used it: fewer ranks on a host start faster")
        })
    }

    fn disks(&self) -> Option<String> {
        let start = self.parts.iter().find(|part| part.name == "start")?;
        let mib = self.usage.read >> 20;
        (mib > 0 && self.hosts > 1 && self.matters(start.sum, self.ranks)).then(|| {
            format!(
                "ranks read {mib} MiB from disks or servers while they loaded {} libraries: --preload-libs sends program and \
                 libraries once to each host",
                self.usage.libraries
            )
        })
    }

    fn late(&self) -> Option<String> {
        let longest = self.collectives.iter().max_by_key(|fence| fence.waited)?;
        let gap = longest.last.millis;
        let others = longest.ranks.saturating_sub(1);
        (others > 0 && self.matters(gap.saturating_mul(others), self.ranks)).then(|| {
            let rank = longest.last.rank.unwrap_or_default();
            let host = &longest.last.host;
            let on = if host.is_empty() { String::new() } else { format!(" on {}", host.escape_debug()) };
            format!("the other ranks waited {gap} ms for rank {rank}{on} alone, in {}", longest.name)
        })
    }
}
