//! The server of an endpoint, with recordings of its jobs.

use std::ops::{Deref, DerefMut};
use std::path::PathBuf;
use std::rc::Rc;

use hydrant_core::server::{Consumed, Input, Output};
use hydrant_core::{Backend, BackendError, Limit, Limits, Server, Time};
use hydrant_record::{Journal, RecordingFile, WriteError};

/// Maximum length in bytes of all recordings together.
const SIZE_MAX: u64 = 1 << 30;

/// A server and its recordings.
///
/// A recording begins with the first job of a server without jobs. The server starts anew then, so the recording replays on a
/// new one. It ends with the last job. Jobs that run at the same time share it, because they share the server.
pub(crate) struct RecordedServer<'s> {
    server: Server<'s>,
    /// Path of the recordings, without their numbers.
    path: Option<PathBuf>,
    seed: u32,
    /// The recording of the jobs that run.
    file: Option<Rc<RecordingFile>>,
    /// Recording of all that the server does, if another machine writes it to a file.
    journal: Option<Journal>,
    /// Number of recordings so far.
    count: u32,
    /// Bytes that may still be written.
    room: u64,
    error: Option<WriteError>,
}

impl<'s> RecordedServer<'s> {
    /// Wraps a server of that seed. Its jobs are recorded to PATH.1, PATH.2 and so on if there is a path.
    pub(crate) fn new(server: Server<'s>, seed: u32, path: Option<PathBuf>) -> RecordedServer<'s> {
        let (file, journal) = (None, None);
        RecordedServer { server, path, seed, file, journal, count: 0, room: SIZE_MAX, error: None }
    }

    /// Wraps a server without files, and with a [journal](RecordedServer::take_journal) if it `is_recorded`.
    pub(crate) fn of_node(server: Server<'s>, is_recorded: bool) -> RecordedServer<'s> {
        let journal = is_recorded.then(Journal::default);
        RecordedServer { journal, ..RecordedServer::new(server, 0, None) }
    }

    /// Returns the bytes of the journal since the last call.
    pub(crate) fn take_journal(&mut self) -> Vec<u8> {
        self.journal.as_mut().map(Journal::take).unwrap_or_default()
    }

    /// Returns the error that ended a recording, once.
    pub(crate) fn take_error(&mut self) -> Option<WriteError> {
        let of_file = self.file.as_ref().and_then(|file| file.take_error());
        if of_file.is_some() {
            // After an error the length is not known.
            (self.file, self.path) = (None, None);
        }
        self.error.take().or(of_file)
    }

    /// Begins a recording if the server has no jobs and no connections.
    fn begin(&mut self) {
        let Some(path) = &self.path else { return };
        if self.file.is_some() || !self.server.restart() {
            return;
        }
        self.count += 1;
        let mut name = path.clone().into_os_string();
        name.push(format!(".{}", self.count));
        let program = concat!("hydrant serve ", env!("CARGO_PKG_VERSION"));
        match RecordingFile::bounded(name.as_ref(), program, self.server.limits(), self.seed, self.room) {
            Ok(file) => self.file = Some(file),
            Err(error) => (self.error, self.path) = (Some(error), None),
        }
    }

    /// Ends the recording if the server has no jobs.
    fn end(&mut self) {
        if self.server.used(Limit::Jobs) == 0
            && let Some(size) = self.file.as_ref().and_then(|file| file.size())
        {
            self.room = self.room.saturating_sub(size);
            self.file = None;
        }
    }
}

impl<'s> Deref for RecordedServer<'s> {
    type Target = Server<'s>;

    fn deref(&self) -> &Server<'s> {
        &self.server
    }
}

impl DerefMut for RecordedServer<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.server
    }
}

impl Backend for RecordedServer<'_> {
    fn handle(&mut self, now: Time, input: Input<'_>) -> Result<Consumed, BackendError> {
        if let Input::RegisterJob(_) = input {
            self.begin();
        }
        let result = match (&self.file, &mut self.journal) {
            (Some(file), _) => file.handle(&mut self.server, now, input),
            (None, Some(journal)) => journal.handle(&mut self.server, now, input),
            (None, None) => Backend::handle(&mut self.server, now, input),
        };
        if let Input::RegisterJob(_) | Input::DeregisterJob { .. } = input {
            self.end();
        }
        result
    }

    fn poll<'b>(&mut self, buf: &'b mut [u8]) -> Result<Option<Output<'b>>, BackendError> {
        match (&self.file, &mut self.journal) {
            (Some(file), _) => file.poll(&mut self.server, buf),
            (None, Some(journal)) => journal.poll(&mut self.server, buf),
            (None, None) => Backend::poll(&mut self.server, buf),
        }
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
        Some(&self.server)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::io::BufReader;

    use hydrant_core::server::JobSpec;
    use hydrant_core::{ConnId, JobId, Rank};
    use hydrant_driver::MappedStorage;
    use hydrant_record::{Checker, Reader, Summary, replay};

    use super::*;

    const LIMITS: Limits = Limits { jobs: 2, ranks: 2, conns: 2, keys: 8, kvs_bytes: 1024, ..Limits::NONE };

    fn drain(server: &mut RecordedServer<'_>) {
        while Backend::poll(server, &mut vec![0; LIMITS.output_max()]).unwrap().is_some() {}
    }

    fn open(server: &mut RecordedServer<'_>, job: u32) {
        let name = format!("job-{job}");
        server.handle(Time(0), Input::RegisterJob(JobSpec::new(JobId(job), &name, 1))).unwrap();
        let conn = ConnId(job);
        server.handle(Time(1), Input::Opened { conn, job: JobId(job), rank: Some(Rank(0)) }).unwrap();
        let bytes = b"cmd=init pmi_version=1 pmi_subversion=1\ncmd=put kvsname=none key=k value=v\n";
        server.handle(Time(2), Input::Bytes { conn, bytes, full: false }).unwrap();
        drain(server);
    }

    fn forget(server: &mut RecordedServer<'_>, job: u32) {
        server.handle(Time(3), Input::Closed { conn: ConnId(job) }).unwrap();
        server.handle(Time(4), Input::DeregisterJob { job: JobId(job) }).unwrap();
        drain(server);
    }

    /// Replays a recording on a new server. Returns how many inputs and outputs it has.
    fn replayed(path: &PathBuf) -> (u64, u64) {
        let mut reader = Reader::new(BufReader::new(File::open(path).unwrap())).unwrap();
        let mut storage = MappedStorage::new(&LIMITS);
        let mut server = Server::new(LIMITS, storage.lend(), reader.begin().seed).unwrap();
        let checker = Checker::new(&mut server);
        let mut summary = Summary::default();
        replay(&mut reader, Some(checker), None, &mut summary).unwrap();
        (summary.inputs, summary.outputs)
    }

    #[test]
    fn each_job_alone_and_jobs_that_overlap_have_a_recording_that_replays() {
        let dir = std::env::temp_dir().join(format!("hydrant-recorded-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let mut storage = MappedStorage::new(&LIMITS);
        let server = Server::new(LIMITS, storage.lend(), 7).unwrap();
        let mut server = RecordedServer::new(server, 7, Some(dir.join("rec")));
        open(&mut server, 0);
        forget(&mut server, 0);
        open(&mut server, 0);
        open(&mut server, 1);
        forget(&mut server, 0);
        open(&mut server, 0);
        forget(&mut server, 1);
        forget(&mut server, 0);
        // A job that is refused leaves a recording of the refusal.
        server.handle(Time(5), Input::RegisterJob(JobSpec::new(JobId(0), "job", 0))).unwrap_err();
        assert_eq!(replayed(&dir.join("rec.1")), (5, 3));
        assert_eq!(replayed(&dir.join("rec.2")), (15, 9));
        assert_eq!(replayed(&dir.join("rec.3")), (1, 0));
        assert!(server.take_error().is_none() && !dir.join("rec.4").exists());
        // What is left of the room is too little.
        server.room = 300;
        open(&mut server, 0);
        let why = server.take_error().unwrap().to_string();
        assert!(why.contains("rec.4: the recording has reached its maximum of"), "{why}");
        forget(&mut server, 0);
        open(&mut server, 0);
        assert!(server.take_error().is_none() && !dir.join("rec.5").exists(), "later jobs are not recorded");
        fs::remove_dir_all(&dir).unwrap();
    }
}
