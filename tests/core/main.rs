//! The protocol core in this process. Starts no other process.

/// The exchanges in `docs/protocol.md`.
mod documents;
/// Memory that the core needs, and each limit when it is used up.
mod limits;
/// Random sequences of inputs against a simple model of the core.
mod model;
/// Captured exchanges of PMIx clients, replayed.
mod pmix;
/// Captured exchanges of real clients, replayed.
mod replay;
/// Division of messages into reads, for both replays.
mod split;
