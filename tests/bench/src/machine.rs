//! Processor time that the machine spends on other work while something is measured.

use anyhow::{Context, Result};

/// Share of one processor that other work may take before a row's targets are not judged.
pub(crate) const QUIET: f64 = 0.1;

/// Processor time since the machine started, in clock ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticks {
    /// All processors together: time since the machine started.
    passed: u64,
    /// Spent in processes of the whole machine, or taken by the machine that this one runs on.
    used: u64,
    /// Spent in this process and in its children that were waited for.
    own: u64,
    processors: u64,
}

impl Ticks {
    /// Reads the counters of the kernel.
    pub(crate) fn now() -> Result<Ticks> {
        let read = |path: &str| std::fs::read_to_string(path).with_context(|| format!("cannot read {path}"));
        let (machine, process) = (read("/proc/stat")?, read("/proc/self/stat")?);
        Ticks::parse(&machine, &process)
            .context("/proc/stat or /proc/self/stat has another form than proc(5) says")
    }

    fn parse(machine: &str, process: &str) -> Option<Ticks> {
        let line = machine.lines().next()?.strip_prefix("cpu ")?;
        let all: Vec<u64> = line.split_whitespace().map_while(|number| number.parse().ok()).collect();
        // Interrupts do not count: those of loopback traffic belong to the measured job.
        let &[user, nice, system, _idle, _iowait, _irq, _softirq, steal, ..] = all.as_slice() else {
            return None;
        };
        let processors = machine.lines().skip(1).take_while(|line| line.starts_with("cpu")).count();
        // The name of the program, in parentheses, may hold blanks.
        let fields: Vec<&str> = process.rsplit_once(')')?.1.split_whitespace().collect();
        // Fields 14 to 17 of proc(5): utime, stime, cutime, cstime.
        let own =
            fields.get(11..15)?.iter().map(|field| field.parse::<u64>()).sum::<Result<u64, _>>().ok()?;
        Some(Ticks {
            // Guests' time is part of user and nice.
            passed: all.iter().take(8).sum(),
            used: user + nice + system + steal,
            own,
            processors: processors as u64,
        })
    }

    /// Processors that other work has taken since `before`, on average.
    pub(crate) fn others_since(&self, before: &Ticks) -> f64 {
        let passed = self.passed.saturating_sub(before.passed);
        let own = self.own.saturating_sub(before.own);
        let others = self.used.saturating_sub(before.used).saturating_sub(own);
        if passed == 0 { 0.0 } else { (others * self.processors) as f64 / passed as f64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_of_others_is_a_share_of_one_processor() {
        let process = "7 (a b) c) R 1 7 7 0 -1 0 0 0 0 0 10 5 3 2 20 0 1 0 99";
        let before = Ticks::parse("cpu  100 0 50 800 9 1 1 0 0 0\ncpu0 1\ncpu1 1\nintr 1", process).unwrap();
        assert_eq!(before.own, 20);
        let process = "7 (a b) c) R 1 7 7 0 -1 0 0 0 0 0 30 5 23 2 20 0 1 0 99";
        let after = Ticks::parse("cpu  140 0 60 950 9 1 1 0 0 0\ncpu0 1\ncpu1 1\nintr 1", process).unwrap();
        // 50 of 200 ticks of two processors were used, 40 of them here.
        assert!((after.others_since(&before) - 0.1).abs() < 1e-9);
        assert_eq!(Ticks::parse("cpu  1 2\n", process), None);
    }

    #[test]
    fn counters_of_this_machine_are_understood() {
        Ticks::now().unwrap();
    }
}
