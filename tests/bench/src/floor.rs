//! Floor of the measurements: the system calls that every process manager needs.

use std::fs::File;
use std::io::{PipeReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use hydrant_core::wire::pmix::HEADER_LEN;
use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::io::retry_on_intr;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use crate::pmi::Pmi;
use crate::pmix;
use crate::rank::{Moments, value};

/// Namespace of the echo server's PMIx clients, as long as one of hydrant's.
const NAMESPACE: &str = "kvs_12345_0_123456789_vm";

/// Starts `count` processes with `posix_spawn`, then reaps them.
pub(crate) fn spawn_loop(count: u32, program: &Path) -> Result<()> {
    let spawn = |_| Command::new(program).spawn();
    let children: Vec<Child> = (0..count).map(spawn).collect::<Result<_, _>>().context("spawning")?;
    for mut child in children {
        ensure!(child.wait()?.success(), "{} failed", program.display());
    }
    Ok(())
}

/// Children that are ended when the work with them fails half way.
struct Children(Vec<Child>);

impl Drop for Children {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // Either fails only when the child is gone already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Messages of the echo server, in the form of its clients' protocol.
struct Messages {
    /// Request that is held until all ranks have sent it.
    fence: Vec<u8>,
    /// Reply to all of them then.
    release: Vec<u8>,
    /// Reply to every other request.
    answer: Vec<u8>,
}

impl Messages {
    fn of_pmi(pmi: Pmi) -> Messages {
        let (release, answer) = match pmi {
            Pmi::V1 => {
                ("cmd=barrier_out rc=0".to_string(), format!("cmd=get_result rc=0 value={}", value(0)))
            }
            Pmi::V2 => (
                "cmd=kvs-fence-response;rc=0;".to_string(),
                format!("cmd=kvs-get-response;rc=0;found=TRUE;value={};", value(0)),
            ),
        };
        Messages {
            fence: pmi.message(pmi.fence()),
            release: pmi.message(&release),
            answer: pmi.message(&answer),
        }
    }

    fn of_pmix() -> Messages {
        let mut requests = pmix::Requests::new(NAMESPACE);
        let answer = pmix::reply(&requests.commit(&[&value(0)])[HEADER_LEN..]);
        Messages { fence: requests.fence().to_vec(), release: pmix::reply(&[]), answer }
    }
}

/// The measured exchange with a server that does nothing: it answers every request with prepared bytes of the right
/// length, in an epoll loop, with one read and one write each. Only fences are held until all have come. `daemons` threads
/// share the ranks evenly, each with a loop of its own, and one if there are none. A fence costs no message between them.
pub(crate) fn echo(size: u32, daemons: u32, pmi: Pmi, rounds: u32, limit: Duration) -> Result<Moments> {
    let (report, theirs) = std::io::pipe()?;
    let mut ranks = Children(Vec::new());
    let mut sockets = Vec::new();
    for rank in 0..size {
        let (our_end, their_end) =
            socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        sockets.push(File::from(our_end));
        let child = Command::new(std::env::current_exe()?)
            .args(["rank", "--pmi", pmi.name(), "--echo", "--rounds", &rounds.to_string()])
            .env("PMI_FD", "0")
            .env("PMI_RANK", rank.to_string())
            .env("PMI_SIZE", size.to_string())
            .stdin(their_end)
            .stdout(theirs.try_clone()?)
            .spawn()?;
        ranks.0.push(child);
    }
    drop(theirs);
    exchange(ranks, (&sockets, daemons), &Messages::of_pmi(pmi), report, limit)
}

/// The same with PMIx clients, which connect by TCP.
pub(crate) fn echo_pmix(size: u32, limit: Duration) -> Result<Moments> {
    let (report, theirs) = std::io::pipe()?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    let mut ranks = Children(Vec::new());
    let mut sockets = Vec::new();
    for rank in 0..size {
        let child = Command::new(std::env::current_exe()?)
            .args(["rank-pmix", "--size", &size.to_string(), "--echo"])
            .env("PMIX_SERVER_URI41", format!("echo.0;tcp4://{address}"))
            .env("PMIX_NAMESPACE", NAMESPACE)
            .env("PMIX_RANK", rank.to_string())
            .stdin(Stdio::null())
            .stdout(theirs.try_clone()?)
            .spawn()?;
        ranks.0.push(child);
        ready(&listener, limit).context("a rank of the echo server did not connect")?;
        let mut socket = listener.accept()?.0;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(limit))?;
        let mut hello = vec![0; pmix::Requests::new(NAMESPACE).hello(rank).len()];
        socket.read_exact(&mut hello)?;
        socket.write_all(&pmix::WELCOME)?;
        sockets.push(File::from(OwnedFd::from(socket)));
    }
    drop(theirs);
    exchange(ranks, (&sockets, 1), &Messages::of_pmix(), report, limit)
}

fn ready(listener: &TcpListener, limit: Duration) -> Result<()> {
    let seconds = limit.as_secs();
    ensure!(
        poll(&mut [PollFd::new(listener, PollFlags::IN)], Some(&timespec(limit)))? > 0,
        "after {seconds} s"
    );
    Ok(())
}

fn timespec(limit: Duration) -> Timespec {
    Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: limit.subsec_nanos().into() }
}

/// Serves connected ranks until all have left, by so many threads, and returns what they report.
fn exchange(
    mut ranks: Children,
    (sockets, threads): (&[File], u32),
    messages: &Messages,
    report: PipeReader,
    limit: Duration,
) -> Result<Moments> {
    let served = sockets.len().div_ceil(threads.max(1) as usize);
    let fenced = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let serve = |own| Echo { all: sockets, own, messages, fenced: &fenced }.serve(limit);
        let threads: Vec<_> = sockets.chunks(served).map(|own| scope.spawn(move || serve(own))).collect();
        let served = threads.into_iter().map(|thread| thread.join().expect("an echo server does not panic"));
        served.collect::<Result<()>>()
    })?;
    for rank in &mut ranks.0 {
        ensure!(rank.wait()?.success(), "a rank of the echo server failed");
    }
    collect(report, sockets.len())
}

/// One loop of an echo server.
#[derive(Clone, Copy)]
struct Echo<'s> {
    /// The ranks of all loops.
    all: &'s [File],
    /// The ranks of this one.
    own: &'s [File],
    messages: &'s Messages,
    /// Ranks of all loops that have come to the fence.
    fenced: &'s AtomicUsize,
}

impl Echo<'_> {
    fn serve(self, limit: Duration) -> Result<()> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for (at, socket) in self.own.iter().enumerate() {
            epoll::add(&epoll, socket, epoll::EventData::new_u64(at as u64), epoll::EventFlags::IN)?;
        }
        let limit = timespec(limit);
        let mut open = self.own.len();
        let mut buffer = [0; 4096];
        let mut events = Vec::with_capacity(256);
        while open > 0 {
            // A tracer interrupts the wait.
            retry_on_intr(|| epoll::wait(&epoll, spare_capacity(&mut events), Some(&limit)))?;
            if events.is_empty() {
                bail!("the echo server's ranks were silent for {} s", limit.tv_sec);
            }
            for event in events.drain(..) {
                let mut socket = &self.own[usize::try_from(event.data.u64())?];
                let request = socket.read(&mut buffer)?;
                if request == 0 {
                    epoll::delete(&epoll, socket)?;
                    open -= 1;
                } else if buffer[..request] != *self.messages.fence {
                    socket.write_all(&self.messages.answer)?;
                } else {
                    self.arrive()?;
                }
            }
        }
        Ok(())
    }

    /// Counts a rank at the fence. The last one releases all.
    fn arrive(self) -> Result<()> {
        if self.fenced.fetch_add(1, Ordering::Relaxed) + 1 == self.all.len() {
            // Before the first one is released, who may come to the next fence.
            self.fenced.store(0, Ordering::Relaxed);
            for mut socket in self.all {
                socket.write_all(&self.messages.release)?;
            }
        }
        Ok(())
    }
}

fn collect(mut report: PipeReader, size: usize) -> Result<Moments> {
    let mut text = String::new();
    report.read_to_string(&mut text)?;
    let moments = text.lines().map(str::parse).collect::<Result<Vec<Moments>>>()?;
    ensure!(moments.len() == size, "{} of {size} ranks of the echo server reported", moments.len());
    moments.into_iter().reduce(Moments::merge).context("no ranks")
}
