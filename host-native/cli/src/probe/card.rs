//! Keys and values that a probe puts: a card that identifies each rank, and reproducible values.

use std::fmt;

/// Identifies a rank's process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Card {
    pub(super) pid: u32,
    pub(super) host: String,
}

impl Card {
    /// Returns this process's card.
    pub(super) fn of_this_process() -> Card {
        // The process manager's name of this host. Daemons on the same machine have different names.
        let name = std::env::var("PMI_HOSTNAME").ok().filter(|name| !name.is_empty());
        let host = name.unwrap_or_else(|| rustix::system::uname().nodename().to_string_lossy().into_owned());
        Card { pid: std::process::id(), host }
    }

    /// Parses the output of `to_string`.
    pub(super) fn parse(text: &str) -> Option<Card> {
        let (pid, host) = text.split_once('@')?;
        Some(Card { pid: pid.parse().ok()?, host: host.to_owned() })
    }
}

impl fmt::Display for Card {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.pid, self.host)
    }
}

pub(super) fn card_key(round: u32, rank: u32) -> String {
    format!("probe-card-{round}-{rank}")
}

pub(super) fn value_key(round: u32, rank: u32, number: u32) -> String {
    format!("probe-{round}-{rank}-{number}")
}

/// Returns the value of a key: letters and digits, because process managers differ in which other characters they keep.
/// The values of a job differ in every part, so that a value under the wrong key is detected.
pub(super) fn value(round: u32, rank: u32, number: u32, bytes: u32) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789xy";
    let mut state = u64::from(round) << 40 ^ u64::from(rank) << 20 ^ u64::from(number);
    (0..bytes)
        .map(|_| {
            // SplitMix64 (Steele, Lea and Flood), which accepts any seed including zero.
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            char::from(LETTERS[(mixed >> 58) as usize])
        })
        .collect()
}
