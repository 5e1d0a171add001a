//! Poller keys of links, within the key range that the owner of the event loop assigns.

use hydrant_reactor::{Key, KeyRange};

/// Descriptor that a key identifies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LinkKey {
    /// The listening socket of this index.
    Listener(u32),
    /// The unauthenticated connection of this index.
    Incoming(u32),
    /// The link to the node of this number.
    Link(u32),
    /// Standard input of the process that starts the daemon of this node.
    BootstrapInput(u32),
    /// Standard output of the process that starts the daemon of this node.
    BootstrapOutput(u32),
    /// The connection of the host of this number that asks to join.
    LateHost(u32),
}

impl LinkKey {
    pub(super) fn encode(self, range: KeyRange) -> Key {
        match self {
            LinkKey::Listener(index) => range.key(0, index),
            LinkKey::Incoming(index) => range.key(1, index),
            LinkKey::Link(node) => range.key(2, node),
            LinkKey::BootstrapInput(node) => range.key(3, node),
            LinkKey::BootstrapOutput(node) => range.key(4, node),
            LinkKey::LateHost(number) => range.key(5, number),
        }
    }

    pub(super) fn decode(range: KeyRange, key: Key) -> Option<LinkKey> {
        let (kind, index) = range.decode(key)?;
        Some(match kind {
            0 => LinkKey::Listener(index),
            1 => LinkKey::Incoming(index),
            2 => LinkKey::Link(index),
            3 => LinkKey::BootstrapInput(index),
            4 => LinkKey::BootstrapOutput(index),
            5 => LinkKey::LateHost(index),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_decode_in_their_range_only() {
        let keys = [
            LinkKey::Listener(1),
            LinkKey::Incoming(63),
            LinkKey::Link(u32::MAX),
            LinkKey::BootstrapInput(5),
            LinkKey::BootstrapOutput(6),
            LinkKey::LateHost(7),
        ];
        for key in keys {
            let encoded = key.encode(KeyRange(9));
            assert_eq!(LinkKey::decode(KeyRange(9), encoded), Some(key));
            assert_eq!(LinkKey::decode(KeyRange(8), encoded), None);
        }
    }
}
