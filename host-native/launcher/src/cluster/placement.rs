//! Which ranks run on which host.

use hydrant_core::peer::tree::Tree;

use super::error::ClusterError;
use super::hosts::{Host, Hosts};
use crate::plan::By;

/// Most ranks of a job on several hosts.
pub const RANKS_MAX: u32 = 1 << 24;

/// Ranks of one program with consecutive numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// The program's number, its `appnum`.
    pub program: u32,
    /// The first rank.
    pub first: u32,
    /// How many there are; at least one.
    pub count: u32,
}

/// A host, and what runs there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// The host.
    pub host: Host,
    /// Its ranks in ascending order; none on a host that has a daemon only.
    pub shares: Vec<Share>,
}

impl Node {
    /// How many ranks it has.
    pub fn size(&self) -> u32 {
        self.shares.iter().map(|share| share.count).sum()
    }

    /// Its ranks in ascending order: what the process set `hydrant://node/HOST` holds.
    pub fn ranks(&self) -> impl Iterator<Item = u32> {
        self.shares.iter().flat_map(|share| share.first..share.first + share.count)
    }

    /// The name of the process set of its ranks.
    pub fn pset(&self) -> String {
        pset(&self.host.name)
    }
}

/// The name of the process set of a host's ranks.
pub(crate) fn pset(host: &str) -> String {
    format!("hydrant://node/{host}")
}

/// How ranks are dealt out to hosts and numbered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// Ranks that a host takes in one turn, instead of as many as it has slots.
    pub ppn: Option<u32>,
    /// Whether a host is filled before the next one gets a rank, or they take turns by single ranks.
    pub map_by: By,
    /// Which order the numbers have; the order in which ranks were dealt where nothing is said.
    pub rank_by: Option<By>,
}

/// Which ranks run on which host.
///
/// In the tree of a job's daemons, node 0 is the launcher and runs no ranks; nodes 1 to n are the hosts in their
/// order, each with a daemon, also where it has no ranks (a spawn may name it). `PMI_process_mapping` counts hosts
/// from 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    nodes: Vec<Node>,
    ranks: u32,
}

impl Placement {
    /// Deals the ranks of programs, of which `programs` gives the numbers, out to hosts.
    ///
    /// Hosts take turns in their order. In a turn a host takes as many ranks as it has slots (or `ppn`), by
    /// `map_by: Slot` at once, by `map_by: Node` one each time it comes round. When all have had their turn and
    /// ranks are left, the next turn begins; a host never goes beyond its `max_slots`. Programs follow each other
    /// without a break. Numbers go up within each program in the order in which its ranks were dealt;
    /// `rank_by: Slot` instead numbers them host by host, `rank_by: Node` by going round its hosts.
    ///
    /// # Errors
    /// More ranks than all hosts take (none take none), or than [`RANKS_MAX`].
    pub fn new(hosts: &Hosts, programs: &[u32], policy: Policy) -> Result<Placement, ClusterError> {
        let sum: u64 = programs.iter().copied().map(u64::from).sum();
        let ranks = u32::try_from(sum).ok().filter(|&sum| sum <= RANKS_MAX);
        let ranks = ranks.ok_or(ClusterError::Ranks(sum))?;
        check_room(hosts, sum)?;
        let nodes = hosts.iter().map(|host| Node { host: host.clone(), shares: Vec::new() });
        let mut placement = Placement { nodes: nodes.collect(), ranks };
        let mut deals = deal(hosts, ranks, policy).into_iter();
        let mut open = None;
        let mut first = 0;
        for (program, &size) in (0..).zip(programs) {
            // What the turns give this program: a turn may go on with the next one.
            let mut of_program = Vec::new();
            let mut left = size;
            while left > 0 {
                let (node, count) =
                    open.take().or_else(|| deals.next()).expect("as much is dealt as there are ranks");
                let taken = left.min(count);
                of_program.push((node, taken));
                open = Some((node, count - taken)).filter(|&(_, rest)| rest > 0);
                left -= taken;
            }
            for (node, count) in order(of_program, policy.rank_by) {
                placement.give(node, Share { program, first, count });
                first += count;
            }
        }
        Ok(placement)
    }

    fn give(&mut self, node: usize, share: Share) {
        let shares = &mut self.nodes[node].shares;
        match shares.last_mut() {
            Some(last) if last.program == share.program && last.first + last.count == share.first => {
                last.count += share.count;
            }
            _ => shares.push(share),
        }
    }

    /// The hosts in their order: number n of the tree is the n-1st.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The number of ranks.
    pub fn ranks(&self) -> u32 {
        self.ranks
    }

    /// The tree of daemons: the launcher, and one a host.
    pub fn tree(&self, radix: u32) -> Tree {
        Tree::new(self.nodes.len() as u32 + 1, radix)
    }

    /// All ranks in runs: the host's position and how many consecutive ranks it has there.
    pub(super) fn runs(&self) -> Vec<(u32, u32)> {
        let of_node = |(at, node): (u32, &Node)| -> Vec<(u32, u32, u32)> {
            node.shares.iter().map(|share| (share.first, at, share.count)).collect()
        };
        let mut shares: Vec<_> = (0..).zip(&self.nodes).flat_map(of_node).collect();
        shares.sort_unstable();
        let mut runs: Vec<(u32, u32)> = Vec::new();
        for (_, node, count) in shares {
            match runs.last_mut() {
                Some((last, run)) if *last == node => *run += count,
                _ => runs.push((node, count)),
            }
        }
        runs
    }

    /// Says where a host has more ranks than slots, if one has; those without a number of slots have room for any.
    pub fn notice(&self) -> Option<String> {
        const SHOWN: usize = 4;
        let crowded = |node: &&Node| node.host.slots.is_some_and(|slots| node.size() > slots);
        let all: Vec<&Node> = self.nodes.iter().filter(crowded).collect();
        let one = |node: &&Node| format!("{} runs {} on {}", node.host.name, node.size(), node.host.turn());
        let mut shown: Vec<String> = all.iter().take(SHOWN).map(one).collect();
        if all.len() > SHOWN {
            shown.push(format!("and {} more", all.len() - SHOWN));
        }
        (!shown.is_empty()).then(|| format!("more ranks than slots: {}", shown.join(", ")))
    }
}

/// Whether the hosts take that many ranks.
pub(super) fn check_room(hosts: &Hosts, ranks: u64) -> Result<(), ClusterError> {
    let room = hosts.iter().map(|host| host.max_slots.map(u64::from)).sum::<Option<u64>>();
    match room {
        Some(room) if room < ranks => Err(ClusterError::Full { ranks, room }),
        _ => Ok(()),
    }
}

/// How many ranks all hosts take in one turn.
pub(super) fn in_one_turn(hosts: &Hosts, ppn: Option<u32>) -> u64 {
    hosts.iter().map(|host| in_turns(host, 1, ppn)).sum()
}

/// How many ranks a host takes in so many turns at most.
fn in_turns(host: &Host, turns: u64, ppn: Option<u32>) -> u64 {
    let ranks = turns * u64::from(ppn.unwrap_or_else(|| host.turn()));
    host.max_slots.map_or(ranks, |max| ranks.min(u64::from(max)))
}

/// Deals `ranks`, for which there is room, out to hosts: who gets how many, in the order of dealing.
fn deal(hosts: &Hosts, ranks: u32, policy: Policy) -> Vec<(usize, u32)> {
    let hosts: Vec<&Host> = hosts.iter().collect();
    let mut given = vec![0u64; hosts.len()];
    let mut deals = Vec::new();
    let mut left = ranks;
    let mut turn = 0u64;
    while left > 0 {
        turn += 1;
        let most = |at: usize| in_turns(hosts[at], turn, policy.ppn);
        let mut open: Vec<usize> = (0..hosts.len()).filter(|&at| given[at] < most(at)).collect();
        while !open.is_empty() {
            for &at in &open {
                if left == 0 {
                    return deals;
                }
                let room = u32::try_from(most(at) - given[at]).unwrap_or(u32::MAX);
                let count = match policy.map_by {
                    By::Slot => room.min(left),
                    By::Node => 1,
                };
                given[at] += u64::from(count);
                left -= count;
                deals.push((at, count));
            }
            open.retain(|&at| given[at] < most(at));
        }
    }
    deals
}

/// The order in which one program's ranks are numbered.
fn order(dealt: Vec<(usize, u32)>, rank_by: Option<By>) -> Vec<(usize, u32)> {
    let Some(by) = rank_by else { return dealt };
    let mut counts = std::collections::BTreeMap::new();
    for (node, count) in dealt {
        *counts.entry(node).or_insert(0) += count;
    }
    let mut counts: Vec<(usize, u32)> = counts.into_iter().collect();
    if by == By::Slot {
        return counts;
    }
    let mut order = Vec::new();
    while !counts.is_empty() {
        for (node, count) in &mut counts {
            order.push((*node, 1));
            *count -= 1;
        }
        counts.retain(|&(_, count)| count > 0);
    }
    order
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(crate) const DEFAULT: Policy = Policy { ppn: None, map_by: By::Slot, rank_by: None };
    const BY_NODE: Policy = Policy { map_by: By::Node, ..DEFAULT };

    /// The host of each rank, by the first letter of its name.
    fn letters(placement: &Placement) -> String {
        let runs = placement.runs();
        let letter = |&(node, count): &(u32, u32)| {
            placement.nodes()[node as usize].host.name[..1].repeat(count as usize)
        };
        runs.iter().map(letter).collect()
    }

    fn placed(hosts: &str, programs: &[u32], policy: Policy) -> String {
        let placement = Placement::new(&Hosts::parse(hosts).unwrap(), programs, policy).unwrap();
        letters(&placement)
    }

    #[test]
    fn hosts_are_filled_in_turn_and_then_again() {
        assert_eq!(placed("a:2,b:1,c:3", &[6], DEFAULT), "aabccc");
        assert_eq!(placed("a:2,b:1,c:3", &[3], DEFAULT), "aab");
        // hydra 4.0.2, `-f` with a:2 and b:1, nine ranks.
        assert_eq!(placed("a:2,b:1", &[9], DEFAULT), "aabaabaab");
        assert_eq!(placed("a,b,c", &[7], DEFAULT), "abcabca");
    }

    #[test]
    fn so_many_a_node_whatever_the_slots() {
        // hydra 4.0.2: (vector,(0,2,2)).
        let ppn = |ppn| Policy { ppn: Some(ppn), ..DEFAULT };
        assert_eq!(placed("a:2,b:1", &[9], ppn(2)), "aabbaabba");
        assert_eq!(placed("a:4,b:4", &[4], ppn(1)), "abab");
    }

    #[test]
    fn by_node_a_host_whose_slots_are_taken_is_passed_over() {
        assert_eq!(placed("a:3,b:1,c:2", &[6], BY_NODE), "abcaca");
        assert_eq!(placed("a:3,b:1,c:2", &[9], BY_NODE), "abcacaabc");
    }

    #[test]
    fn numbers_follow_the_dealing_the_hosts_or_a_round() {
        let by = |rank_by, policy: Policy| Policy { rank_by: Some(rank_by), ..policy };
        assert_eq!(placed("a:2,b:1", &[9], by(By::Slot, DEFAULT)), "aaaaaabbb");
        assert_eq!(placed("a:3,b:1,c:2", &[6], by(By::Node, DEFAULT)), "abcaca");
        assert_eq!(placed("a:3,b:1,c:2", &[6], by(By::Slot, BY_NODE)), "aaabcc");
        assert_eq!(placed("a:3,b:1,c:2", &[4, 2], by(By::Node, DEFAULT)), "abaacc");
    }

    #[test]
    fn programs_follow_each_other_without_a_break() {
        let placement = Placement::new(&Hosts::parse("a:3,b:3").unwrap(), &[1, 4, 1], DEFAULT).unwrap();
        let share = |program, first, count| Share { program, first, count };
        assert_eq!(placement.nodes()[0].shares, [share(0, 0, 1), share(1, 1, 2)]);
        assert_eq!(placement.nodes()[1].shares, [share(1, 3, 2), share(2, 5, 1)]);
        assert_eq!(placement.nodes()[1].ranks().collect::<Vec<_>>(), [3, 4, 5]);
        assert_eq!(placement.nodes()[1].pset(), "hydrant://node/b");
        assert_eq!(placement.tree(16).nodes(), 3);
        assert_eq!(placed("a:3,b:3", &[1, 4, 1], BY_NODE), "ababab");
    }

    #[test]
    fn a_limit_is_never_passed() {
        let mut hosts = Hosts::default();
        let host = |name, slots, max_slots| Host { max_slots, ..Host::with_slots(name, slots) };
        hosts.add(host("a", 2, Some(3))).unwrap();
        hosts.add(host("b", 1, Some(1))).unwrap();
        let place = |hosts: &Hosts, ranks| Placement::new(hosts, &[ranks], DEFAULT);
        assert_eq!(letters(&place(&hosts, 4).unwrap()), "aaba");
        let error = place(&hosts, 5).unwrap_err();
        assert!(matches!(error, ClusterError::Full { ranks: 5, room: 4 }), "{error}");
        hosts.add(host("c", 1, None)).unwrap();
        assert_eq!(letters(&place(&hosts, 8).unwrap()), "aabcaccc");
        assert!(matches!(place(&hosts, RANKS_MAX + 1), Err(ClusterError::Ranks(_))));
        assert!(matches!(place(&Hosts::default(), 1), Err(ClusterError::Full { room: 0, .. })));
    }

    #[test]
    fn more_ranks_than_slots_are_said() {
        let notice = |hosts: &str, ranks| {
            Placement::new(&Hosts::parse(hosts).unwrap(), &[ranks], DEFAULT).unwrap().notice()
        };
        assert_eq!(notice("a:2,b:1", 3), None);
        assert_eq!(notice("a,b", 9), None);
        assert_eq!(notice("a:2,b", 6).as_deref(), Some("more ranks than slots: a runs 4 on 2"));
        assert!(notice("n[1-9]:1", 18).unwrap().ends_with("n4 runs 2 on 1, and 5 more"));
    }

    proptest! {
        #[test]
        fn every_rank_has_one_place(
            slots in prop::collection::vec((prop::option::of(1u32..5), prop::option::of(0u32..4)), 1..9),
            programs in prop::collection::vec(1u32..12, 1..4),
            ppn in prop::option::of(1u32..4), map_by in by(), rank_by in prop::option::of(by()),
        ) {
            let mut hosts = Hosts::default();
            for (at, (slots, more)) in slots.iter().enumerate() {
                let max_slots = more.map(|more| slots.unwrap_or(1) + more);
                hosts.add(Host { slots: *slots, max_slots, ..Host::new(&format!("n{at}")) }).unwrap();
            }
            let policy = Policy { ppn, map_by, rank_by };
            let Ok(placement) = Placement::new(&hosts, &programs, policy) else {
                prop_assert!(hosts.iter().all(|host| host.max_slots.is_some()));
                return Ok(());
            };
            let mut seen = vec![None; placement.ranks() as usize];
            let starts: Vec<u32> = programs.iter().scan(0, |at, n| { *at += n; Some(*at - n) }).collect();
            for node in placement.nodes() {
                prop_assert!(node.host.max_slots.is_none_or(|max| node.size() <= max));
                prop_assert!(node.shares.is_sorted_by_key(|share| share.first));
                for share in &node.shares {
                    for rank in share.first..share.first + share.count {
                        prop_assert_eq!(seen[rank as usize].replace(share.program), None);
                    }
                }
            }
            for (rank, program) in seen.iter().enumerate() {
                let start = starts.iter().rposition(|&start| start as usize <= rank);
                prop_assert_eq!(program.map(|program| program as usize), start);
            }
            prop_assert_eq!(placement.nodes()[0].shares[0].first, 0);
        }
    }

    pub(crate) fn by() -> impl Strategy<Value = By> {
        prop_oneof![Just(By::Slot), Just(By::Node)]
    }
}
