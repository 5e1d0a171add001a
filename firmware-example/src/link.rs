//! The management side: hosts that open jobs and ask how they do, in the protocol of `hydrant_core::manage`.

use hydrant_core::manage::{
    self, Error, OpenJob, PREFIX, RECORD_MAX, Report, Request, STALL_MS, VERSION, Welcome,
};
use hydrant_core::server::Input;
use hydrant_core::{Fault, JobId};
use smoltcp::iface::SocketHandle;
use smoltcp::socket::tcp;

use crate::config::Config;
use crate::events::EVENTS;
use crate::memory::{self, LINK_RX, LINKS};
use crate::net::Net;
use crate::serve::{INTRODUCTION_MS, Serve};
use crate::{board, stack, time};

/// All management connections.
pub(crate) struct Links {
    links: [Link; LINKS],
    /// Which of them manages.
    manager: Option<usize>,
    /// Which of them is sent a recording.
    recorder: Option<usize>,
    port: u16,
}

/// A socket for a host.
pub(crate) struct Link {
    handle: SocketHandle,
    open: bool,
    /// When it connected.
    since: u64,
    greeted: bool,
    /// Since when there has been no room for a record.
    stuck: Option<u64>,
}

impl Link {
    pub(crate) const fn new(handle: SocketHandle) -> Link {
        Link { handle, open: false, since: 0, greeted: false, stuck: None }
    }

    /// How long it may be there without a greeting, while it is.
    fn stranger_until(&self) -> Option<u64> {
        (self.open && !self.greeted).then_some(self.since + INTRODUCTION_MS)
    }
}

impl Links {
    pub(crate) fn new(links: [Link; LINKS], config: &Config) -> Links {
        Links { links, manager: None, recorder: None, port: config.port }
    }

    /// When something is due although nothing comes.
    pub(crate) fn poll_at(&self) -> Option<u64> {
        self.links.iter().filter_map(Link::stranger_until).min()
    }

    /// Does what there is to do.
    pub(crate) fn run(&mut self, net: &mut Net, serve: &mut Serve) {
        // What happened before a request is said before its answer.
        self.send_events(net);
        for at in 0..LINKS {
            self.link(net, serve, at);
        }
    }

    fn link(&mut self, net: &mut Net, serve: &mut Serve, at: usize) {
        let link = &mut self.links[at];
        let socket = net.sockets.get_mut::<tcp::Socket<'_>>(link.handle);
        if !link.open {
            if !socket.is_open() {
                // The port is not 0, and the socket is closed.
                let _ = socket.listen(self.port);
            } else if socket.is_active() && socket.may_send() {
                defmt::info!("host {=usize} connected", at);
                link.open = true;
                link.since = time::millis();
            } else if socket.state() == tcp::State::TimeWait {
                socket.abort();
            }
            return;
        }
        if link.stranger_until().is_some_and(|until| time::millis() >= until) {
            defmt::warn!("host {=usize} did not greet, and is given up", at);
            socket.abort();
            return self.gone(net, serve, at);
        }
        if !socket.may_recv() && socket.recv_queue() == 0 {
            if self.recorder == Some(at) {
                serve.end_tape(net);
            }
            net.sockets.get_mut::<tcp::Socket<'_>>(self.links[at].handle).close();
            return self.gone(net, serve, at);
        }
        if self.recorder == Some(at) {
            return;
        }
        while self.request(net, serve, at) {
            self.send_events(net);
        }
    }

    /// A host is gone, and with it the jobs that were to go with it.
    fn gone(&mut self, net: &mut Net, serve: &mut Serve, at: usize) {
        defmt::info!("host {=usize} is gone", at);
        self.links[at] = Link::new(self.links[at].handle);
        if self.recorder == Some(at) {
            self.recorder = None;
        }
        if self.manager != Some(at) {
            return;
        }
        self.manager = None;
        let Some(job) = &mut serve.job else { return };
        job.exits_told = false;
        let id = job.id;
        if !job.keep && serve.forget_job(net, id).is_err() {
            defmt::error!("job {} cannot be forgotten", id);
        }
    }

    /// Carries out one request, if a whole one is there and its reply has room. Whether it did.
    fn request(&mut self, net: &mut Net, serve: &mut Serve, at: usize) -> bool {
        let handle = self.links[at].handle;
        let socket = net.sockets.get_mut::<tcp::Socket<'_>>(handle);
        let mut record = [0; LINK_RX];
        let untold = self.manager == Some(at) && !EVENTS.is_empty();
        if untold || socket.send_capacity() - socket.send_queue() < PREFIX + RECORD_MAX {
            return false;
        }
        let Ok(len) = socket.peek_slice(&mut record) else { return false };
        let (reply, taken) = match manage::next(&record[..len]) {
            Ok(None) => return false,
            Ok(Some((request, taken))) => match manage::decode(request) {
                Ok(request) => (self.answer(net, serve, at, &request), taken),
                Err(_) => (Err(Error::Garbled), taken),
            },
            Err(_) => (Err(Error::Garbled), len),
        };
        let report = reply.unwrap_or_else(|error| {
            defmt::warn!("host {=usize} refused: {}", at, error);
            Report::Refused(error)
        });
        let socket = net.sockets.get_mut::<tcp::Socket<'_>>(handle);
        let mut left = taken;
        while left > 0 {
            let dropped = socket.recv(|bytes| (left.min(bytes.len()), left.min(bytes.len())));
            let Ok(1..) = dropped else { break };
            left -= dropped.unwrap_or(left);
        }
        say(socket, &report);
        if report == Report::Refused(Error::Garbled) {
            socket.close();
            self.gone(net, serve, at);
            return false;
        }
        if self.recorder == Some(at) {
            serve.begin_tape(net);
            return false;
        }
        true
    }

    fn answer(
        &mut self,
        net: &mut Net,
        serve: &mut Serve,
        at: usize,
        request: &Request<'_>,
    ) -> Result<Report<'static>, Error> {
        let greeting = matches!(request, Request::Hello { .. });
        if greeting == self.links[at].greeted {
            return Err(Error::Greeting);
        }
        match *request {
            Request::Hello { version } if version != VERSION => {
                return Err(Error::Version { spoken: VERSION });
            }
            Request::Hello { .. } => {
                self.links[at].greeted = true;
                return Ok(Report::Welcome(welcome(serve)));
            }
            Request::Record if self.manager == Some(at) => return Err(Error::Order),
            Request::Record => {
                serve.record(self.links[at].handle)?;
                self.recorder = Some(at);
                return Ok(Report::Done);
            }
            Request::Job { job } => {
                return serve.job_report(job).map(Report::Job).ok_or(Error::Core(Fault::NoSuchJob));
            }
            Request::Rank { job, rank } => {
                let report = serve.server().rank_report(job, rank);
                return report.map(Report::Rank).ok_or(Error::Core(Fault::NoSuchRank));
            }
            Request::Board => {
                let free_sockets = serve.free_sockets();
                return Ok(Report::Board(manage::BoardReport {
                    uptime: time::millis(),
                    free_sockets,
                    stack: stack::used(),
                    ..serve.counters
                }));
            }
            Request::Usage { limit } => {
                let (used, size) = (serve.server().used(limit), memory::LIMITS.of(limit));
                return Ok(Report::Usage { limit, used, size });
            }
            _ => {}
        }
        if self.manager.is_some_and(|manager| manager != at) {
            return Err(Error::Busy);
        }
        self.manager = Some(at);
        change(net, serve, request)
    }

    /// Sends what nobody asked for.
    pub(crate) fn send_events(&mut self, net: &mut Net) {
        let Some(at) = self.manager else {
            EVENTS.clear();
            return;
        };
        let link = &mut self.links[at];
        let socket = net.sockets.get_mut::<tcp::Socket<'_>>(link.handle);
        while socket.send_capacity() - socket.send_queue() >= PREFIX + RECORD_MAX {
            link.stuck = None;
            let Ok(event) = EVENTS.try_receive() else { return };
            say(socket, &event.report());
        }
        let since = *link.stuck.get_or_insert(time::millis());
        if time::millis() >= since + STALL_MS {
            defmt::warn!("host {=usize} does not read, and is given up", at);
            socket.abort();
        }
    }
}

/// Carries out what changes something.
fn change(net: &mut Net, serve: &mut Serve, request: &Request<'_>) -> Result<Report<'static>, Error> {
    let input = match *request {
        Request::Open(ref open) => return opened(net, serve, open),
        Request::Serve { job } => return serve.serve_job(job).map(|()| Report::Done),
        Request::Forget { job } => return serve.forget_job(net, job).map(|()| Report::Done),
        Request::Program { job, first, count, appnum } => Input::Program { job, first, count, appnum },
        Request::Attr { job, key, value } => Input::Attr { job, key, value },
        Request::Pset { job, name, first, count } => Input::Pset { job, name, first, count },
        Request::Exited { job, rank, exit } => Input::Exited { job, rank, exit },
        _ => return Err(Error::Order),
    };
    serve.try_tell(net, input).map(|_| Report::Done).map_err(Error::Core)
}

fn opened(net: &mut Net, serve: &mut Serve, open: &OpenJob<'_>) -> Result<Report<'static>, Error> {
    let job = serve.open_job(net, open)?;
    Ok(Report::Opened { job, port: serve.port_of(job) })
}

fn welcome(serve: &Serve) -> Welcome<'static> {
    Welcome {
        version: VERSION,
        board: board::NAME,
        limits: memory::LIMITS,
        pmi_port: serve.port_of(JobId(0)),
        sockets: memory::CLIENTS as u32,
        free_sockets: serve.free_sockets(),
        message_max: memory::LONG as u32,
        records: true,
    }
}

/// Sends a record; there is room for the longest.
fn say(socket: &mut tcp::Socket<'_>, report: &Report<'_>) {
    let mut record = [0; LINK_RX];
    match manage::encode(report, &mut record) {
        // Whoever has closed hears nothing any more.
        Ok(record) => drop(socket.send_slice(record)),
        Err(_) => defmt::error!("a report is longer than a record"),
    }
}
