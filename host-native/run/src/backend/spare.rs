//! Server in a plugin or on a board with a spare: a server in this process that takes its place when it fails.

use hydrant_board::BoardBackend;
use hydrant_core::server::Consumed;
use hydrant_core::{Backend, BackendError, Fault, Input, Limits, Output, Server, Time};
use hydrant_driver::OwnedServer;
use hydrant_record::{Difference, Journal};

use super::Replaceable;
use super::saved::Saved;
use crate::error::RunError;
use crate::messages::Warnings;

/// Size of a journal in bytes at which the spare catches up. It takes the spare about a millisecond.
const JOURNAL_MAX: usize = 256 << 10;

/// A primary server that may fail, and one in this process, the spare, that takes the same inputs later.
///
/// When the primary fails, the spare catches up and takes its place, in the middle of the call that has failed. If the
/// spare's results or outputs differ from those of the primary, it cannot: clients have seen the primary's.
pub(crate) struct Spared {
    /// None once the spare has taken its place.
    primary: Option<Box<dyn Primary>>,
    spare: OwnedServer,
    /// What the spare has not seen yet. None if it cannot catch up.
    journal: Option<Journal>,
    /// Buffer for the primary's outputs, so that an output of the spare can take the place of one that fails.
    buf: Box<[u8]>,
    warnings: Warnings,
}

/// A primary server whose errors other than faults are failures of its own.
pub(crate) trait Primary: Replaceable {
    /// What it is, in messages.
    fn noun(&self) -> &'static str;

    /// The same with its name.
    fn name(&self) -> String;
}

impl Replaceable for BoardBackend {
    fn save(&mut self) -> Result<Saved, RunError> {
        Err(RunError::ServerOnBoard)
    }

    fn retire(self: Box<Self>) {}
}

impl Primary for BoardBackend {
    fn noun(&self) -> &'static str {
        "board"
    }

    fn name(&self) -> String {
        self.describe()
    }
}

impl Spared {
    /// Joins a primary and a spare with equal states.
    pub(crate) fn new(primary: impl Primary + 'static, spare: OwnedServer, warnings: &Warnings) -> Spared {
        let buf = vec![0; spare.limits().output_room()].into();
        let journal = Some(Journal::default());
        Spared { primary: Some(Box::new(primary)), spare, journal, buf, warnings: warnings.clone() }
    }

    /// Has the spare catch up, which then knows what the primary knows. If it cannot, the primary goes on without one.
    fn catch_up(&mut self) {
        let Some(journal) = &mut self.journal else { return };
        if let Err(difference) = journal.catch_up(&mut self.spare) {
            self.journal = None;
            let (noun, why) = (self.noun(), self.describe(&difference));
            self.warn(format!("warning: the {noun} goes on without its spare, which {why}"));
        }
    }

    /// Puts the spare in the place of the primary, which has failed.
    ///
    /// # Errors
    /// The primary's error, if the spare cannot take its place.
    fn take_over(&mut self, failure: BackendError) -> Result<(), BackendError> {
        let Some(mut journal) = self.journal.take() else { return Err(failure) };
        if let Err(difference) = journal.catch_up(&mut self.spare) {
            let why = self.describe(&difference);
            return Err(BackendError::Other(
                format!("{failure}; its spare cannot take its place: it {why}").into(),
            ));
        }
        self.replace(&failure.to_string());
        Ok(())
    }

    /// Returns the result of an input that the primary refuses. The spare takes its place if it does not refuse it too.
    #[cold]
    fn confirm(&mut self, fault: Fault, now: Time, input: Input<'_>) -> Result<Consumed, BackendError> {
        self.catch_up();
        let Some(primary) = self.primary.as_ref().filter(|_| self.journal.is_some()) else {
            return Err(fault.into());
        };
        let handled = self.spare.handle(now, input);
        if !handled.as_ref().is_err_and(|own| own.fault() == Some(fault)) {
            self.replace(&format!("{} refuses what the built-in server accepts: {fault}", primary.name()));
        }
        handled
    }

    /// Goes on with the spare, which has taken all inputs.
    fn replace(&mut self, failure: &str) {
        (self.primary, self.journal) = (None, None);
        self.warn(format!("warning: {failure}; the built-in server has taken its place"));
    }

    fn noun(&self) -> &'static str {
        self.primary.as_ref().map_or("", |primary| primary.noun())
    }

    fn describe(&self, difference: &Difference) -> String {
        let Difference { recorded, replayed, .. } = difference;
        format!("differs from it: the {}'s is '{recorded}', the spare's '{replayed}'", self.noun())
    }

    fn warn(&self, line: String) {
        self.warnings.borrow_mut().push(line);
    }
}

impl Replaceable for Spared {
    fn save(&mut self) -> Result<Saved, RunError> {
        match self.inspect() {
            Some(server) => Ok(Saved::of(server)),
            None => self.primary.as_mut().map_or(Err(RunError::ServerFailed), |primary| primary.save()),
        }
    }

    fn retire(self: Box<Self>) {}
}

impl Backend for Spared {
    fn handle(&mut self, now: Time, input: Input<'_>) -> Result<Consumed, BackendError> {
        let Some(primary) = &mut self.primary else { return self.spare.handle(now, input) };
        let handled = match &mut self.journal {
            Some(journal) => journal.handle(&mut **primary, now, input),
            None => primary.handle(now, input),
        };
        match handled {
            Err(failure @ BackendError::Other(_)) => {
                self.take_over(failure)?;
                self.spare.handle(now, input)
            }
            Err(BackendError::Fault(fault)) => self.confirm(fault, now, input),
            Ok(consumed) => Ok(consumed),
        }
    }

    fn poll<'b>(&mut self, buf: &'b mut [u8]) -> Result<Option<Output<'b>>, BackendError> {
        // Like a server, it keeps its output if `buf` may be too short.
        if buf.len() < self.buf.len() {
            return Ok(None);
        }
        let Some(primary) = &mut self.primary else { return self.spare.poll(buf) };
        let Some(journal) = &mut self.journal else { return primary.poll(buf) };
        match journal.poll(&mut **primary, &mut self.buf) {
            Ok(Some(output)) => Ok(output.copy_to(buf)),
            Ok(None) => {
                if journal.len() >= JOURNAL_MAX {
                    self.catch_up();
                }
                Ok(None)
            }
            Err(failure @ BackendError::Other(_)) => {
                self.take_over(failure)?;
                self.spare.poll(buf)
            }
            Err(fault) => Err(fault),
        }
    }

    fn poll_at(&self) -> Option<Time> {
        self.primary.as_ref().map_or_else(|| self.spare.poll_at(), |primary| primary.poll_at())
    }

    fn limits(&self) -> &Limits {
        self.spare.limits()
    }

    fn bytes_max(&self) -> usize {
        self.primary.as_ref().map_or(usize::MAX, |primary| primary.bytes_max())
    }

    fn inspect(&mut self) -> Option<&Server<'_>> {
        // The primary itself is not asked: on a board that is a round trip.
        self.catch_up();
        (self.primary.is_none() || self.journal.is_some()).then(|| self.spare.server())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hydrant_core::server::{JobSpec, Wait};
    use hydrant_core::{ConnId, JobId, Rank};

    const JOB: JobId = JobId(0);
    const CONN: ConnId = ConnId(0);

    /// A server that fails at a call of [`Backend::handle`].
    struct Faulty {
        server: OwnedServer,
        calls: u32,
        fails_at: u32,
        fault: Option<Fault>,
    }

    impl Backend for Faulty {
        fn handle(&mut self, now: Time, input: Input<'_>) -> Result<Consumed, BackendError> {
            self.calls += 1;
            match self.fault {
                _ if self.calls != self.fails_at => self.server.handle(now, input),
                Some(fault) => Err(fault.into()),
                None => Err(BackendError::Other("board b: it is gone".into())),
            }
        }

        fn poll<'b>(&mut self, buf: &'b mut [u8]) -> Result<Option<Output<'b>>, BackendError> {
            self.server.poll(buf)
        }

        fn poll_at(&self) -> Option<Time> {
            self.server.poll_at()
        }

        fn limits(&self) -> &Limits {
            self.server.limits()
        }

        fn bytes_max(&self) -> usize {
            usize::MAX
        }

        fn inspect(&mut self) -> Option<&Server<'_>> {
            None
        }
    }

    impl Replaceable for Faulty {
        fn save(&mut self) -> Result<Saved, RunError> {
            Err(RunError::ServerOnBoard)
        }

        fn retire(self: Box<Self>) {}
    }

    impl Primary for Faulty {
        fn noun(&self) -> &'static str {
            "board"
        }

        fn name(&self) -> String {
            "board b".to_owned()
        }
    }

    #[test]
    fn a_spare_catches_up_to_tell_what_ranks_wait_for() {
        let limits = Limits::for_ranks(2);
        let server = || OwnedServer::new(limits, 7).unwrap();
        let faulty = Faulty { server: server(), calls: 0, fails_at: 0, fault: None };
        let mut spared = Spared::new(faulty, server(), &Warnings::default());
        let bytes = b"cmd=init pmi_version=1 pmi_subversion=1\ncmd=barrier_in\n";
        for input in [
            Input::RegisterJob(JobSpec::new(JOB, "job", 2)),
            Input::Opened { conn: CONN, job: JOB, rank: Some(Rank(0)) },
            Input::Bytes { conn: CONN, bytes, full: false },
        ] {
            spared.handle(Time(1), input).unwrap();
        }
        assert_eq!(spared.spare.server().rank_status(JOB, Rank(0)), None, "the spare is behind");
        let status = spared.inspect().unwrap().rank_status(JOB, Rank(0)).unwrap();
        assert_eq!(status.wait, Some(Wait::Fence { number: 1, since: Time(1) }));
    }

    #[test]
    fn a_spare_in_place_of_its_core_tells_all_that_a_server_tells() {
        let limits = Limits::for_ranks(1);
        let server = || OwnedServer::new(limits, 7).unwrap();
        let faulty = Faulty { server: server(), calls: 0, fails_at: 2, fault: None };
        let (mut spared, mut alone) = (Spared::new(faulty, server(), &Warnings::default()), server());
        for input in [
            Input::RegisterJob(JobSpec::new(JOB, "job", 1)),
            Input::Opened { conn: CONN, job: JOB, rank: Some(Rank(0)) },
        ] {
            spared.handle(Time(1), input).unwrap();
            alone.handle(Time(1), input).unwrap();
        }
        let (server, alone) = (spared.inspect().unwrap(), alone.server());
        let status = server.rank_status(JOB, Rank(0));
        assert!(status.is_some() && status == alone.rank_status(JOB, Rank(0)));
        let space = server.kvs_space(JOB);
        assert!(space.is_some() && space == alone.kvs_space(JOB), "{space:?}");
    }

    /// Runs a client's handshake and put on a server that fails at that call. Returns what the client gets, and the warnings.
    fn exchange(fails_at: u32, fault: Option<Fault>) -> (Vec<String>, Vec<String>) {
        let limits = Limits::for_ranks(1);
        let server = || OwnedServer::new(limits, 7).unwrap();
        let warnings = Warnings::default();
        let faulty = Faulty { server: server(), calls: 0, fails_at, fault };
        let mut spared = Spared::new(faulty, server(), &warnings);
        let init = b"cmd=init pmi_version=1 pmi_subversion=1\n";
        let put = b"cmd=put kvsname=job key=a value=b\n";
        let mut replies = Vec::new();
        for (input, refused) in [
            (Input::RegisterJob(JobSpec::new(JOB, "job", 1)), None),
            (Input::Opened { conn: CONN, job: JOB, rank: Some(Rank(0)) }, None),
            (Input::Bytes { conn: CONN, bytes: init, full: false }, None),
            (Input::DeregisterJob { job: JobId(5) }, Some(Fault::NoSuchJob)),
            (Input::Bytes { conn: CONN, bytes: put, full: false }, None),
        ] {
            let handled = spared.handle(Time(1), input);
            assert_eq!(handled.err().and_then(|why| why.fault()), refused, "{input:?}");
            let mut buf = vec![0; limits.output_room()];
            while let Some(output) = spared.poll(&mut buf).unwrap() {
                if let Output::Bytes { bytes, .. } = output {
                    replies.push(String::from_utf8(bytes.to_vec()).unwrap());
                }
            }
        }
        (replies, warnings.take())
    }

    // Fault: A plugin or a board with `--spare native` refuses an input that a correct server accepts
    // Outcome: the job goes on; a warning names it
    // Guarantee: The spare is asked whether it refuses the input too
    #[test]
    fn clients_do_not_notice_a_core_that_fails_or_refuses() {
        let (expected, quiet) = exchange(0, None);
        assert_eq!((expected.len(), quiet.len()), (2, 0));
        for call in 1..=5 {
            for (fault, why) in [
                (None, "warning: board b: it is gone; "),
                (Some(Fault::NoSuchRank), "warning: board b refuses what the built-in server accepts: "),
            ] {
                let (replies, warnings) = exchange(call, fault);
                assert_eq!((&replies, warnings.len()), (&expected, 1), "{warnings:?}");
                assert!(warnings[0].starts_with(why), "{warnings:?}");
                assert!(warnings[0].ends_with("; the built-in server has taken its place"), "{warnings:?}");
            }
        }
    }
}
