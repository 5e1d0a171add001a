//! Descriptors that an event loop watches for this crate.

use hydrant_reactor::{Key, KeyRange};

/// Descriptor of the ranks' streams that is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Descriptor {
    /// An output stream of this number has bytes: [`Streams::read`](crate::Streams::read).
    Stream(u32),
    /// A sink of this number has room: [`Sinks::flush_one`](crate::Sinks::flush_one).
    Sink(u32),
    /// The launcher's standard input has bytes: [`Stdin::pump`](crate::Stdin::pump).
    Stdin,
    /// The pipe to the reader of this number has room, or is closed: [`Stdin::reader_ready`](crate::Stdin::reader_ready).
    Reader(u32),
    /// The pipe for pushed input of the process of this number has room, or is closed:
    /// [`PushedInput::ready`](crate::PushedInput::ready).
    Pushed(u32),
}

impl Descriptor {
    /// Returns the descriptor of a key of this range.
    pub fn of(keys: KeyRange, key: Key) -> Option<Descriptor> {
        let (kind, index) = keys.decode(key)?;
        Some(match kind {
            0 => Descriptor::Stream(index),
            1 => Descriptor::Sink(index),
            2 => Descriptor::Stdin,
            3 => Descriptor::Reader(index),
            4 => Descriptor::Pushed(index),
            _ => return None,
        })
    }

    pub(crate) fn key(self, keys: KeyRange) -> Key {
        let (kind, index) = match self {
            Descriptor::Stream(stream) => (0, stream),
            Descriptor::Sink(sink) => (1, sink),
            Descriptor::Stdin => (2, 0),
            Descriptor::Reader(reader) => (3, reader),
            Descriptor::Pushed(process) => (4, process),
        };
        keys.key(kind, index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_survive_the_poller() {
        let keys = KeyRange(6);
        for descriptor in [
            Descriptor::Stream(7),
            Descriptor::Sink(1),
            Descriptor::Stdin,
            Descriptor::Reader(u32::MAX),
            Descriptor::Pushed(2),
        ] {
            assert_eq!(Descriptor::of(keys, descriptor.key(keys)), Some(descriptor));
        }
        assert_eq!(Descriptor::of(keys, keys.key(5, 0)), None);
        assert_eq!(Descriptor::of(KeyRange(5), Descriptor::Stdin.key(keys)), None);
    }
}
