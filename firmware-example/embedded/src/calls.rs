//! Calls of the host of a node that has a spare: the host keeps the connections of clients and the time, and another server
//! that gets the same inputs has the same outputs.

use hydrant_core::manage::{BadRecord, decode};
use hydrant_core::server::call::{Call, Callee, call_max};
use hydrant_core::server::remote::request_max;

use crate::board::{Board, Sizes};
use crate::serve::Serve;

/// State of the calls of a node.
pub(crate) struct Calls {
    callee: Callee,
    /// Room for a return.
    buf: &'static mut [u8],
}

impl Calls {
    pub(crate) fn new(buf: &'static mut [u8]) -> Calls {
        Calls { callee: Callee::default(), buf }
    }

    /// Forgets the calls of an earlier node.
    pub(crate) fn clear(&mut self) {
        self.callee = Callee::default();
    }

    /// Carries out a call, and sends its return.
    pub(crate) fn carry_out<B: Board>(
        &mut self,
        net: &mut B::Net,
        serve: &mut Serve<'_, B>,
        record: &[u8],
    ) -> Result<(), BadRecord> {
        let call = decode::<Call<'_>>(record)?;
        serve.call(net, &mut self.callee, &call, self.buf)
    }
}

/// Returns the longest record of the host of a node.
pub(crate) fn longest_record<B: Board>(serve: &Serve<'_, B>) -> usize {
    let limits = serve.server().limits();
    if serve.is_called() { call_max(limits, B::CALL_BYTES) } else { request_max(limits) }
}
