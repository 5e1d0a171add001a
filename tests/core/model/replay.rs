//! The same inputs again, on another server: recorded as bytes, and split otherwise.

use hydrant_core::server::Consumed;
use hydrant_core::{Fault, Input, Limits, Output, Server, Time};
use hydrant_driver::MappedStorage;

use super::SEED;

/// An input in postcard, its result, and the outputs that followed, in postcard.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) now: Time,
    pub(crate) input: Vec<u8>,
    pub(crate) result: Result<Consumed, Fault>,
    pub(crate) outputs: Vec<Vec<u8>>,
}

/// All inputs and outputs of a server.
#[derive(Debug, Default)]
pub(crate) struct Tape(pub(crate) Vec<Entry>);

fn saved(value: &impl serde::Serialize) -> Vec<u8> {
    let mut buf = vec![0; 1 << 17];
    postcard::to_slice(value, &mut buf).expect("longer than any message").to_vec()
}

impl Tape {
    pub(crate) fn input(&mut self, now: Time, input: &Input<'_>, result: Result<Consumed, Fault>) {
        let bytes = saved(input);
        assert_eq!(postcard::from_bytes(&bytes).as_ref(), Ok(input), "what is saved is what was said");
        self.0.push(Entry { now, input: bytes, result, outputs: Vec::new() });
    }

    pub(crate) fn output(&mut self, output: &Output<'_>) {
        let bytes = saved(output);
        assert_eq!(postcard::from_bytes(&bytes).as_ref(), Ok(output), "what is saved is what was said");
        self.0.last_mut().expect("an input comes first").outputs.push(bytes);
    }

    /// Plays it to a new server, which must say the same and end in the same state. `split` hands in every
    /// client's bytes piece by piece.
    pub(crate) fn replay(&self, limits: Limits, end: &[u8], split: bool) {
        let mut memory = MappedStorage::new(&limits);
        let mut server =
            Server::new(limits, memory.lend(), SEED).expect("the memory is as large as the limits say");
        let mut buf = vec![0; limits.output_max()];
        for entry in &self.0 {
            let input = postcard::from_bytes(&entry.input).expect("it was read back before");
            let result = match input {
                Input::Bytes { conn, bytes, full } if split => {
                    let mut done = 0;
                    let mut result = Ok(Consumed::default());
                    let ends = [1, 5, 7, bytes.len() / 2, bytes.len() - bytes.len().min(1), bytes.len()];
                    for end in ends.into_iter().filter(|&end| end <= bytes.len()) {
                        let whole = end == bytes.len();
                        let piece = bytes.get(done..end).unwrap_or_default();
                        let input = Input::Bytes { conn, bytes: piece, full: full && whole };
                        result = server.handle(entry.now, input);
                        done += result.map_or(0, |consumed| consumed.bytes as usize);
                    }
                    result.map(|consumed| Consumed { bytes: done as u32, ..consumed })
                }
                input => server.handle(entry.now, input),
            };
            assert_eq!(result, entry.result, "{input:?}");
            let mut outputs = entry.outputs.iter();
            while let Some(output) = server.poll(&mut buf).expect("the buffer is long enough") {
                assert_eq!(Some(&saved(&output)), outputs.next(), "{input:?} leads to {output:?}");
            }
            assert_eq!(outputs.next(), None, "{input:?} leads to less");
        }
        let mut state = vec![0; end.len() + 1];
        assert!(server.snapshot(&mut state) == Ok(end), "the same inputs, another state");
    }

    /// Plays it to a server that is another before each input and each output: restored from a snapshot of the one
    /// before.
    pub(crate) fn relay(&self, limits: Limits, end: &[u8]) {
        let mut memory = MappedStorage::new(&limits);
        let server =
            Server::new(limits, memory.lend(), SEED).expect("the memory is as large as the limits say");
        let mut state = snapshot(&server);
        let mut buf = vec![0; limits.output_max()];
        for entry in &self.0 {
            let input: Input<'_> = postcard::from_bytes(&entry.input).expect("it was read back before");
            let result = with(&mut state, |server| server.handle(entry.now, input));
            assert_eq!(result, entry.result, "{input:?}");
            let mut outputs = entry.outputs.iter();
            while let Some(output) = with(&mut state, |server| {
                server.poll(&mut buf).expect("the buffer is long enough").map(|it| saved(&it))
            }) {
                assert_eq!(Some(&output), outputs.next(), "after {input:?}");
            }
            assert_eq!(outputs.next(), None, "{input:?} leads to less");
        }
        assert!(state == end, "the same inputs, another state");
    }
}

fn snapshot(server: &Server<'_>) -> Vec<u8> {
    let mut state = vec![0; server.snapshot_len()];
    let len = server.snapshot(&mut state).expect("its length was asked for").len();
    assert_eq!(len, state.len());
    state
}

/// Restores a server, does something with it, and saves it again.
fn with<T>(state: &mut Vec<u8>, act: impl FnOnce(&mut Server<'_>) -> T) -> T {
    let limits = hydrant_core::snapshot::limits(state).expect("a server wrote it");
    let mut memory = MappedStorage::new(&limits);
    let mut server = match Server::restore(state, memory.lend()) {
        Ok(server) => server,
        Err(why) => panic!("{why}"),
    };
    assert!(snapshot(&server) == *state, "what is restored is what was saved");
    let result = act(&mut server);
    *state = snapshot(&server);
    result
}
