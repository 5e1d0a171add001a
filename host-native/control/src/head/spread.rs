//! Placement of spawned ranks by their number on each host, or beside each rank of another job.

use std::collections::{BTreeMap, BTreeSet};

use hydrant_placement::Host;

use super::{Head, Per, Spread};
use crate::error::Error;

impl Head {
    /// Returns the nodes for a program, each with the number of ranks beside which its ranks are placed. `named` are the hosts that
    /// it may run on, or none for all.
    pub(super) fn places(&self, wanted: &Spread, named: &[Host]) -> Result<BTreeMap<u32, u32>, Error> {
        let mut places = BTreeMap::new();
        match &wanted.beside {
            None => places.extend(self.usable_nodes().map(|node| (node, 0))),
            Some(target) => {
                let job = self.jobs.named(target.job.as_bytes());
                let job = job.ok_or_else(|| Error::NoTarget(target.job.clone()))?;
                let ranks = (0..job.size()).filter(|&rank| target.rank.is_none_or(|of| of.0 == rank));
                for rank in ranks {
                    *places.entry(job.run.node(rank)).or_default() += 1;
                }
            }
        }
        let is_named = |node| named.is_empty() || named.iter().any(|host| host.name == self.host(node));
        let open: BTreeSet<u32> = self.usable_nodes().collect();
        places.retain(|node, _| open.contains(node) && is_named(*node));
        Ok(places)
    }
}

/// Returns the nodes of a program's ranks and their number on each.
pub(super) fn spread(places: &BTreeMap<u32, u32>, wanted: &Spread) -> Result<Vec<(u32, u32)>, Error> {
    let most = wanted.most.unwrap_or(i32::MAX as u32);
    let mut left = most;
    let mut spread = Vec::new();
    for (&node, &ranks) in places {
        let of_node = wanted.count.saturating_mul(if wanted.per == Per::Rank { ranks } else { 1 });
        let count = of_node.min(left);
        left -= count;
        if count > 0 {
            spread.push((node, count));
        }
    }
    let placed = most - left;
    match wanted.most {
        Some(asked) if placed < asked => Err(Error::NoPlace { asked, placed }),
        _ => Ok(spread),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placed(count: u32, per: Per, most: Option<u32>) -> Result<Vec<(u32, u32)>, String> {
        let places = BTreeMap::from([(1, 2), (3, 1)]);
        spread(&places, &Spread { count, per, beside: None, most }).map_err(|error| error.to_string())
    }

    #[test]
    fn ranks_are_spread_over_hosts_or_beside_ranks() {
        assert_eq!(placed(1, Per::Host, None), Ok(vec![(1, 1), (3, 1)]));
        assert_eq!(placed(2, Per::Rank, None), Ok(vec![(1, 4), (3, 2)]));
        assert_eq!(placed(2, Per::Host, Some(3)), Ok(vec![(1, 2), (3, 1)]));
        assert_eq!(placed(2, Per::Host, Some(1)), Ok(vec![(1, 1)]));
        let full =
            "5 ranks are asked for, and the hosts have places for 4: ask for fewer, or for more on each host";
        assert_eq!(placed(2, Per::Host, Some(5)), Err(full.to_owned()));
    }
}
