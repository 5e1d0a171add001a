//! Ports of the jobs, and the sockets that listen to them.
//!
//! Job `n` has the port that is `n` higher than that of job 0, by which its clients are known. The jobs share the sockets. Each
//! job has at least one for each of its ranks here that may still connect.

use hydrant_core::JobId;

use super::Serve;
use crate::board::{Board, JOBS_MAX, Sizes};
use crate::net::{Net, Socket, State};

impl<B: Board> Serve<'_, B> {
    /// Returns the port of a job's clients.
    pub(crate) fn port_of(&self, job: JobId) -> u16 {
        self.port.saturating_add(job.0 as u16)
    }

    /// Returns the job whose clients connect to a port, if they are accepted.
    pub(super) fn job_at(&self, port: u16) -> Option<JobId> {
        let job = JobId(u32::from(port.checked_sub(self.port)?));
        self.jobs.is_serving(job).then_some(job)
    }

    /// Has closed sockets listen to the port of the job with the most ranks that have no socket. A socket that a job does not
    /// need goes to one that does.
    pub(super) fn listen(&self, net: &mut B::Net) {
        // Ranks without a socket of each job. Less than 0 if it has more than it needs.
        let mut short = [None; JOBS_MAX];
        let short = &mut short[..B::JOBS];
        for job in self.jobs.serving() {
            short[job.index()] = Some(self.server.awaited(job).unwrap_or(0) as i32);
        }
        for client in self.clients.iter().filter(|client| client.rank.is_none()) {
            let socket = net.socket_mut(client.handle);
            let job = port(socket).and_then(|port| self.job_at(port));
            match job.and_then(|job| short[job.index()].as_mut()) {
                Some(short) => *short -= 1,
                None if socket.state() == State::Listen => socket.abort(),
                None => {}
            }
        }
        for client in &*self.clients {
            let neediest = short.iter().enumerate().filter_map(|(job, short)| Some((short.as_ref()?, job)));
            let Some((&most, neediest)) = neediest.max() else { return };
            let socket = net.socket_mut(client.handle);
            let from = port(socket).and_then(|port| self.job_at(port)).map(JobId::index);
            let is_spare = from.and_then(|from| short[from]).is_some_and(|short| short < 0);
            match socket.state() {
                State::Closed => {}
                State::Listen if is_spare && most > 0 => {
                    from.and_then(|from| short[from].as_mut()).into_iter().for_each(|short| *short += 1);
                    socket.abort();
                }
                _ => continue,
            }
            socket.listen(self.port_of(JobId(neediest as u32)));
            short[neediest].iter_mut().for_each(|short| *short -= 1);
        }
    }

    /// Aborts the connections of earlier jobs that are still closing. Clients of a new job need their sockets.
    pub(super) fn abort_closing(&self, net: &mut B::Net) {
        for client in &*self.clients {
            if client.is_closing(net) {
                net.socket_mut(client.handle).abort();
            }
        }
    }

    /// Aborts the connections that have been closing for the longest time while clients are accepted and there are fewer
    /// free sockets than ranks of several jobs that may connect, or than [`B::SPARE`].
    pub(super) fn keep_listening(&mut self, net: &mut B::Net) {
        let awaited = |job| self.server.awaited(job);
        let wanted = match self.jobs.serving().count() {
            0 => return,
            1 => B::SPARE,
            _ => B::SPARE.max(self.jobs.serving().filter_map(awaited).sum()),
        };
        for _ in self.free_sockets(net)..wanted {
            let closing = self.clients.iter().filter(|client| client.is_closing(net));
            let Some(client) = closing.min_by_key(|client| client.since) else { return };
            net.socket_mut(client.handle).abort();
            // The socket listens in the next turn of the loop.
            self.deferred = true;
        }
    }
}

/// Returns the port that a socket listens to, or of a connection whose client has not identified itself.
fn port(socket: &impl Socket) -> Option<u16> {
    match socket.state() {
        State::Listen => Some(socket.listen_port()),
        State::SynReceived | State::Established => socket.local_port(),
        _ => None,
    }
}
