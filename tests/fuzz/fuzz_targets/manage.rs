//! Bytes of several hosts into a management server over a PMI server.
#![no_main]

use std::net::Ipv4Addr;

use std::convert::Infallible;

use hydrant_core::manage::server::{
    Config, Expired, Failure, HostSlot, JobSlot, ManagementServer, Next, Service,
};
use hydrant_core::manage::{self, BoardReport, JobReport, OpenJob, PREFIX, RECORD_MAX, RankReport, Report};
use hydrant_core::server::{Input, JobSpec};
use hydrant_core::trace::Exit;
use hydrant_core::{Fault, JobId, Limit, Rank, Server, Time};
use hydrant_fuzz::{FuzzInput, LIMITS, Memory, with_memory};
use libfuzzer_sys::fuzz_target;

/// Connections of hosts.
const HOSTS: usize = 3;
/// Bytes that a connection may hold.
const BUFFER: usize = PREFIX + RECORD_MAX;

fuzz_target!(|data: &[u8]| with_memory(|memory| manage(FuzzInput(data), memory)));

fn manage(mut input: FuzzInput<'_>, memory: &mut Memory) {
    let options = input.byte();
    let config = Config {
        name: "fuzz",
        limits: LIMITS,
        pmi_port: 4000,
        message_max: 1024,
        records: options & 1 != 0,
        exclusive: options & 2 != 0,
        nodes: Some(LIMITS),
        links: None,
        drop_orphans: options & 4 != 0,
        handshake_timeout: 100,
        keep_timeout: None,
    };
    let Memory { storage, buffer, .. } = memory;
    let server = Server::new(LIMITS, storage.lend(), 1).expect("the storage was made for the limits");
    let (mut hosts, mut jobs) = ([HostSlot::EMPTY; HOSTS], [JobSlot::EMPTY; LIMITS.jobs as usize]);
    let mut board = Board { server, buffer, records: config.records };
    let mut hosts = Hosts {
        server: ManagementServer::new(config, &mut hosts, &mut jobs),
        held: [const { None }; HOSTS],
        now: 0,
    };
    while !input.is_empty() {
        hosts.step(&mut input, &mut board);
        board.drain();
    }
}

/// The management server and the bytes of its hosts that are not consumed.
struct Hosts<'m> {
    server: ManagementServer<'m>,
    held: [Option<Vec<u8>>; HOSTS],
    now: u64,
}

impl Hosts<'_> {
    fn step(&mut self, input: &mut FuzzInput<'_>, board: &mut Board<'_>) {
        let choice = input.byte();
        let host = usize::from(choice & 15) % HOSTS;
        match choice >> 4 {
            0 => self.disconnect(host, board),
            1 => self.now += u64::from(input.short()),
            2 if self.held[host].is_some() => {
                self.server.set_blocked(host, input.byte() & 1 != 0, self.now);
            }
            3 => {
                let (job, rank) = (JobId(input.byte().into()), Rank(input.byte().into()));
                let Ok(()) = self.server.rank_left(board, job, rank, input.byte() & 1 != 0);
            }
            _ => self.receive(host, input.string(), board),
        }
        let Ok(over) = self.server.poll_over(board);
        if let Some((job, recipient)) = over {
            assert!(self.server.is_over(job), "a job is over and is not");
            assert!(recipient.is_none_or(|host| self.held[host].is_some()), "an event without a host");
        }
        while let Some((host, why)) = self.server.expired(self.now) {
            assert!(
                why == Expired::Stalled || !self.server.is_greeted(host),
                "a greeted host has no handshake"
            );
            self.disconnect(host, board);
        }
        assert!(self.server.poll_at().is_none_or(|at| at > self.now), "a deadline that has passed");
    }

    fn disconnect(&mut self, host: usize, board: &mut Board<'_>) {
        if self.held[host].take().is_some() {
            let Ok(()) = self.server.disconnected(board, host, self.now);
        }
    }

    fn receive(&mut self, host: usize, bytes: &[u8], board: &mut Board<'_>) {
        if self.held[host].is_none() {
            self.server.connected(host, Ipv4Addr::new(127, 0, 0, (host & 1) as u8).into(), self.now);
        }
        let held = self.held[host].get_or_insert_default();
        held.extend(bytes);
        held.truncate(BUFFER);
        let mut reply = [0; BUFFER];
        while let Some(held) = &mut self.held[host] {
            let Ok(received) = self.server.receive(board, host, held, &mut reply);
            let Some(received) = received else {
                assert!(
                    held.len() < BUFFER || self.server.is_recording(host),
                    "a full buffer without a record"
                );
                if self.server.is_recording(host) {
                    held.clear();
                }
                return;
            };
            assert!((1..=held.len()).contains(&received.consumed), "consumed bytes that were not there");
            let (record, len) =
                manage::next(received.reply).expect("a reply is a record").expect("and complete");
            assert_eq!(len, received.reply.len());
            let report = manage::decode::<Report<'_>>(record).expect("a reply is a report");
            assert!(!report.is_event(), "an event is no reply");
            assert_eq!(matches!(report, Report::Refused(_)), received.refused.is_some());
            held.drain(..received.consumed);
            if received.next == Next::Close {
                self.disconnect(host, board);
            }
        }
    }
}

/// The PMI server, whose clients never connect.
struct Board<'s> {
    server: Server<'s>,
    buffer: &'s mut [u8],
    records: bool,
}

impl Board<'_> {
    fn handle(&mut self, input: Input<'_>) -> Result<(), Failure<Infallible>> {
        Ok(self.server.handle(Time(0), input).map(drop)?)
    }

    fn drain(&mut self) {
        while self.server.poll(self.buffer).expect("the buffer has the longest output").is_some() {}
    }
}

impl Service for Board<'_> {
    type Error = Infallible;

    fn open(&mut self, open: &OpenJob<'_>) -> Result<(JobId, u16), Failure<Infallible>> {
        let free = (0..LIMITS.jobs).map(JobId).find(|&job| self.server.job_report(job).is_none());
        let job = free.ok_or(Fault::Full(Limit::Jobs, LIMITS.jobs))?;
        self.handle(Input::RegisterJob(JobSpec::managed(job, open)))?;
        Ok((job, 4000 + job.0 as u16))
    }

    fn set_program(
        &mut self,
        job: JobId,
        first: Rank,
        count: u32,
        appnum: u32,
    ) -> Result<(), Failure<Infallible>> {
        self.handle(Input::Program { job, first, count, appnum })
    }

    fn set_attr(&mut self, job: JobId, key: &[u8], value: &[u8]) -> Result<(), Failure<Infallible>> {
        self.handle(Input::Attr { job, key, value })
    }

    fn define_pset(
        &mut self,
        job: JobId,
        name: &str,
        first: Rank,
        count: u32,
    ) -> Result<(), Failure<Infallible>> {
        self.handle(Input::Pset { job, name, first, count })
    }

    fn accept_clients(&mut self, job: JobId) -> Result<(), Failure<Infallible>> {
        if self.server.job_report(job).is_some() { Ok(()) } else { Err(Fault::NoSuchJob.into()) }
    }

    fn exited(&mut self, job: JobId, rank: Rank, exit: Exit) -> Result<(), Failure<Infallible>> {
        self.handle(Input::Exited { job, rank, exit })
    }

    fn forget(&mut self, job: JobId) -> Result<(), Failure<Infallible>> {
        self.handle(Input::DeregisterJob { job })
    }

    fn job_report(&self, job: JobId) -> Option<JobReport> {
        self.server.job_report(job)
    }

    fn rank_report(&self, job: JobId, rank: Rank) -> Option<RankReport> {
        self.server.rank_report(job, rank)
    }

    fn board_report(&self) -> BoardReport {
        BoardReport::default()
    }

    fn used(&self, limit: Limit) -> u32 {
        self.server.used(limit)
    }

    fn begin_recording(&mut self, _host: usize) -> Result<(), Failure<Infallible>> {
        let begins = self.records && self.server.restart();
        if begins { Ok(()) } else { Err(manage::Error::Order.into()) }
    }
}
