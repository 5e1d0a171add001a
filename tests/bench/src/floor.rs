//! Floor of the measurements: the system calls that every process manager needs.

use std::fs::File;
use std::io::{PipeReader, Read, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use crate::pmi::Pmi;
use crate::rank::{Moments, value};

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

/// The measured exchange with a server that does nothing: it answers every request with prepared bytes of the right
/// length, in one epoll loop of one thread, with one read and one write each. Only fences are held until all have come.
pub(crate) fn echo(size: u32, pmi: Pmi, limit: Duration) -> Result<Moments> {
    let (report, theirs) = std::io::pipe()?;
    let mut ranks = Children(Vec::new());
    let mut sockets = Vec::new();
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for rank in 0..size {
        let (our_end, their_end) =
            socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        epoll::add(&epoll, &our_end, epoll::EventData::new_u64(rank.into()), epoll::EventFlags::IN)?;
        sockets.push(File::from(our_end));
        let child = Command::new(std::env::current_exe()?)
            .args(["rank", "--pmi", pmi.name(), "--echo"])
            .env("PMI_FD", "0")
            .env("PMI_RANK", rank.to_string())
            .env("PMI_SIZE", size.to_string())
            .stdin(their_end)
            .stdout(theirs.try_clone()?)
            .spawn()?;
        ranks.0.push(child);
    }
    drop(theirs);
    serve(&epoll, &mut sockets, pmi, limit)?;
    for rank in &mut ranks.0 {
        ensure!(rank.wait()?.success(), "a rank of the echo server failed");
    }
    collect(report, size)
}

fn serve(epoll: impl AsFd, sockets: &mut [File], pmi: Pmi, limit: Duration) -> Result<()> {
    let (release, answer) = match pmi {
        Pmi::V1 => ("cmd=barrier_out rc=0".to_string(), format!("cmd=get_result rc=0 value={}", value(0))),
        Pmi::V2 => (
            "cmd=kvs-fence-response;rc=0;".to_string(),
            format!("cmd=kvs-get-response;rc=0;found=TRUE;value={};", value(0)),
        ),
    };
    let (release, answer) = (pmi.message(&release), pmi.message(&answer));
    let fence = pmi.message(pmi.fence());
    let limit = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: limit.subsec_nanos().into() };
    let (mut open, mut fenced) = (sockets.len(), 0);
    let mut buffer = [0; 4096];
    let mut events = Vec::with_capacity(256);
    while open > 0 {
        epoll::wait(&epoll, spare_capacity(&mut events), Some(&limit))?;
        if events.is_empty() {
            bail!("the echo server's ranks were silent for {} s", limit.tv_sec);
        }
        for event in events.drain(..) {
            let at = usize::try_from(event.data.u64())?;
            let request = sockets[at].read(&mut buffer)?;
            if request == 0 {
                epoll::delete(&epoll, &sockets[at])?;
                open -= 1;
            } else if buffer[..request] != *fence {
                sockets[at].write_all(&answer)?;
            } else {
                fenced += 1;
                if fenced == sockets.len() {
                    fenced = 0;
                    for socket in &mut *sockets {
                        socket.write_all(&release)?;
                    }
                }
            }
        }
    }
    Ok(())
}

fn collect(mut report: PipeReader, size: u32) -> Result<Moments> {
    let mut text = String::new();
    report.read_to_string(&mut text)?;
    let moments = text.lines().map(str::parse).collect::<Result<Vec<Moments>>>()?;
    ensure!(moments.len() == size as usize, "{} of {size} ranks of the echo server reported", moments.len());
    moments.into_iter().reduce(Moments::merge).context("no ranks")
}
