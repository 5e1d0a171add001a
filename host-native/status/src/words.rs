//! States of ranks in words, and ranks by their states.

use hydrant_core::trace::SignalName;

use crate::record::{Rank, State, Wait, seconds};

/// State of a rank in words, as `initialized` or `exited 3`.
pub fn state_text(rank: &Rank) -> String {
    match rank.state {
        State::NotStarted => "not started".to_owned(),
        State::NotConnected => "not connected".to_owned(),
        State::Started => "started".to_owned(),
        State::Running => "running".to_owned(),
        State::Initialized => "initialized".to_owned(),
        State::Finalized => "finalized".to_owned(),
        State::Exited => format!("exited {}", rank.exit_code.unwrap_or_default()),
        State::Killed => SignalName(rank.signal.unwrap_or_default().into()).to_string(),
        State::Lost => "host lost".to_owned(),
    }
}

/// Groups ranks by what they do, as `in fence 2 for 3.1 s`, in the order of the first rank of each group. The time is
/// that of the rank that waits longest.
pub fn group_by_state(ranks: &[Rank]) -> Vec<(String, Vec<u32>)> {
    let mut groups: Vec<(String, Option<u64>, Vec<u32>)> = Vec::new();
    for rank in ranks {
        let (text, since) = activity(rank);
        match groups.iter_mut().find(|(known, ..)| *known == text) {
            Some((_, longest, members)) => {
                *longest = since.max(*longest);
                members.push(rank.rank);
            }
            None => groups.push((text, since, vec![rank.rank])),
        }
    }
    let describe = |(text, since, members): (String, Option<u64>, Vec<u32>)| match since {
        Some(since) => (format!("{text} for {}", seconds(since)), members),
        None => (text, members),
    };
    groups.into_iter().map(describe).collect()
}

/// What a rank does, and the milliseconds that it has waited, if they are known.
fn activity(rank: &Rank) -> (String, Option<u64>) {
    match &rank.waits_for {
        Some(Wait::Fence { number, since_ms }) => (format!("in fence {number}"), Some(*since_ms)),
        Some(Wait::Group { kind, since_ms }) => (format!("in {kind}"), Some(*since_ms)),
        Some(wait) => (format!("waiting for {wait}"), None),
        None => (state_text(rank), None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rank(rank: u32, state: State, waits_for: Option<Wait>) -> Rank {
        let host = Some("n".to_owned());
        Rank { rank, host, pid: Some(1), program: 0, state, exit_code: Some(3), signal: Some(9), waits_for }
    }

    #[test]
    fn ranks_of_a_fence_are_one_group() {
        let fence = |since_ms| Some(Wait::Fence { number: 2, since_ms });
        let ranks = [
            rank(0, State::Initialized, fence(100)),
            rank(1, State::Initialized, Some(Wait::Spawn)),
            rank(2, State::Initialized, fence(3100)),
            rank(3, State::Started, None),
            rank(5, State::Exited, None),
        ];
        let groups = group_by_state(&ranks);
        let groups: Vec<_> = groups.iter().map(|(text, ranks)| (text.as_str(), ranks.as_slice())).collect();
        let want: [(&str, &[u32]); 4] = [
            ("in fence 2 for 3.1 s", &[0, 2]),
            ("waiting for spawn", &[1]),
            ("started", &[3]),
            ("exited 3", &[5]),
        ];
        assert_eq!(groups, want);
    }
}
