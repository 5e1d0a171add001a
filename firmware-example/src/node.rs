//! A node of a run on several hosts: the requests of its host, and the reports to it.
//!
//! [`Request::Node`](hydrant_core::manage::Request::Node) turns a management connection into that of a node. It then carries the
//! inputs and outputs of the server, among them the messages of other nodes, until the host closes it.

use hydrant_core::manage::{BadRecord, decode};
use hydrant_core::server::remote::{NODE_PREFIX, NodeReport, NodeRequest, is_of_host, next_node, record_max};
use hydrant_core::server::{FenceMode, Input, JobSpec};
use hydrant_core::{Fault, JobId};
use postcard::ser_flavors::{Flavor, Size};
use postcard::serialize_with_flavor;
use smoltcp::iface::SocketHandle;
use smoltcp::socket::tcp;

use crate::management::channel::{Channel, FRONT};
use crate::memory;
use crate::net::Net;
use crate::noise::{Forged, TAG};
use crate::serve::Serve;

/// Bytes of a report that are sent at once, in a frame if the board has a secret.
const CHUNK: usize = 256;

/// Connection of the host of a node.
pub(crate) struct Link {
    handle: SocketHandle,
    channel: Channel,
    /// The host does not read.
    stalled: bool,
}

/// Reason for the end of a node.
#[derive(defmt::Format)]
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

impl Link {
    pub(crate) const fn new(handle: SocketHandle, channel: Channel) -> Link {
        Link { handle, channel, stalled: false }
    }

    /// The socket.
    pub(crate) const fn handle(&self) -> SocketHandle {
        self.handle
    }

    /// Sends a report, in parts. Waits until the host has read.
    #[inline(never)]
    pub(crate) fn send(&mut self, net: &mut Net, report: &NodeReport<'_>) {
        if self.stalled {
            return;
        }
        // A record is shorter than 4 GiB.
        let length = serialize_with_flavor(report, Size::default()).map(|size| size as u32);
        let mut sink = Sink { net, link: self, chunk: [0; FRONT + CHUNK + TAG], len: 0 };
        let sent = length
            .and_then(|length| sink.try_extend(&length.to_le_bytes()))
            .and_then(|()| serialize_with_flavor(report, sink));
        self.stalled = sent.is_err();
    }
}

/// Encoder into a connection.
struct Sink<'n> {
    net: &'n mut Net,
    link: &'n mut Link,
    chunk: [u8; FRONT + CHUNK + TAG],
    len: usize,
}

impl Sink<'_> {
    fn flush(&mut self) -> postcard::Result<()> {
        let bytes = self.link.channel.seal(&mut self.chunk, self.len);
        let bytes = bytes.map_err(|Forged| postcard::Error::SerializeBufferFull)?;
        self.len = 0;
        if self.net.send_all(self.link.handle, bytes) {
            Ok(())
        } else {
            Err(postcard::Error::SerializeBufferFull)
        }
    }
}

impl Flavor for Sink<'_> {
    type Output = ();

    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        self.try_extend(&[byte])
    }

    fn try_extend(&mut self, mut bytes: &[u8]) -> postcard::Result<()> {
        while !bytes.is_empty() {
            if self.len == CHUNK {
                self.flush()?;
            }
            let (part, rest) = bytes.split_at(bytes.len().min(CHUNK - self.len));
            self.chunk[FRONT + self.len..][..part.len()].copy_from_slice(part);
            self.len += part.len();
            bytes = rest;
        }
        Ok(())
    }

    fn finalize(mut self) -> postcard::Result<()> {
        self.flush()
    }
}

/// Received requests of the host of a node.
pub(crate) struct Requests {
    buf: &'static mut [u8],
    len: usize,
    /// Number of requests so far.
    count: u32,
}

impl Requests {
    pub(crate) fn new(buf: &'static mut [u8]) -> Requests {
        Requests { buf, len: 0, count: 0 }
    }

    /// Forgets the requests of an earlier node.
    pub(crate) fn clear(&mut self) {
        (self.len, self.count) = (0, 0);
    }

    /// Carries out the requests that have arrived, while there is room for their outputs.
    #[inline(never)]
    pub(crate) fn run(&mut self, net: &mut Net, serve: &mut Serve<'_>) -> Result<(), End> {
        let max = record_max(serve.server().limits());
        loop {
            let link = serve.node.as_mut().ok_or(End::Closed)?;
            if link.stalled {
                return Err(End::Stalled);
            }
            let socket = net.sockets.get_mut::<tcp::Socket<'_>>(link.handle);
            let received = link.channel.receive_part(socket, self.buf, self.len)?;
            if received == 0 && self.len == 0 && !socket.may_recv() {
                return Err(End::Closed);
            }
            let is_over = received == 0 && !socket.may_recv();
            self.len += received;
            let mut taken = 0;
            while serve.is_free()
                && let Some((record, whole)) = next_node(&self.buf[taken..self.len], max)?
            {
                carry_out(net, serve, self.count, &decode(record)?)?;
                self.count = self.count.wrapping_add(1);
                taken += whole;
            }
            self.buf.copy_within(taken..self.len, 0);
            self.len -= taken;
            if received == 0 {
                // The rest of a closed connection is no request, unless it waits for room.
                return if is_over && taken == 0 && serve.is_free() { Err(End::Closed) } else { Ok(()) };
            }
        }
    }
}

/// Carries out request `number` and replies to it.
fn carry_out(
    net: &mut Net,
    serve: &mut Serve<'_>,
    number: u32,
    request: &NodeRequest<'_>,
) -> Result<(), End> {
    let result = match *request {
        NodeRequest::Sync { number } => {
            serve.report(net, &NodeReport::Synced { number });
            return Ok(());
        }
        NodeRequest::Serve { job } => match serve.accept_clients(job) {
            Ok(()) => {
                let port = serve.port_of(job);
                serve.report(net, &NodeReport::Serving { job, port });
                return Ok(());
            }
            Err(_) => Err(Fault::NoSuchJob),
        },
        NodeRequest::Read { .. } => {
            net.poll();
            serve.run(net);
            Ok(())
        }
        NodeRequest::Input(ref input) if !is_of_host(input) => return Err(End::Malformed),
        // The flash of the small board has no room for them. Other nodes would ask for pairs.
        NodeRequest::Input(Input::RegisterJob(spec)) if is_lazy(&spec, serve) => {
            defmt::warn!("a job with lazy fences is refused");
            Err(Fault::BadAttribute)
        }
        NodeRequest::Input(Input::RegisterJob(spec)) => serve.register(net, spec, true),
        NodeRequest::Input(Input::DeregisterJob { job }) => deregister(net, serve, job),
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

/// Returns whether the fences of a job are lazy on other nodes.
fn is_lazy(spec: &JobSpec<'_>, serve: &Serve<'_>) -> bool {
    match spec.fence {
        FenceMode::Collect => false,
        FenceMode::Lazy => true,
        FenceMode::Auto => serve.is_large,
    }
}

fn deregister(net: &mut Net, serve: &mut Serve<'_>, job: JobId) -> Result<(), Fault> {
    serve.try_handle(net, Input::DeregisterJob { job })?;
    serve.job = None;
    Ok(())
}

/// Length of the buffer for requests: one record, and a frame behind an incomplete one.
pub(crate) const BUFFER: usize =
    if memory::NODES { NODE_PREFIX + record_max(&memory::LIMITS) + memory::NODE_FRAME } else { 0 };
