//! Check of resource limits.

use crate::finding::Finding;
use crate::machine::{Limit, Machine};

/// Descriptors that a job of a few ranks needs.
const FILES_MIN: u64 = 64;
/// Descriptors of hydrant for a rank: output, error, messages, process.
const FILES_PER_RANK: u64 = 4;
/// Descriptors of hydrant itself.
const FILES_OWN: u64 = 32;
/// Limits below these are noted.
const PROCESSES_LOW: u64 = 512;
const LOCKED_LOW: u64 = 64 << 20;

pub(crate) fn check(machine: &Machine) -> Vec<Finding> {
    vec![open_files(machine.open_files), processes(machine.processes), locked_memory(machine.locked_memory)]
}

fn open_files(limit: Limit) -> Finding {
    const TOPIC: &str = "open files";
    let Some(hard) = limit.hard else { return Finding::ok(TOPIC, "no limit") };
    if hard < FILES_MIN {
        let text = format!("the hard limit is {hard}, too low for a job");
        return Finding::problem(
            TOPIC,
            text,
            "raise the limit (ulimit -Hn, or LimitNOFILE of a systemd service)",
        );
    }
    let ranks = (hard.saturating_sub(FILES_OWN) / FILES_PER_RANK).max(1);
    let text = format!("hard limit {hard}, enough for {ranks} ranks on this machine");
    if ranks < 128 {
        return Finding::note(TOPIC, text, Some("raise the limit for more (ulimit -Hn)"));
    }
    Finding::ok(TOPIC, text)
}

fn processes(limit: Limit) -> Finding {
    const TOPIC: &str = "processes";
    match limit.soft {
        None => Finding::ok(TOPIC, "no limit"),
        Some(soft) if soft < PROCESSES_LOW => {
            let text = format!("limit {soft} for all processes and threads of this user");
            Finding::note(TOPIC, text, Some("raise the limit (ulimit -u) if ranks cannot be started"))
        }
        Some(soft) => Finding::ok(TOPIC, format!("limit {soft}")),
    }
}

fn locked_memory(limit: Limit) -> Finding {
    const TOPIC: &str = "locked memory";
    match limit.soft {
        None => Finding::ok(TOPIC, "no limit"),
        Some(soft) if soft < LOCKED_LOW => {
            let text = format!("limit {} KiB, too low for InfiniBand and other RDMA networks", soft >> 10);
            Finding::note(
                TOPIC,
                text,
                Some("on such a network set 'memlock unlimited' in /etc/security/limits.conf"),
            )
        }
        Some(soft) => Finding::ok(TOPIC, format!("limit {} MiB", soft >> 20)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Level;

    #[test]
    fn low_limits_are_found() {
        let of = |limit: u64| Limit { soft: Some(limit), hard: Some(limit) };
        assert_eq!(open_files(of(20)).level, Level::Problem);
        assert_eq!(open_files(of(256)).level, Level::Note);
        assert_eq!(open_files(of(4096)).text, "hard limit 4096, enough for 1016 ranks on this machine");
        assert_eq!(open_files(Limit::default()).level, Level::Ok);
        assert_eq!(processes(of(100)).level, Level::Note);
        assert_eq!(processes(of(4096)).level, Level::Ok);
        assert_eq!(locked_memory(of(8 << 20)).level, Level::Note);
        assert_eq!(locked_memory(Limit::default()).level, Level::Ok);
    }
}
