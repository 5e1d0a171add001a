//! Runs an MPI program on two nodes, whose servers exchange messages over TCP:
//!
//! ```text
//! two_nodes 0 192.0.2.1:4000 RANKS PROGRAM [ARGUMENT...]   on the first node, which listens
//! two_nodes 1 192.0.2.1:4000 RANKS PROGRAM [ARGUMENT...]   on the second one, which connects
//! ```
//!
//! starts RANKS ranks on each. A message of the link is its length in four bytes, and its bytes. An empty one says that all ranks
//! of a node have ended. The example has no encryption, and trusts whoever connects.

use std::error::Error;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::process::{Child, Command};
use std::{env, fs};

use hydrant_host::{Event, Exit, Host, Input, Job, Output, Rank, Settings, Speaks};
use rustix::event::{PollFd, PollFlags, poll};

/// Bytes that may wait for the link. The server has more for the other node when half of them are sent.
const QUEUE_MAX: usize = 1 << 20;

/// Link to the other node.
struct Link {
    stream: TcpStream,
    unsent: Vec<u8>,
    received: Vec<u8>,
}

impl Link {
    fn send(&mut self, message: &[u8]) {
        self.unsent.extend((message.len() as u32).to_le_bytes());
        self.unsent.extend(message);
    }

    fn next(&mut self) -> Option<Vec<u8>> {
        let len = u32::from_le_bytes(*self.received.first_chunk()?) as usize;
        let message = self.received.get(4..4 + len)?.to_vec();
        self.received.drain(..4 + len);
        Some(message)
    }

    /// Waits for the link or the host, and writes and reads what the socket takes and has. Returns whether it is open.
    fn exchange(&mut self, host: &Host) -> Result<bool, Box<dyn Error>> {
        let write = if self.unsent.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
        poll(
            &mut [PollFd::new(host, PollFlags::IN), PollFd::new(&self.stream, PollFlags::IN | write)],
            None,
        )?;
        match self.stream.write(&self.unsent) {
            Ok(written) => drop(self.unsent.drain(..written)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.into()),
        }
        let mut buffer = [0; 1 << 16];
        match self.stream.read(&mut buffer) {
            Ok(0) => return Ok(false),
            Ok(read) => self.received.extend(&buffer[..read]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.into()),
        }
        Ok(true)
    }

    /// Ends a link whose last message is sent. A socket that is closed before all is read would lose it.
    fn close(mut self) -> io::Result<()> {
        self.stream.shutdown(Shutdown::Write)?;
        self.stream.set_nonblocking(false)?;
        io::copy(&mut self.stream, &mut io::sink()).map(drop)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut children = Vec::new();
    let result = run(&mut children);
    if result.is_err() {
        // The other node ends its ranks when the link is closed.
        children.iter_mut().for_each(|child| drop(child.kill()));
    }
    children.iter_mut().for_each(|child| drop(child.wait()));
    result
}

fn run(children: &mut Vec<Child>) -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = env::args().collect();
    let [_, node, address, ranks, program, args @ ..] = &args[..] else {
        return Err("usage: two_nodes 0|1 ADDRESS RANKS PROGRAM [ARGUMENT...]".into());
    };
    let (node, ranks): (u32, u32) = (node.parse()?, ranks.parse()?);
    let other = 1 - node;
    let stream = if node == 0 {
        let listener = TcpListener::bind(address)?;
        eprintln!("listening at {}", listener.local_addr()?);
        listener.accept()?.0
    } else {
        TcpStream::connect(address)?
    };
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    let mut link = Link { stream, unsent: Vec::new(), received: Vec::new() };
    let mut host = Host::open(&Settings::for_ranks(2 * ranks).on_node(node, 2))?;
    let job =
        host.register_job(&Job::new("app", 2 * ranks).node(0, "first", ranks).node(1, "second", ranks))?;
    host.listen(job, (Ipv4Addr::LOCALHOST, 0).into(), Speaks::Pmix)?;
    for rank in (node * ranks..(node + 1) * ranks).map(Rank) {
        let mut command = Command::new(program);
        host.setup_fork(job, rank, command.args(args))?;
        children.push(command.spawn()?);
        host.watch(job, rank, children[children.len() - 1].id())?;
    }
    let (mut running, mut blocked, mut over, mut failed) = (ranks, false, false, false);
    while running > 0 || !over || !link.unsent.is_empty() {
        if !link.exchange(&host)? && !over {
            return Err("the other node is lost".into());
        }
        while let Some(message) = link.next() {
            match message.is_empty() {
                true => over = true,
                false => host.peer(other, &message)?,
            }
        }
        if blocked && link.unsent.len() < QUEUE_MAX / 2 {
            blocked = false;
            host.input(Input::PeerWritable { node: other })?;
        }
        while let Some(event) = host.next_event()? {
            match event {
                Event::Output(Output::Peer { node, bytes }) => {
                    link.send(&bytes);
                    if link.unsent.len() > QUEUE_MAX && !blocked {
                        blocked = true;
                        host.input(Input::PeerBlocked { node })?;
                    }
                }
                Event::Exited { rank, exit, .. } => {
                    running -= 1;
                    if exit != Exit::Code(0) {
                        // As one piece, because ranks write there, too.
                        let line = format!("rank {rank} {exit}\n");
                        eprint!("{line}");
                        failed = true;
                    }
                    if running == 0 {
                        link.send(&[]);
                    }
                }
                Event::Output(Output::AbortJob { cause, .. }) => return Err(cause.to_string().into()),
                Event::Output(Output::KillRank { rank, .. }) => children[(rank.0 % ranks) as usize].kill()?,
                Event::Output(Output::RemoveFiles { paths, .. }) => {
                    String::from_utf8_lossy(&paths).split(',').for_each(|path| drop(fs::remove_file(path)));
                }
                _ => {}
            }
        }
    }
    link.close()?;
    if failed { Err("a rank has failed".into()) } else { Ok(()) }
}
