//! Start of daemons on many hosts, by calculation from measured costs of one start.

use std::fmt::Write;

use hydrant_core::peer::tree::Tree;
use hydrant_overlay::RADIX_DEFAULT;

/// Cost of a command that starts a daemon, in microseconds.
#[derive(Clone, Copy, Debug)]
pub struct Starter {
    /// Its name.
    pub name: &'static str,
    /// Processor time of the command on the host of the parent.
    pub client: u64,
    /// From the start of the command to that of the daemon.
    pub latency: u64,
    /// Processor time of a controller that all starts share.
    pub controller: u64,
}

/// Maximum numbers of children of the trees in the table.
const RADICES: [u32; 3] = [4, RADIX_DEFAULT, 16];
/// Processors of each host.
const PROCESSORS: u64 = 2;
/// Start by ssh.
pub const SSH: Starter = Starter { name: "ssh", client: 67_000, latency: 712_000, controller: 0 };
/// Measured on two busy processors: the shortest of 25 runs of `ssh localhost true`, and of 15 of `srun true`, with the
/// processor time of slurmctld for a step.
pub const STARTERS: [Starter; 2] =
    [SSH, Starter { name: "srun", client: 11_000, latency: 218_000, controller: 1_100 }];

/// Start of all daemons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// Commands that the busiest host runs.
    pub commands: u64,
    /// Levels of daemons.
    pub depth: u32,
    /// Until the last daemon runs, in microseconds.
    pub time: u64,
}

/// Starts a daemon on each of so many hosts. Each node starts up to `radix` daemons, or the head all, without a radix.
pub fn start(hosts: u32, radix: Option<u32>, starter: Starter) -> Cost {
    let tree = radix.map(|radix| Tree::new(hosts + 1, radix));
    let children = |node| match tree {
        Some(tree) => tree.children(node).map(|child| child.start).collect(),
        None if node == 0 => (1..=hosts).collect::<Vec<u32>>(),
        None => Vec::new(),
    };
    let Starter { client, latency, controller, .. } = starter;
    let mut running = vec![0u64; hosts as usize + 1];
    let mut requests = Vec::new();
    let mut commands = 0;
    for node in 0..=hosts {
        let begin = running[node as usize];
        for (started, child) in (1..).zip(children(node)) {
            // The commands of a node share its processors.
            let request = begin + started * client / PROCESSORS;
            requests.push(request);
            running[child as usize] = request + latency;
            commands = commands.max(started);
        }
    }
    // The controller serves one request after the other.
    requests.sort_unstable();
    let served = requests.iter().fold(0, |free: u64, &request| free.max(request) + controller);
    let last = running.iter().copied().max().unwrap_or(0);
    let time = if controller == 0 { last } else { last.max(served + latency) };
    Cost { commands, depth: tree.map_or(1, |tree| tree.depth()), time }
}

/// The start of many hosts in trees and by one host, as a table in Markdown.
pub fn table() -> String {
    let mut text = String::from("| hosts |");
    for Starter { name, .. } in STARTERS {
        for radix in RADICES {
            let _ = write!(text, " {name}, radix {radix}, s |");
        }
        let _ = write!(text, " {name} by one host, s |");
    }
    let _ = writeln!(text, "\n|---:|{}", "---:|".repeat((RADICES.len() + 1) * STARTERS.len()));
    for hosts in [16, 128, 1024, 10_000] {
        let _ = write!(text, "| {hosts} |");
        for starter in STARTERS {
            for radix in RADICES.map(Some).into_iter().chain([None]) {
                let cost = start(hosts, radix, starter);
                let _ = write!(text, " {:.1} |", cost.time as f64 / 1e6);
            }
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const STARTER: Starter = Starter { name: "test", client: 10, latency: 1000, controller: 0 };

    #[test]
    fn levels_add_their_latency() {
        assert_eq!(start(1, Some(16), STARTER), Cost { commands: 1, depth: 1, time: 1005 });
        assert_eq!(start(16, Some(16), STARTER), Cost { commands: 16, depth: 1, time: 1080 });
        // The subtrees have 6, 5, 4 and 3 daemons. The first child starts five.
        assert_eq!(start(18, Some(16), STARTER), Cost { commands: 5, depth: 2, time: 2030 });
        assert_eq!(start(1000, None, STARTER), Cost { commands: 1000, depth: 1, time: 6000 });
    }

    #[test]
    fn a_controller_serves_one_after_the_other() {
        let starter = Starter { controller: 100, ..STARTER };
        let (tree, one) = (start(1000, Some(16), starter), start(1000, None, starter));
        assert!(tree.time >= 100 * 1000 && one.time >= 100 * 1000, "{tree:?} {one:?}");
    }
}
