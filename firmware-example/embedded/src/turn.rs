//! One turn of a board, after the network has changed.

use hydrant_core::manage::OpenNode;

use crate::board::{Board, Sizes};
use crate::connection::Connection;
use crate::management::Management;
use crate::node::Requests;
use crate::serve::Serve;

/// What is next.
pub enum Turn<B: Board> {
    /// To wait, unless there is `more` to do at once.
    Wait {
        /// Deferred input can be handled.
        more: bool,
    },
    /// Another server is to be made, with [`Serve::new`]: of this node, or of the board itself.
    Serve(Option<(OpenNode, Connection<B>)>),
}

/// Accepts hosts and clients and carries out their requests. Sockets listen before the network is polled: it would refuse a
/// connection that comes first. `own` is the name and the size of a job that the board serves while it serves no node.
///
/// # Errors
/// The own job is larger than the board's tables.
pub fn turn<B: Board>(
    net: &mut B::Net,
    serve: &mut Serve<'_, B>,
    requests: &mut Requests,
    management: &mut Management<'_, B>,
    own: Option<(&str, u32)>,
) -> Result<Turn<B>, hydrant_core::Fault> {
    management.run(net, serve);
    if let Some(node) = management.next_node(serve) {
        info!("node {=u32} of {=u32} is served", node.0.node, node.0.nodes);
        return Ok(Turn::Serve(Some(node)));
    }
    let more = if let Some(handle) = serve.node.as_ref().map(Connection::handle) {
        let more = serve.run(net);
        if let Err(end) = requests.run(net, serve) {
            info!("the node has ended: {}", end);
            management.end_node(net, handle);
            if let Some(links) = serve.links.as_ref().filter(|_| B::BOARD_LINKS > 0) {
                info!("{=u32} messages sent to other boards, {=u32} by its host", links.sent, links.by_host);
                links.handles().for_each(|handle| management.end_node(net, handle));
            }
            return Ok(Turn::Serve(None));
        }
        if B::BOARD_LINKS > 0 {
            serve.run_links(net);
        }
        more
    } else {
        if let Some((name, size)) = own {
            serve.keep_job(net, name, size)?;
        }
        serve.run(net)
    };
    Ok(Turn::Wait { more })
}

/// Returns when the next turn is due at the latest, in milliseconds of [`Board::millis`].
pub fn wake_at<B: Board>(net: &B::Net, serve: &Serve<'_, B>, management: &Management<'_, B>) -> Option<u64> {
    [serve.poll_at(net), management.poll_at()].into_iter().flatten().min()
}
