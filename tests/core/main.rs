//! The protocol core in this process. Starts no other process.

/// The core against a simple model of it, in random sequences.
mod agreement;
/// The exchanges in `docs/protocol.md`.
mod documents;
/// Memory that the core needs, and each limit when it is used up.
mod limits;
/// The model, and the sequences of inputs that it plays to the core.
mod model;
/// Captured exchanges of PMIx clients, replayed.
mod pmix;
/// Captured exchanges of real clients, replayed.
mod replay;
/// Division of messages into reads, for both replays.
mod split;
