//! Links of a star: nodes connect to one head, and find it by a ticket that the owner of both hands out.
//!
//! For hosts that do not start their nodes, and cannot pass each one a secret of its own, as [`Overlay`](crate::Overlay)
//! does: all nodes of a star have the same secret. A message is for the neighbour alone. There are no heartbeats: the system
//! detects a lost machine.

use std::fmt;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use hydrant_noise::KeyExchange;
use hydrant_reactor::Error;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use crate::error::LinkError;
use crate::link::{
    INITIATION_LEN, Initiator, Link, LinkIdentity, OverlayId, RESPONSE_LEN, Secret, claimed_node,
    configure_socket, respond,
};

/// Number of the head.
const HEAD: u32 = 0;
/// Time in milliseconds after which the system ends a link to a lost machine.
const LOST_TIMEOUT: u64 = 20_000;
/// Bytes of a ticket.
const TICKET_LEN: usize = 16 + 32;

/// Secret and identity of a star. Its text is secret.
#[derive(Clone)]
pub struct Ticket {
    overlay: OverlayId,
    secret: Secret,
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ticket")
    }
}

impl Ticket {
    /// Makes a ticket.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn random() -> Result<Ticket, Error> {
        Ok(Ticket { overlay: OverlayId::random()?, secret: Secret::random()? })
    }

    /// Returns the identity of the star, which is not secret: 32 hexadecimal digits.
    pub fn id(&self) -> String {
        self.overlay.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Returns the text for the nodes: 96 hexadecimal digits.
    pub fn to_text(&self) -> String {
        let bytes = self.overlay.as_bytes().iter().chain(self.secret.as_bytes());
        bytes.map(|byte| format!("{byte:02x}")).collect()
    }

    /// Reads a text.
    pub fn from_text(text: &str) -> Option<Ticket> {
        let mut bytes = [0; TICKET_LEN];
        if text.len() != 2 * TICKET_LEN || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()?;
        }
        let (overlay, secret) = bytes.split_first_chunk()?;
        let secret = secret.first_chunk()?;
        Some(Ticket { overlay: OverlayId::of(*overlay), secret: Secret::of(*secret) })
    }

    fn identity(&self, node: u32) -> LinkIdentity {
        LinkIdentity { overlay: self.overlay, parent: HEAD, child: node, exchange: KeyExchange::PskDhe }
    }
}

/// Connects a node to the head. Waits at most `timeout` for each step of the handshake. `now` is in milliseconds of the
/// caller's clock.
///
/// # Errors
/// The head cannot be reached, or does not have the ticket.
pub fn connect(
    addr: SocketAddr,
    ticket: &Ticket,
    node: u32,
    timeout: Duration,
    now: u64,
) -> Result<Link, LinkError> {
    let system = |error: std::io::Error| LinkError::Io(Errno::from_io_error(&error).unwrap_or(Errno::IO));
    let mut stream = TcpStream::connect_timeout(&addr, timeout).map_err(system)?;
    configure_socket(&stream, LOST_TIMEOUT)?;
    stream.set_read_timeout(Some(timeout)).map_err(system)?;
    let (initiator, initiation) = Initiator::new(&ticket.identity(node), &ticket.secret);
    stream.write_all(&initiation).map_err(system)?;
    let mut response = [0; RESPONSE_LEN];
    stream.read_exact(&mut response).map_err(|error| match error.kind() {
        std::io::ErrorKind::UnexpectedEof => LinkError::Closed,
        _ => system(error),
    })?;
    let noise = initiator.finish(&response)?;
    stream.set_nonblocking(true).map_err(system)?;
    Ok(Link::new(stream.into(), noise, now))
}

/// Accepted connection at the head before its handshake.
#[derive(Debug)]
pub struct Candidate {
    fd: OwnedFd,
    initiation: [u8; INITIATION_LEN],
    len: usize,
}

impl Candidate {
    /// Takes an accepted connection, which does not block.
    ///
    /// # Errors
    /// `fd` is no TCP connection.
    pub fn new(fd: OwnedFd) -> Result<Candidate, LinkError> {
        configure_socket(&fd, LOST_TIMEOUT)?;
        Ok(Candidate { fd, initiation: [0; INITIATION_LEN], len: 0 })
    }

    /// The socket.
    pub fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// Reads once. Returns whether the handshake can be [answered](Candidate::answer).
    ///
    /// # Errors
    /// The connection was closed or failed.
    pub fn receive(&mut self) -> Result<bool, LinkError> {
        match recv(&self.fd, &mut self.initiation[self.len..], RecvFlags::DONTWAIT) {
            Ok((0, _)) => Err(LinkError::Closed),
            Ok((len, _)) => {
                self.len += len;
                Ok(self.len == INITIATION_LEN)
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Answers a complete handshake. Returns the node and its link. Only the first message of the link proves that the
    /// node has the ticket.
    ///
    /// # Errors
    /// The other end does not have the ticket.
    pub fn answer(self, ticket: &Ticket, now: u64) -> Result<(u32, Link), LinkError> {
        let node = claimed_node(&self.initiation).ok_or(LinkError::Forged)?;
        let (noise, response) = respond(&ticket.identity(node), &ticket.secret, &self.initiation)?;
        // An empty socket buffer takes the few bytes at once.
        let sent = rustix::net::send(self.fd.as_fd(), &response, hydrant_reactor::NO_SIGPIPE)?;
        if sent != response.len() {
            return Err(LinkError::Closed);
        }
        Ok((node, Link::new(self.fd, noise, now)))
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;
    use crate::link::{Channel, RECEIVE_BUFFER_MIN};

    const PATIENCE: Duration = Duration::from_secs(60);

    /// Accepts one connection and answers its handshake.
    fn admit(listener: &TcpListener, ticket: &Ticket) -> Result<(u32, Link), LinkError> {
        let (stream, _) = listener.accept().unwrap();
        let mut candidate = Candidate::new(stream.into()).unwrap();
        while !candidate.receive()? {
            thread::yield_now();
        }
        candidate.answer(ticket, 0)
    }

    #[test]
    fn a_node_with_the_ticket_is_admitted() {
        let ticket = Ticket::random().unwrap();
        let text = ticket.to_text();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let node = thread::spawn(move || {
            let ticket = Ticket::from_text(&text).unwrap();
            let mut link = connect(addr, &ticket, 3, PATIENCE, 0).unwrap();
            link.send(0, Channel::Control, b"ready").unwrap();
            link.flush().unwrap();
            link
        });
        let (number, mut link) = admit(&listener, &ticket).unwrap();
        let _held = node.join().unwrap();
        let (mut buffer, mut got) = (vec![0; RECEIVE_BUFFER_MIN], Vec::new());
        while got.is_empty() {
            link.receive(0, &mut buffer, |channel, message| got.push((channel, message))).unwrap();
        }
        assert_eq!((number, got), (3, vec![(Channel::Control, b"ready".to_vec())]));
    }

    #[test]
    fn a_node_with_another_ticket_is_refused() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let node = thread::spawn(move || connect(addr, &Ticket::random().unwrap(), 3, PATIENCE, 0).err());
        assert!(matches!(admit(&listener, &Ticket::random().unwrap()), Err(LinkError::Forged)));
        assert!(node.join().unwrap().is_some());
    }

    #[test]
    fn texts_that_are_no_tickets_are_refused() {
        let text = Ticket::random().unwrap().to_text();
        assert!(Ticket::from_text(&text).is_some_and(|ticket| ticket.to_text() == text));
        for wrong in ["", &text[1..], &text.replace(&text[..1], "g"), &format!("é{}", &text[2..])] {
            assert!(Ticket::from_text(wrong).is_none(), "{wrong}");
        }
    }
}
