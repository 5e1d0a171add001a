//! The node of a run that the board serves: the requests of its host, and the reports to it.
//!
//! [`Request::Node`](hydrant_core::manage::Request::Node) turns a management connection into that of a node. It then carries the
//! inputs and outputs of the server, among them the messages of other nodes, until the host closes it. Of a node with a spare it
//! carries [calls](crate::calls) of the server instead.

use hydrant_core::Fault;
use hydrant_core::manage::{BadRecord, decode};
use hydrant_core::server::Input;
use hydrant_core::server::remote::{NodeReport, NodeRequest, is_of_host, next_node_record};

use crate::board::{Board, Sizes};
use crate::calls::{Calls, longest_record};
use crate::net::{Net, Socket};
use crate::noise::Forged;
use crate::serve::Serve;

/// Reason for the end of a node.
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub(crate) enum End {
    /// The host has closed the connection, or does not answer.
    Closed,
    /// The host does not read its reports.
    Stalled,
    /// A request is malformed, or longer than the limits of the run allow.
    Malformed,
    /// A frame was changed.
    Forged,
}

impl From<BadRecord> for End {
    fn from(_: BadRecord) -> End {
        End::Malformed
    }
}

impl From<Forged> for End {
    fn from(_: Forged) -> End {
        End::Forged
    }
}

/// Received requests of the host of a node.
pub struct Requests {
    buf: &'static mut [u8],
    len: usize,
    /// Number of requests so far.
    count: u32,
    calls: Calls,
}

impl Requests {
    /// `buf` has [`Sizes::REQUESTS`] bytes, and `returns` [`Sizes::RETURNS`].
    pub fn new(buf: &'static mut [u8], returns: &'static mut [u8]) -> Requests {
        Requests { buf, len: 0, count: 0, calls: Calls::new(returns) }
    }

    /// Forgets the requests of an earlier node.
    pub fn clear(&mut self) {
        (self.len, self.count) = (0, 0);
        self.calls.clear();
    }

    /// Carries out the requests that have arrived, while there is room for their outputs.
    #[inline(never)]
    pub(crate) fn run<B: Board>(&mut self, net: &mut B::Net, serve: &mut Serve<'_, B>) -> Result<(), End> {
        let max = longest_record(serve);
        loop {
            let connection = serve.node.as_mut().ok_or(End::Closed)?;
            if connection.is_stalled() {
                return Err(End::Stalled);
            }
            let received = connection.receive(net, self.buf, self.len)?;
            let socket = net.socket_mut(connection.handle());
            if received == 0 && self.len == 0 && !socket.may_recv() {
                return Err(End::Closed);
            }
            let is_over = received == 0 && !socket.may_recv();
            self.len += received;
            let mut taken = 0;
            while serve.is_free(net)
                && let Some((record, whole)) = next_node_record(&self.buf[taken..self.len], max)?
            {
                if serve.is_called() {
                    self.calls.carry_out(net, serve, record)?;
                } else {
                    carry_out(net, serve, self.count, &decode(record)?)?;
                }
                self.count = self.count.wrapping_add(1);
                taken += whole;
            }
            self.buf.copy_within(taken..self.len, 0);
            self.len -= taken;
            if received == 0 {
                // The rest of a closed connection is no request, unless it waits for room.
                return if is_over && taken == 0 && serve.is_free(net) { Err(End::Closed) } else { Ok(()) };
            }
        }
    }
}

/// Carries out request `number` and replies to it.
fn carry_out<B: Board>(
    net: &mut B::Net,
    serve: &mut Serve<'_, B>,
    number: u32,
    request: &NodeRequest<'_>,
) -> Result<(), End> {
    let result = match *request {
        NodeRequest::Sync { number } => {
            serve.report(net, &NodeReport::Synced { number });
            return Ok(());
        }
        NodeRequest::Serve { job } => {
            let served = serve.accept_clients(net, job);
            if served.is_ok() {
                let port = serve.port_of(job);
                serve.report(net, &NodeReport::Serving { job, port });
            }
            served
        }
        NodeRequest::Rank { job, rank } => {
            serve.report_rank(net, job, rank);
            Ok(())
        }
        NodeRequest::Read { .. } => {
            net.poll();
            serve.run(net);
            Ok(())
        }
        NodeRequest::Link { .. } | NodeRequest::Tree { .. } => {
            if B::BOARD_LINKS > 0 {
                serve.arrange_links(net, request)
            } else {
                Err(Fault::BadNode)
            }
        }
        NodeRequest::Input(ref input) if !is_of_host(input) => return Err(End::Malformed),
        NodeRequest::Input(Input::RegisterJob(spec)) => serve.register(net, spec),
        NodeRequest::Input(Input::DeregisterJob { job }) => serve.forget_job(net, job),
        NodeRequest::Input(input) => serve.try_handle(net, input).map(drop),
    };
    if let Err(why) = result {
        let peer = match *request {
            NodeRequest::Input(Input::Peer { node, .. }) => Some(node),
            _ => None,
        };
        serve.report(net, &NodeReport::Refused { request: number, peer, why });
    }
    Ok(())
}
