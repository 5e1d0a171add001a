//! Connection with one request at a time.

use hydrant_wire::client::{Client, Identity, Start};
use hydrant_wire::limits::MESSAGE_BUFFER;
use hydrant_wire::{Command, Protocol, Reply, Text};

use crate::text::refusal;
use crate::{Error, Socket, Transport};

/// A PMI-1 or PMI-2 connection after its handshake. One request is outstanding at a time.
pub struct Connection<T = Socket> {
    pub(crate) transport: T,
    pub(crate) client: Client,
    /// Received bytes that no reply has consumed.
    pub(crate) input: Vec<u8>,
    /// Encoded request.
    pub(crate) output: Box<[u8]>,
    identity: Identity,
    failed: bool,
}

impl<T: Transport> Connection<T> {
    /// Performs the handshake over a connected transport. `jobid` (`PMI_JOBID`) is sent if the protocol has a field
    /// for it.
    ///
    /// # Errors
    /// [`Error::Refused`] if the server does not accept the process, [`Error::Protocol`] with
    /// [`Version`](hydrant_wire::client::Error::Version) if it has another version of PMI, and errors of the transport.
    pub fn open(
        transport: T,
        protocol: Protocol,
        start: Start,
        jobid: Option<&str>,
    ) -> Result<Connection<T>, Error> {
        let mut client = Client::new(protocol, start);
        let mut input = Vec::new();
        let mut output = vec![0; MESSAGE_BUFFER].into_boxed_slice();
        while let Some(bytes) = client.handshake_to(jobid.map(Text::from), &mut output)? {
            transport.send(bytes)?;
            receive(&transport, &mut client, &mut input, |_| Ok(()))?;
        }
        let identity = client.identity().ok_or(Error::Protocol(hydrant_wire::client::Error::OutOfOrder))?;
        Ok(Connection { transport, client, input, output, identity, failed: false })
    }

    /// Returns rank, size and program number of this process.
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// Returns the subversion of the server's PMI. From PMI-1.2 on, a fence may name a group.
    pub fn subversion(&self) -> u32 {
        self.client.subversion()
    }

    /// Whether no error has ended the connection.
    pub fn is_usable(&self) -> bool {
        !self.failed
    }

    /// Sends a request, waits for the reply and returns what `read` takes from it. `read` returns `None` for a reply
    /// that does not belong to the command.
    ///
    /// # Errors
    /// All except those of the environment and of connecting.
    pub fn request<R>(
        &mut self,
        command: &Command<'_>,
        read: impl FnOnce(&Reply<'_>) -> Option<R>,
    ) -> Result<R, Error> {
        let op = command.op();
        // An error of encoding comes before anything is sent.
        let bytes = self.client.request(command, &mut self.output)?;
        let result = self.transport.send(bytes).and_then(|()| {
            receive(&self.transport, &mut self.client, &mut self.input, |reply| {
                read(reply).ok_or(Error::UnexpectedReply(op))
            })
        });
        self.failed |= !matches!(result, Ok(_) | Err(Error::Refused { .. }));
        result
    }

    /// Sends a request that has no result, and waits until the server has confirmed it.
    ///
    /// # Errors
    /// As [`Connection::request`].
    pub fn execute(&mut self, command: &Command<'_>) -> Result<(), Error> {
        self.request(command, |_| Some(()))
    }

    /// Sends a request that has no reply: [`Command::Abort`].
    ///
    /// # Errors
    /// As [`Connection::request`].
    pub fn send(&mut self, command: &Command<'_>) -> Result<(), Error> {
        let bytes = self.client.request(command, &mut self.output)?;
        self.transport.send(bytes)
    }
}

/// Waits for a whole reply and reads it. A refusal is an error.
fn receive<R>(
    transport: &impl Transport,
    client: &mut Client,
    input: &mut Vec<u8>,
    read: impl FnOnce(&Reply<'_>) -> Result<R, Error>,
) -> Result<R, Error> {
    loop {
        if let Some(received) = client.receive(input)? {
            let result = refusal(&received.reply).map_or_else(|| read(&received.reply), Err);
            let consumed = received.consumed as usize;
            input.drain(..consumed);
            return result;
        }
        transport.receive(input)?;
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::net::UnixStream;
    use std::thread::{self, JoinHandle};

    use super::*;
    use crate::to_string;

    /// A PMI-1 server that expects and sends these lines.
    fn server<const N: usize>(lines: [(&'static str, &'static str); N]) -> (Socket, JoinHandle<()>) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let server = thread::spawn(move || {
            let mut requests = BufReader::new(theirs.try_clone().unwrap()).lines();
            for (request, reply) in lines {
                assert_eq!(requests.next().unwrap().unwrap(), request);
                (&theirs).write_all(reply.as_bytes()).unwrap();
            }
        });
        (ours.into(), server)
    }

    const INIT: (&str, &str) = (
        "cmd=init pmi_version=1 pmi_subversion=1",
        "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1\n",
    );
    const START: Start = Start::Fd { rank: 1, size: 2 };

    #[test]
    fn a_refused_request_leaves_the_connection_usable() {
        let (socket, server) = server([
            INIT,
            ("cmd=put kvsname=k key=a value=b", "cmd=put_result rc=-1 msg=full\n"),
            ("cmd=get kvsname=k key=a", "cmd=get_result rc=0 msg=success value=b\n"),
        ]);
        let mut connection = Connection::open(socket, Protocol::V1, START, None).unwrap();
        assert_eq!((connection.identity().rank, connection.identity().size), (1, 2));
        let put = Command::Put { kvs: Some("k".into()), key: "a".into(), value: "b".into() };
        let error = connection.execute(&put).unwrap_err();
        assert!(matches!(error, Error::Refused { rc: -1, ref text, .. } if text == "full"), "{error}");
        assert!(connection.is_usable());
        let get = Command::Get { kvs: Some("k".into()), key: "a".into(), source: None };
        let value = connection.request(&get, |reply| match reply {
            Reply::Found(_, value) => Some(to_string(value)),
            _ => None,
        });
        assert_eq!(value.unwrap(), "b");
        server.join().unwrap();
    }

    #[test]
    fn a_reply_to_something_else_ends_the_connection() {
        let (socket, server) = server([INIT, ("cmd=barrier_in", "cmd=put_result rc=0\n")]);
        let mut connection = Connection::open(socket, Protocol::V1, START, None).unwrap();
        let error = connection.execute(&Command::Fence { group: None }).unwrap_err();
        assert!(matches!(error, Error::Protocol(_)), "{error}");
        assert!(!connection.is_usable());
        server.join().unwrap();
    }

    #[test]
    fn another_version_is_an_error_of_the_handshake() {
        let reply = "cmd=response_to_init rc=0 pmi_version=2 pmi_subversion=0\n";
        let (socket, server) = server([(INIT.0, reply)]);
        let error = Connection::open(socket, Protocol::V1, START, None).err().unwrap();
        assert!(matches!(error, Error::Protocol(hydrant_wire::client::Error::Version(2))), "{error}");
        server.join().unwrap();
    }
}
