//! Lines about ranks that have waited for others for long.

use crate::jobs::Job;

/// Most ranks that [`Job::name_missing`] names one by one.
const NAMED_MAX: usize = 8;

impl<R> Job<R> {
    /// Names missing ranks of one host: `rank 2 (pid 4711 on n1), rank 3 (pid 4712 on n1)`. `list` is `0-3,7`, and is kept
    /// where it is long.
    pub fn name_missing(&self, list: &str, host: &str) -> String {
        let ranks = first_ranks(list);
        if ranks.is_empty() || ranks.len() > NAMED_MAX || ranks.iter().any(|&rank| rank >= self.size()) {
            return format!("ranks {list} on {host}");
        }
        let names = ranks.iter().map(|&rank| match self.pid(rank) {
            Some(pid) => format!("rank {rank} (pid {pid} on {host})"),
            None => format!("rank {rank} (not started on {host})"),
        });
        names.collect::<Vec<_>>().join(", ")
    }
}

/// The line for ranks that have waited for others for `warning` milliseconds in the job of that ordinal. `arrived` counts
/// those that wait and all. `missing` names the others, see [`Job::name_missing`].
pub fn stalled_line(ordinal: u32, warning: u64, arrived: Option<(u32, u32)>, missing: &str) -> String {
    let of_job = match ordinal {
        0 => String::new(),
        ordinal => format!(" of spawned job {ordinal}"),
    };
    let come = arrived.map_or(String::new(), |(arrived, size)| format!("{arrived} of {size} have come, "));
    format!("ranks{of_job} have been waiting for {} s: {come}missing: {missing}", warning as f64 / 1000.0)
}

/// Returns the first ranks of a list as `0-3,7`, one more than [`NAMED_MAX`] at most.
fn first_ranks(list: &str) -> Vec<u32> {
    let ranges = list.split(',').map_while(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse::<u32>().ok()?..=last.parse::<u32>().ok()?)
    });
    ranges.flatten().take(NAMED_MAX + 1).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::record;

    #[test]
    fn missing_ranks_are_named_with_their_processes() {
        let mut job = Job::new(record(0, 0, &[20]), 0, None, ());
        job.rank_started(2, 4711);
        assert_eq!(job.name_missing("2-3", "n1"), "rank 2 (pid 4711 on n1), rank 3 (not started on n1)");
        assert_eq!(job.name_missing("2-9,12", "n1"), "ranks 2-9,12 on n1");
        assert_eq!(job.name_missing("0,...", "n1"), "rank 0 (not started on n1)");
        assert_eq!(
            stalled_line(0, 1500, Some((1, 2)), "rank 2 (pid 4711 on n1)"),
            "ranks have been waiting for 1.5 s: 1 of 2 have come, missing: rank 2 (pid 4711 on n1)"
        );
        assert_eq!(
            stalled_line(3, 1000, None, "x"),
            "ranks of spawned job 3 have been waiting for 1 s: missing: x"
        );
    }
}
