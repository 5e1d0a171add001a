//! TCP host on std: serves a job of two ranks that another program starts. Any PMI-1 or PMI-2 client can connect.
//!
//! ```text
//! cargo run -p hydrant-core --example tcp
//! PMI_PORT=127.0.0.1:… PMI_ID=0 ./program &
//! PMI_PORT=127.0.0.1:… PMI_ID=1 ./program
//! ```

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};
use std::{collections::BTreeMap, error::Error, thread};

use hydrant_core::limits::MESSAGE_MAX;
use hydrant_core::storage::FixedStorage;
use hydrant_core::trace::Exit;
use hydrant_core::{ConnId, Fault, Inbox, Input, JobId, JobSpec};
use hydrant_core::{Limits, Output, Rank, Server, Time, fixed_storage};

const LIMITS: Limits =
    Limits { jobs: 1, ranks: 2, conns: 8, keys: 256, kvs_bytes: 65_536, groups: 4, ..Limits::NONE };
const JOB: JobId = JobId(0);

/// Reports of the threads that wait for sockets.
enum Event {
    Opened(TcpStream),
    Bytes(ConnId, Vec<u8>),
    Closed(ConnId),
}

struct Client {
    stream: TcpStream,
    inbox: Inbox<Vec<u8>>,
    rank: Option<Rank>,
}

struct Host<'s> {
    server: Server<'s>,
    clients: BTreeMap<ConnId, Client>,
    started: Instant,
    exited: u32,
    events: Sender<Event>,
}

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("PMI_PORT={}", listener.local_addr()?);
    serve(listener)
}

/// Serves one job to its end.
pub(crate) fn serve(listener: TcpListener) -> Result<(), Box<dyn Error>> {
    let mut storage: Box<fixed_storage!(LIMITS)> = Box::new(FixedStorage::new());
    let mut server = Server::new(LIMITS, storage.lend(), 1)?;
    server.handle(Time(0), Input::RegisterJob(JobSpec::new(JOB, "job_0", LIMITS.ranks)))?;
    // MPICH reads from it which ranks share a node: here all of them.
    let (key, value) = (&b"PMI_process_mapping"[..], &b"(vector,(0,1,2))"[..]);
    server.handle(Time(0), Input::Attr { job: JOB, key, value })?;
    let (events, incoming) = channel();
    let opened = events.clone();
    thread::spawn(move || listener.incoming().flatten().try_for_each(|it| opened.send(Event::Opened(it))));
    let mut host = Host { server, clients: BTreeMap::new(), started: Instant::now(), exited: 0, events };
    while host.exited < LIMITS.ranks {
        let millis = host.server.poll_at().map_or(60_000, |at| at.0.saturating_sub(host.now().0));
        match incoming.recv_timeout(Duration::from_millis(millis)) {
            Ok(event) => host.handle_event(event)?,
            // An early timeout does no harm.
            Err(_) => drop(host.server.handle(host.now(), Input::Timeout)?),
        }
        host.drain()?;
    }
    Ok(())
}

impl Host<'_> {
    fn now(&self) -> Time {
        Time(self.started.elapsed().as_millis() as u64)
    }

    fn handle_event(&mut self, event: Event) -> Result<(), Box<dyn Error>> {
        let now = self.now();
        match event {
            Event::Opened(stream) => {
                let free = (0..LIMITS.conns).map(ConnId).find(|conn| !self.clients.contains_key(conn));
                let Some(conn) = free else { return Ok(()) };
                self.server.handle(now, Input::Opened { conn, job: JOB, rank: None })?;
                let (mut reader, events) = (stream.try_clone()?, self.events.clone());
                thread::spawn(move || {
                    let mut buffer = [0; 4096];
                    while let Ok(len @ 1..) = reader.read(&mut buffer) {
                        let _ = events.send(Event::Bytes(conn, buffer[..len].to_vec()));
                    }
                    let _ = events.send(Event::Closed(conn));
                });
                let inbox = Inbox::new(vec![0; MESSAGE_MAX as usize]);
                self.clients.insert(conn, Client { stream, inbox, rank: None });
            }
            Event::Bytes(conn, bytes) => {
                let Some(client) = self.clients.get_mut(&conn) else { return Ok(()) };
                match client.inbox.space().get_mut(..bytes.len()) {
                    Some(space) => space.copy_from_slice(&bytes),
                    // The client sends requests without reading replies.
                    None => return Ok(client.stream.shutdown(Shutdown::Both)?),
                }
                client.inbox.receive(conn, bytes.len(), |input| self.server.handle(now, input))?;
            }
            Event::Closed(conn) => {
                let rank = self.clients.remove(&conn).and_then(|client| client.rank);
                self.server.handle(now, Input::Closed { conn })?;
                // The host did not start the process, so the connection stands for it.
                let Some(rank) = rank else { return Ok(()) };
                let finalized = self.server.rank_report(JOB, rank).is_some_and(|report| report.finalized);
                let exit = Exit::of_connection(finalized);
                self.server.handle(now, Input::Exited { job: JOB, rank, exit })?;
                self.exited += 1;
            }
        }
        Ok(())
    }

    /// Carries out what the server asks for.
    fn drain(&mut self) -> Result<(), Fault> {
        let (mut buffer, now) = ([0; LIMITS.output_max()], self.now());
        while let Some(output) = self.server.poll(&mut buffer)? {
            match output {
                Output::Bytes { conn, bytes } => {
                    let Some(client) = self.clients.get_mut(&conn) else { continue };
                    // It waits for slow readers, unlike a host that uses `Input::Blocked`.
                    let _ = client.stream.write_all(bytes);
                    client.inbox.resume(conn, |input| self.server.handle(now, input))?;
                }
                Output::Joined { conn, rank, .. } => {
                    self.clients.entry(conn).and_modify(|client| client.rank = Some(rank));
                }
                Output::Close { conn, why } => {
                    eprintln!("connection {conn} is closed: {why}");
                    self.clients.get(&conn).map(|client| client.stream.shutdown(Shutdown::Both));
                }
                Output::AbortJob { cause, message, .. } => {
                    eprintln!("the job ends: {cause} {message}");
                    self.exited = LIMITS.ranks;
                }
                _ => {}
            }
        }
        Ok(())
    }
}
