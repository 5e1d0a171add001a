//! Keys of the descriptors that a run's event loop watches.

use hydrant_reactor::{Key, KeyRange};

/// Descriptors of the engine itself.
const OWN: KeyRange = KeyRange(0);
/// Links to other nodes, and the processes that start daemons.
pub(super) const LINKS: KeyRange = KeyRange(1);
/// PMI connections of the ranks.
pub(super) const CONNS: KeyRange = KeyRange(2);
/// Connections to the name service.
pub(super) const NAME_CLIENT: KeyRange = KeyRange(3);
/// Status socket and its clients.
pub(super) const STATUS: KeyRange = KeyRange(4);
/// Standard streams of the ranks.
pub(crate) const IOF: KeyRange = KeyRange(5);

/// Socket of a fleet, and its clients.
pub(crate) const FLEET: KeyRange = KeyRange(6);

/// Descriptor that a key identifies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    /// Signals are pending.
    Signals,
    /// The PMI port of this job number.
    Listener(u32),
    /// The PMIx port of this job number.
    Pmix(u32),
    /// The query socket of this job number.
    Queries(u32),
    /// The connections to a board.
    Board,
    /// The port of tools.
    Tools,
    /// Files have been looked at.
    Looks,
    /// The socket of a relayed tool, in this slot.
    Relay(u32),
    /// A descriptor of the ranks' standard streams.
    Iof(Key),
    /// A PMI connection.
    Conn(Key),
    /// A descriptor of the links.
    Links(Key),
    /// A connection to the name service.
    NameClient(Key),
    /// The status socket or one of its clients.
    Status(Key),
    /// The socket of a fleet or one of its connections.
    Fleet(Key),
}

impl From<Token> for Key {
    fn from(token: Token) -> Key {
        let (kind, index) = match token {
            Token::Signals => (0, 0),
            Token::Listener(job) => (1, job),
            Token::Queries(job) => (2, job),
            Token::Pmix(job) => (3, job),
            Token::Board => (4, 0),
            Token::Tools => (5, 0),
            Token::Looks => (6, 0),
            Token::Relay(slot) => (7, slot),
            Token::Iof(key)
            | Token::Conn(key)
            | Token::Links(key)
            | Token::NameClient(key)
            | Token::Status(key)
            | Token::Fleet(key) => return key,
        };
        OWN.key(kind, index)
    }
}

impl Token {
    /// Decodes a key. Returns none for a key of another range.
    pub(crate) fn of(key: Key) -> Option<Token> {
        if LINKS.contains(key) {
            return Some(Token::Links(key));
        }
        if NAME_CLIENT.contains(key) {
            return Some(Token::NameClient(key));
        }
        if STATUS.contains(key) {
            return Some(Token::Status(key));
        }
        if FLEET.contains(key) {
            return Some(Token::Fleet(key));
        }
        if CONNS.contains(key) {
            return Some(Token::Conn(key));
        }
        if IOF.contains(key) {
            return Some(Token::Iof(key));
        }
        let (kind, index) = OWN.decode(key)?;
        Some(match kind {
            0 => Token::Signals,
            1 => Token::Listener(index),
            2 => Token::Queries(index),
            3 => Token::Pmix(index),
            4 => Token::Board,
            5 => Token::Tools,
            6 => Token::Looks,
            7 => Token::Relay(index),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_survive_the_poller() {
        for token in [
            Token::Signals,
            Token::Listener(3),
            Token::Pmix(5),
            Token::Queries(4),
            Token::Board,
            Token::Tools,
            Token::Looks,
            Token::Relay(6),
            Token::Iof(IOF.key(1, 7)),
            Token::Conn(CONNS.key(0, u32::MAX)),
            Token::Links(LINKS.key(4, 9)),
            Token::NameClient(NAME_CLIENT.key(0, 2)),
            Token::Status(STATUS.key(1, 3)),
            Token::Fleet(FLEET.key(1, 3)),
        ] {
            assert_eq!(Token::of(token.into()), Some(token));
        }
        assert_eq!(Token::of(OWN.key(8, 0)), None);
        assert_eq!(Token::of(KeyRange(7).key(0, 0)), None);
    }
}
