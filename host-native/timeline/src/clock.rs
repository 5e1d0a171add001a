//! Clocks of several nodes, tied by the messages between them.
//!
//! Each recording has its own clock. A message is received after it is sent. Messages in both directions bound the
//! difference of two clocks from both sides. The middle is the offset, and half of the distance is its largest error.
//! Times are whole milliseconds, which widens the bounds by one. Drift is not corrected.

use std::collections::BTreeMap;

use crate::model::{Clock, Millis};

/// Most messages that are kept of one direction of a link. Later ones do not take part.
const KEPT_MAX: usize = 16 * 1024;
/// Latest time of a recording, and largest offset, in milliseconds: 35,000 years. Sums of two fit in microseconds.
pub(crate) const TIME_MAX: Millis = 1 << 50;
/// Most links of a node.
const LINKS_MAX: usize = 4096;

/// Messages of a node's links.
#[derive(Debug, Default)]
pub(crate) struct Links {
    sent: BTreeMap<u32, Vec<Passed>>,
    received: BTreeMap<u32, Vec<Passed>>,
}

/// Message between nodes: its time, and its digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Passed {
    at: u64,
    digest: u64,
}

impl Links {
    pub(crate) fn sent(&mut self, to: u32, at: u64, bytes: &[u8]) {
        keep(&mut self.sent, to, at, bytes);
    }

    pub(crate) fn received(&mut self, from: u32, at: u64, bytes: &[u8]) {
        keep(&mut self.received, from, at, bytes);
    }
}

fn keep(links: &mut BTreeMap<u32, Vec<Passed>>, node: u32, at: u64, bytes: &[u8]) {
    if links.len() >= LINKS_MAX && !links.contains_key(&node) {
        return;
    }
    let passed = links.entry(node).or_default();
    if passed.len() < KEPT_MAX {
        passed.push(Passed { at, digest: digest(bytes) });
    }
}

/// FNV-1a, to notice that two recordings are not of the same run.
fn digest(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Returns the smallest difference between receiving and sending a message, in the clocks of both sides. Links keep
/// the order of messages.
fn smallest(sender: Option<&Vec<Passed>>, receiver: Option<&Vec<Passed>>) -> Option<Millis> {
    let pairs = sender?.iter().zip(receiver?);
    pairs.take_while(|(s, r)| s.digest == r.digest).map(|(s, r)| r.at as Millis - s.at as Millis).min()
}

/// Returns the offset of `other`'s clock to `own`'s, for nodes of these numbers.
fn offset(own: (u32, &Links), other: (u32, &Links)) -> Option<Clock> {
    let there = smallest(own.1.sent.get(&other.0), other.1.received.get(&own.0));
    let back = smallest(other.1.sent.get(&own.0), own.1.received.get(&other.0));
    match (there, back) {
        (Some(there), Some(back)) => {
            // Added to the other clock: at least `-there`, at most `back`, and one more for whole milliseconds.
            let error = (there + back + 1).div_euclid(2) + 1;
            Some(Clock { offset: (back - there).div_euclid(2), error: u64::try_from(error).ok() })
        }
        (Some(there), None) => Some(Clock { offset: -there, error: None }),
        (None, Some(back)) => Some(Clock { offset: back, error: None }),
        (None, None) => None,
    }
}

/// Ties the clocks of nodes to that of the first in `numbers` by lowest number. Returns a clock for each. `fallback`
/// returns the offset of a node that no messages tie to another one.
pub(crate) fn tie(numbers: &[u32], links: &[Links], fallback: impl Fn(usize, usize) -> Millis) -> Vec<Clock> {
    let Some(root) = (0..numbers.len()).min_by_key(|&at| numbers[at]) else { return Vec::new() };
    let by_number: BTreeMap<u32, usize> = numbers.iter().copied().zip(0..).collect();
    let mut clocks = vec![None; numbers.len()];
    clocks[root] = Some(Clock { offset: 0, error: Some(0) });
    let mut reached = vec![root];
    while let Some(at) = reached.pop() {
        let own = clocks[at].unwrap_or_default();
        let neighbours = links[at].sent.keys().chain(links[at].received.keys());
        for &other in neighbours.filter_map(|number| by_number.get(number)) {
            let to = |at: usize| (numbers[at], &links[at]);
            let Some(tied) = offset(to(at), to(other)).filter(|_| clocks[other].is_none()) else { continue };
            let error = own.error.zip(tied.error).map(|(a, b)| a + b);
            clocks[other] = Some(Clock { offset: own.offset + tied.offset, error });
            reached.push(other);
        }
    }
    let untied = |at| Clock { offset: fallback(root, at), error: None };
    let clocks = clocks.into_iter().enumerate().map(|(at, clock)| clock.unwrap_or_else(|| untied(at)));
    let bounded = |clock: Clock| Clock { offset: clock.offset.clamp(-TIME_MAX, TIME_MAX), ..clock };
    clocks.map(bounded).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two nodes whose clocks differ by `ahead`, with messages of these times on the first clock.
    fn nodes(ahead: i64, there: &[(i64, i64)], back: &[(i64, i64)]) -> [Links; 2] {
        let mut links = [Links::default(), Links::default()];
        let other = |at: i64| (at + ahead) as u64;
        for (number, &(sent, received)) in (0u8..).zip(there) {
            links[0].sent(1, sent as u64, &[number]);
            links[1].received(0, other(received), &[number]);
        }
        for (number, &(sent, received)) in (0u8..).zip(back) {
            links[1].sent(0, other(sent), &[number]);
            links[0].received(1, received as u64, &[number]);
        }
        links
    }

    fn tied(links: &[Links]) -> Clock {
        tie(&[0, 1], links, |_, _| 77)[1]
    }

    #[test]
    fn messages_in_both_directions_bound_the_error() {
        for ahead in [-900, 0, 5000] {
            let links = nodes(ahead, &[(1000, 1040), (1100, 1104)], &[(1050, 1052), (1200, 1300)]);
            let Clock { offset, error } = tied(&links);
            let error = error.expect("both directions");
            assert!(error <= 5, "{error}");
            assert!((offset + ahead).unsigned_abs() <= error, "{offset} for {ahead}");
        }
    }

    #[test]
    fn one_direction_gives_no_error() {
        assert_eq!(tied(&nodes(500, &[(1000, 1003)], &[])), Clock { offset: -503, error: None });
        assert_eq!(tied(&nodes(500, &[], &[(1000, 1003)])), Clock { offset: -497, error: None });
        assert_eq!(tied(&nodes(500, &[], &[])), Clock { offset: 77, error: None });
    }

    #[test]
    fn contradicting_messages_give_no_error() {
        assert_eq!(tied(&nodes(0, &[(1000, 900)], &[(1000, 900)])).error, None);
    }

    #[test]
    fn errors_add_up_along_the_tree() {
        let [top, mut middle] = nodes(10, &[(100, 102)], &[(100, 102)]);
        let [below, low] = nodes(-30, &[(100, 102)], &[(100, 102)]);
        middle.sent.extend(below.sent.into_values().map(|passed| (2, passed)));
        middle.received.extend(below.received.into_values().map(|passed| (2, passed)));
        let low = Links {
            sent: low.sent.into_values().map(|passed| (1, passed)).collect(),
            received: low.received.into_values().map(|passed| (1, passed)).collect(),
        };
        let clocks = tie(&[0, 1, 2], &[top, middle, low], |_, _| 0);
        let offsets: Vec<_> = clocks.iter().map(|clock| clock.offset).collect();
        assert_eq!(offsets, [0, -10, 20]);
        let errors: Vec<_> = clocks.iter().map(|clock| clock.error).collect();
        assert_eq!(errors, [Some(0), Some(3), Some(6)]);
    }
}
