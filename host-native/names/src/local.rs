//! Names of one run, kept by a server in the run's own process. Requests and replies pass as bytes in memory.

use std::collections::VecDeque;

use hydrant_core::client::{Client, Start};
use hydrant_core::server::JobSpec;
use hydrant_core::wire::Protocol;
use hydrant_core::{Backend, ConnId, Input, JobId, Limit, Output, Rank, Refusal, Time};

use crate::error::NameServiceError;
use crate::request::{Answer, MESSAGE, Outcome, Purpose, Request, Steps, outcome_of};

/// Reason of a failed request whose connection the backend has closed.
const CLOSED: &str = "the name server of this run has closed the connection";

/// Name service of a run on a backend of the caller's, without sockets. No function waits. All times are milliseconds.
#[derive(Debug)]
pub struct LocalNames<B: ?Sized> {
    backend: Box<B>,
    /// Buffer for output of the backend.
    reply: Box<[u8]>,
    /// Clients by number. A client, its connection and its job of one rank have the same number. Gaps are free.
    clients: Vec<Option<LocalClient>>,
    /// Clients so far.
    count: u64,
    answers: VecDeque<Answer>,
}

#[derive(Debug)]
struct LocalClient {
    client: Client,
    purpose: Purpose,
    /// Request that has no answer yet, and how far it is.
    request: Option<Request>,
    steps: Steps,
}

impl<B> LocalNames<B>
where
    B: Backend + ?Sized,
{
    /// Creates a name service without names. The limits of the backend are [`LIMITS_OF_RUN`](crate::LIMITS_OF_RUN).
    pub fn new(backend: Box<B>) -> LocalNames<B> {
        let reply = vec![0; backend.limits().output_room()].into();
        LocalNames { backend, reply, clients: Vec::new(), count: 0, answers: VecDeque::new() }
    }

    /// Passes a request to the server. Each request gets exactly one [answer](LocalNames::answer).
    ///
    /// # Errors
    /// The backend failed.
    pub fn ask(&mut self, request: Request, now: u64) -> Result<(), NameServiceError> {
        let purpose = request.purpose();
        let Some(number) = self.client(purpose, now)? else {
            let full = "limit conns of the name server of this run is used up";
            let rc = Refusal::Full(Limit::Conns, self.backend.limits().conns).rc();
            self.answers.extend(request.refused(rc, full.as_bytes().to_vec()));
            return Ok(());
        };
        let Some(client) = self.clients[number].as_mut() else {
            self.answers.extend(request.failed(CLOSED));
            return Ok(());
        };
        client.steps = Steps::default();
        client.request = Some(request);
        self.send(number, now)?;
        self.poll(now)
    }

    /// Passes the next step of a client's request to the server.
    fn send(&mut self, number: usize, now: u64) -> Result<(), NameServiceError> {
        let Some(client) = self.clients[number].as_mut() else { return Ok(()) };
        let Some(request) = &client.request else { return Ok(()) };
        let mut buffer = vec![0; MESSAGE];
        match request.encode(&mut client.steps, client.purpose, &mut client.client, now, &mut buffer) {
            Ok(Ok(bytes)) => {
                self.handle(Input::Bytes { conn: ConnId(number as u32), bytes, full: false }, now)
            }
            Ok(Err(refusal)) => {
                self.answers.extend(refusal);
                client.request = None;
                if client.purpose == Purpose::Lookup { self.close(number, now, "") } else { Ok(()) }
            }
            Err(why) => self.close(number, now, &why),
        }
    }

    /// Drops the look-ups of a process that has ended, and the names that end with it.
    ///
    /// # Errors
    /// The backend failed.
    pub fn process_ended(&mut self, job: JobId, rank: Rank, now: u64) -> Result<(), NameServiceError> {
        self.drop_lookups(|request| request.job == job && request.rank == rank, now)?;
        let names = Purpose::Process(job, rank);
        self.close_all(|client| client.purpose == names, now, "the process has ended")
    }

    fn drop_lookups(&mut self, whose: impl Fn(&Request) -> bool, now: u64) -> Result<(), NameServiceError> {
        self.close_all(
            |client| client.purpose == Purpose::Lookup && client.request.as_ref().is_some_and(&whose),
            now,
            "no rank waits for it",
        )
    }

    /// Removes the names of a job that has ended, and drops its look-ups.
    ///
    /// # Errors
    /// The backend failed.
    pub fn forget(&mut self, job: JobId, now: u64) -> Result<(), NameServiceError> {
        self.drop_lookups(|request| request.job == job, now)?;
        self.close_all(|client| client.purpose.is_of(job), now, "the job is over")
    }

    /// Returns the next answer.
    pub fn answer(&mut self) -> Option<Answer> {
        self.answers.pop_front()
    }

    /// Returns the time of the next [`handle_timeout`](LocalNames::handle_timeout).
    pub fn poll_at(&self) -> Option<u64> {
        self.backend.poll_at().map(|Time(at)| at)
    }

    /// Answers the look-ups whose time has passed. Returns whether a deadline had passed.
    ///
    /// # Errors
    /// The backend failed.
    pub fn handle_timeout(&mut self, now: u64) -> Result<bool, NameServiceError> {
        let due = self.poll_at().is_some_and(|at| at <= now);
        if due {
            self.handle(Input::Timeout, now)?;
            self.poll(now)?;
        }
        Ok(due)
    }

    /// Returns the client for a purpose, which is opened if there is none. Returns none at the limit of clients.
    fn client(&mut self, purpose: Purpose, now: u64) -> Result<Option<usize>, NameServiceError> {
        let open = |client: &Option<LocalClient>| client.as_ref().is_some_and(|open| open.purpose == purpose);
        match self.clients.iter().position(open).filter(|_| purpose != Purpose::Lookup) {
            Some(number) => Ok(Some(number)),
            None => self.open(purpose, now),
        }
    }

    fn open(&mut self, purpose: Purpose, now: u64) -> Result<Option<usize>, NameServiceError> {
        let number = self.clients.iter().position(Option::is_none).unwrap_or(self.clients.len());
        if number >= self.backend.limits().conns as usize {
            return Ok(None);
        }
        self.count += 1;
        let (job, conn, name) = (JobId(number as u32), ConnId(number as u32), format!("run-{}", self.count));
        self.handle(Input::RegisterJob(JobSpec::new(job, &name, 1)), now)?;
        self.handle(Input::Opened { conn, job, rank: Some(Rank(0)) }, now)?;
        let client = Client::new(Protocol::V2, Start::Port { id: 0 });
        let client = Some(LocalClient { client, purpose, request: None, steps: Steps::default() });
        match self.clients.get_mut(number) {
            Some(free) => *free = client,
            None => self.clients.push(client),
        }
        let mut buffer = vec![0; MESSAGE];
        // The server answers each step at once. A plugin that does not gets `Busy` as the reason of the first request.
        while let Some(open) = &mut self.clients[number]
            && let Ok(Some(step)) = open.client.handshake(&mut buffer)
        {
            self.pass(number, step, now)?;
        }
        Ok(Some(number))
    }

    /// Passes a message of a client to the server, and handles the output that follows.
    fn pass(&mut self, number: usize, bytes: &[u8], now: u64) -> Result<(), NameServiceError> {
        self.handle(Input::Bytes { conn: ConnId(number as u32), bytes, full: false }, now)?;
        self.poll(now)
    }

    fn handle(&mut self, input: Input<'_>, now: u64) -> Result<(), NameServiceError> {
        self.backend.handle(Time(now), input).map(drop).map_err(Into::into)
    }

    /// Turns replies into answers, and closes clients that have no further use.
    fn poll(&mut self, now: u64) -> Result<(), NameServiceError> {
        loop {
            let (number, ended) = match self.backend.poll(&mut self.reply)? {
                None => return Ok(()),
                Some(Output::Bytes { conn, bytes }) => {
                    let Some(client) = self.clients.get_mut(conn.index()).and_then(Option::as_mut) else {
                        continue;
                    };
                    match client.take_reply(bytes) {
                        Ok(answer) => {
                            let is_over = answer.is_some();
                            let ended = is_over && client.purpose == Purpose::Lookup;
                            self.answers.extend(answer);
                            if !is_over {
                                self.send(conn.index(), now)?;
                            }
                            (conn.index(), ended)
                        }
                        Err(why) => {
                            self.close(conn.index(), now, &why)?;
                            continue;
                        }
                    }
                }
                Some(Output::Close { conn, .. }) => (conn.index(), true),
                // The limits leave no room for spawns, names are this server's own, no fence waits, and there are no other
                // nodes.
                Some(_) => continue,
            };
            if ended {
                self.close(number, now, CLOSED)?;
            }
        }
    }

    fn close_all(
        &mut self,
        which: impl Fn(&LocalClient) -> bool,
        now: u64,
        why: &str,
    ) -> Result<(), NameServiceError> {
        for number in 0..self.clients.len() {
            if self.clients[number].as_ref().is_some_and(&which) {
                self.close(number, now, why)?;
            }
        }
        Ok(())
    }

    /// Removes a client and its job, and with it the names that it published.
    fn close(&mut self, number: usize, now: u64, why: &str) -> Result<(), NameServiceError> {
        let Some(client) = self.clients.get_mut(number).and_then(Option::take) else { return Ok(()) };
        self.answers.extend(client.request.and_then(|request| request.failed(why)));
        self.handle(Input::Closed { conn: ConnId(number as u32) }, now)?;
        self.handle(Input::DeregisterJob { job: JobId(number as u32) }, now)
    }
}

impl LocalClient {
    /// Reads a whole reply. Returns the answer, unless the reply is one of the handshake.
    ///
    /// # Errors
    /// The reason why the bytes are not the expected reply.
    fn take_reply(&mut self, bytes: &[u8]) -> Result<Option<Answer>, String> {
        let received = self.client.receive(bytes).map_err(|error| error.to_string())?;
        let received = received.ok_or("the reply is incomplete")?;
        let Some(request) = &self.request else { return Ok(None) };
        let answer = match outcome_of(request, self.purpose, &received.reply)? {
            Outcome::Over(answer) => self.steps.take(answer),
            // Jobs of other runs are unknown here.
            Outcome::Connected => Some(request.failed(CLOSED)),
        };
        if answer.is_some() {
            self.request = None;
        }
        Ok(answer.flatten())
    }
}

#[cfg(test)]
mod tests {
    use hydrant_core::{Server, UpcallId};
    use hydrant_driver::MappedStorage;

    use super::*;
    use crate::options::{LIMITS_OF_RUN, per_connection};

    const FIRST: JobId = JobId(0);
    const SECOND: JobId = JobId(7);

    fn request(number: u32, job: JobId, body: &str) -> Request {
        let body = body.as_bytes().to_vec();
        Request { upcall: Some(UpcallId(number)), job, rank: Rank(1), protocol: Protocol::V2, body, wait: 0 }
    }

    /// Runs a test with a name service of at most `conns` clients.
    fn with_names(conns: u32, test: impl FnOnce(LocalNames<Server<'_>>)) {
        let limits = per_connection(hydrant_core::Limits { conns, ..LIMITS_OF_RUN });
        let mut storage = MappedStorage::new(&limits);
        test(LocalNames::new(Box::new(Server::new(limits, storage.lend(), 0).unwrap())));
    }

    /// The number of the next answer, its code and its text.
    fn answer(names: &mut LocalNames<Server<'_>>) -> Option<(u32, i32, String)> {
        let Answer { upcall, rc, text } = names.answer()?;
        Some((upcall.0, rc, String::from_utf8(text).unwrap()))
    }

    #[test]
    fn names_end_with_the_job_that_published_them() {
        with_names(8, |mut names| {
            names.ask(request(1, FIRST, "cmd=name-publish;name=a;port=p;"), 0).unwrap();
            names.ask(request(2, FIRST, "cmd=name-publish;name=b;port=q;"), 0).unwrap();
            names.ask(request(3, SECOND, "cmd=name-publish;name=c;port=r;"), 0).unwrap();
            names.ask(request(4, SECOND, "cmd=name-publish;name=a;port=x;"), 0).unwrap();
            for number in 1..=3 {
                assert_eq!(answer(&mut names), Some((number, 0, String::new())));
            }
            let (_, rc, text) = answer(&mut names).unwrap();
            assert_eq!((rc, &*text), (14, "the name is published already"));
            names.ask(request(5, SECOND, "cmd=name-lookup;name=a;"), 0).unwrap();
            assert_eq!(answer(&mut names), Some((5, 0, "p".to_owned())));
            names.forget(FIRST, 1).unwrap();
            for (number, name, rc) in [(6, "a", 14), (7, "b", 14), (8, "c", 0)] {
                names.ask(request(number, SECOND, &format!("cmd=name-lookup;name={name};")), 1).unwrap();
                let (answered, got, _) = answer(&mut names).unwrap();
                assert_eq!((answered, got), (number, rc), "{name}");
            }
            assert_eq!(answer(&mut names), None);
        });
    }

    #[test]
    fn names_end_with_their_process_or_the_run() {
        with_names(8, |mut names| {
            let all = ["process", "session", "indefinite"];
            for (number, name) in (1..).zip(all) {
                let body = format!("cmd=name-publish;name={name};port=p;persist={name};");
                names.ask(request(number, FIRST, &body), 0).unwrap();
                assert_eq!(answer(&mut names), Some((number, 0, String::new())));
            }
            let found = |names: &mut LocalNames<Server<'_>>| {
                let is_there = |name: &&str| {
                    names.ask(request(9, SECOND, &format!("cmd=name-lookup;name={name};")), 0).unwrap();
                    answer(names).is_some_and(|(_, rc, _)| rc == 0)
                };
                all.into_iter().filter(is_there).collect::<Vec<_>>()
            };
            names.process_ended(FIRST, Rank(0), 1).unwrap();
            names.process_ended(SECOND, Rank(1), 1).unwrap();
            assert_eq!(found(&mut names), all);
            names.process_ended(FIRST, Rank(1), 2).unwrap();
            assert_eq!(found(&mut names), ["session", "indefinite"]);
            names.forget(FIRST, 3).unwrap();
            assert_eq!(found(&mut names), ["session", "indefinite"]);
            names.ask(request(5, FIRST, "cmd=name-publish;name=x;port=p;persist=never;"), 4).unwrap();
            assert!(answer(&mut names).is_some_and(|(_, rc, _)| rc != 0));
        });
    }

    #[test]
    fn a_look_up_waits_until_the_name_is_published_or_its_time_is_over() {
        with_names(8, |mut names| {
            names.ask(request(1, FIRST, "cmd=name-lookup;name=a;wait=50;"), 0).unwrap();
            names.ask(request(2, FIRST, "cmd=name-lookup;name=b;wait=70;"), 0).unwrap();
            assert_eq!((answer(&mut names), names.poll_at()), (None, Some(50)));
            names.ask(request(3, SECOND, "cmd=name-publish;name=b;port=q;"), 10).unwrap();
            let mut answered = [answer(&mut names).unwrap(), answer(&mut names).unwrap()];
            answered.sort();
            assert_eq!(answered, [(2, 0, "q".to_owned()), (3, 0, String::new())]);
            assert!(!names.handle_timeout(49).unwrap() && names.handle_timeout(50).unwrap());
            assert_eq!(answer(&mut names).unwrap().1, 14);
            assert_eq!(answer(&mut names), None);
            names.ask(request(4, FIRST, "cmd=name-lookup;name=c;wait=50;"), 60).unwrap();
            names.drop_lookups(|request| request.rank == Rank(1), 60).unwrap();
            assert_eq!(answer(&mut names).unwrap().2, "no rank waits for it");
        });
    }

    #[test]
    fn a_look_up_of_several_names_waits_for_all_of_them() {
        with_names(8, |mut names| {
            let look_up = |number, of: &[&str], wait| {
                let list: Vec<String> = of.iter().map(|name| format!("\u{2}{name}")).collect();
                let body = format!("cmd=name-lookup;name={};wait={wait};for=4.0.0.job;", list.join("\u{1}"));
                request(number, FIRST, &body)
            };
            let publish = |number, name| {
                request(number, SECOND, &format!("cmd=name-publish;name=\u{2}{name};port=of {name};"))
            };
            names.ask(publish(0, "a"), 0).unwrap();
            assert!(answer(&mut names).is_some());
            names.ask(look_up(1, &["b", "a", "c"], 0), 0).unwrap();
            assert_eq!(answer(&mut names), Some((1, 0, "of a".to_owned())));
            names.ask(look_up(2, &["b", "c"], 0), 0).unwrap();
            assert_eq!(answer(&mut names).map(|(number, rc, _)| (number, rc)), Some((2, 14)));
            names.ask(look_up(3, &["b", "a"], 50), 0).unwrap();
            names.ask(look_up(4, &["a", "c", "b"], 70), 10).unwrap();
            assert_eq!((answer(&mut names), names.poll_at()), (None, Some(50)));
            names.ask(publish(5, "b"), 20).unwrap();
            let mut answered = [answer(&mut names).unwrap(), answer(&mut names).unwrap()];
            answered.sort();
            assert_eq!(answered, [(3, 0, "of b\u{3}of a".to_owned()), (5, 0, String::new())]);
            // The time is that of the whole look-up.
            names.handle_timeout(79).unwrap();
            assert_eq!(answer(&mut names), None);
            names.handle_timeout(80).unwrap();
            assert_eq!(answer(&mut names), Some((4, 0, "of a\u{3}of b".to_owned())));
            assert!(names.clients.iter().flatten().all(|client| client.purpose != Purpose::Lookup));
        });
    }

    #[test]
    fn a_look_up_takes_a_place_only_while_it_waits() {
        with_names(2, |mut names| {
            for number in 0..9 {
                names.ask(request(number, FIRST, "cmd=name-lookup;name=a;"), 0).unwrap();
                assert_eq!(answer(&mut names).unwrap().1, 14);
            }
            for number in 10..13 {
                names.ask(request(number, FIRST, "cmd=name-lookup;name=a;wait=9;"), 0).unwrap();
            }
            let (number, _, why) = answer(&mut names).unwrap();
            assert_eq!((number, &*why), (12, "limit conns of the name server of this run is used up"));
            names.forget(FIRST, 0).unwrap();
            assert_eq!((answer(&mut names).is_some(), answer(&mut names).is_some()), (true, true));
            names.ask(request(14, FIRST, "cmd=name-lookup;name=a;wait=9;"), 0).unwrap();
            assert_eq!(answer(&mut names), None);
        });
    }

    #[test]
    fn a_request_that_cannot_be_sent_is_refused() {
        with_names(2, |mut names| {
            let long = "n".repeat(2 * MESSAGE);
            names.ask(request(1, FIRST, &format!("cmd=name-lookup;name={long};")), 0).unwrap();
            names.ask(request(2, FIRST, &format!("cmd=name-publish;name={long};port=p;")), 0).unwrap();
            names.ask(request(3, FIRST, "cmd=name-publish;name=a;port=p;"), 0).unwrap();
            let refused = [answer(&mut names).unwrap().1, answer(&mut names).unwrap().1];
            assert!(refused.iter().all(|&rc| rc != 0), "{refused:?}");
            assert_eq!(answer(&mut names), Some((3, 0, String::new())));
        });
    }
}
