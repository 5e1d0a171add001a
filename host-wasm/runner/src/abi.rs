//! The records that pass between plugin and host, as `docs/wasm-abi.md` describes them.

use hydrant_core::server::Consumed;
use hydrant_core::{Fault, Input, Limits, Output, Time};
use serde::{Deserialize, Serialize};

/// The version of the ABI that is spoken.
pub const ABI: u32 = 1;

#[derive(Serialize)]
pub(crate) struct Reserve {
    pub(crate) limits: Limits,
    pub(crate) seed: u32,
}

#[derive(Serialize)]
pub(crate) struct Tell<'a> {
    pub(crate) now: Time,
    pub(crate) input: Input<'a>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub(crate) enum Refused {
    Fault(Fault),
    Record,
    Order,
    Memory(u64),
}

#[derive(Deserialize)]
pub(crate) struct Begun {
    pub(crate) wake: Option<Time>,
    pub(crate) more: bool,
}

#[derive(Deserialize)]
pub(crate) struct Handled {
    pub(crate) consumed: Consumed,
    pub(crate) wake: Option<Time>,
    pub(crate) more: bool,
}

#[derive(Deserialize)]
pub(crate) struct Said<'b> {
    #[serde(borrow)]
    pub(crate) output: Output<'b>,
    pub(crate) more: bool,
}

#[derive(Clone, Copy, Deserialize)]
pub(crate) struct Span {
    pub(crate) address: u32,
    pub(crate) len: u32,
}
