//! What the ranks of a probe put: who they are, and values that anyone can foretell.

use std::fmt;

/// Who a rank is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Card {
    pub(super) pid: u32,
    pub(super) host: String,
}

impl Card {
    /// This process's.
    pub(super) fn mine() -> Card {
        // What the process manager calls this host: with daemons on one machine only, each has a name of its own.
        let name = std::env::var("PMI_HOSTNAME").ok().filter(|name| !name.is_empty());
        let host = name.unwrap_or_else(|| rustix::system::uname().nodename().to_string_lossy().into_owned());
        Card { pid: std::process::id(), host }
    }

    /// Reads what `to_string` wrote.
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

/// Letters and digits only, since process managers differ in which others they keep. Every value of a job is another
/// one, and so is every part of it, so that one in another's place is noticed.
pub(super) fn value(round: u32, rank: u32, number: u32, bytes: u32) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789xy";
    let mut state = u64::from(round) << 40 ^ u64::from(rank) << 20 ^ u64::from(number);
    (0..bytes)
        .map(|_| {
            // Steele, Lea and Flood's SplitMix64: any seed will do, also zero.
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            char::from(LETTERS[(mixed >> 58) as usize])
        })
        .collect()
}
