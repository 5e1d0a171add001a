//! Keys of the descriptors that a PMI server's event loop watches.

use hydrant_reactor::{Key, KeyRange};

/// Descriptors of the server itself.
const OWN: KeyRange = KeyRange(0);
/// PMI connections.
pub(crate) const CONNS: KeyRange = KeyRange(1);
/// Status socket and its clients.
pub(crate) const STATUS: KeyRange = KeyRange(2);

/// Descriptor that a key identifies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    /// Signals are pending.
    Signals,
    /// The log has room for more.
    Log,
    /// The PMI port of this job number.
    Listener(u32),
    /// A PMI connection.
    Conn(Key),
    /// The management port.
    Manage,
    /// The management connection of this number.
    Host(u32),
    /// A descriptor of the status socket.
    Status(Key),
    /// Connections for links of this node have arrived.
    Bell,
    /// The link to this node.
    Link(u32),
    /// The connection of the host of this lone node.
    Lone(u32),
}

impl From<Token> for Key {
    fn from(token: Token) -> Key {
        match token {
            Token::Signals => OWN.key(0, 0),
            Token::Log => OWN.key(1, 0),
            Token::Listener(job) => OWN.key(2, job),
            Token::Manage => OWN.key(3, 0),
            Token::Host(host) => OWN.key(4, host),
            Token::Bell => OWN.key(5, 0),
            Token::Link(node) => OWN.key(6, node),
            Token::Lone(number) => OWN.key(7, number),
            Token::Conn(key) | Token::Status(key) => key,
        }
    }
}

impl Token {
    /// Decodes a key. Returns none for a key of another range.
    pub(crate) fn of(key: Key) -> Option<Token> {
        if CONNS.contains(key) {
            return Some(Token::Conn(key));
        }
        if STATUS.contains(key) {
            return Some(Token::Status(key));
        }
        let (kind, index) = OWN.decode(key)?;
        Some(match kind {
            0 => Token::Signals,
            1 => Token::Log,
            2 => Token::Listener(index),
            3 => Token::Manage,
            4 => Token::Host(index),
            5 => Token::Bell,
            6 => Token::Link(index),
            7 => Token::Lone(index),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_survive_the_poller() {
        let tokens = [
            Token::Signals,
            Token::Log,
            Token::Listener(7),
            Token::Conn(CONNS.key(0, u32::MAX)),
            Token::Manage,
            Token::Host(5),
            Token::Bell,
            Token::Link(9),
            Token::Lone(3),
            Token::Status(STATUS.key(1, 7)),
        ];
        for token in tokens {
            assert_eq!(Token::of(token.into()), Some(token));
        }
        assert_eq!(Token::of(KeyRange(3).key(0, 0)), None);
    }
}
