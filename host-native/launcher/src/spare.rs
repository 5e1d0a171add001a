//! Plugin with a spare: a server in this process that takes its place when it fails.

use hydrant_core::server::{Consumed, FenceReport, RankStatus};
use hydrant_core::{Backend, Input, JobId, Limits, Output, Rank, Time};
use hydrant_driver::{BackendError, OwnedServer};
use hydrant_record::{Difference, Journal};

use crate::error::RunError;
use crate::messages::Warnings;
use crate::sandbox::Sandboxed;
use crate::saved::Saved;

/// Size of a journal in bytes at which the spare catches up. It takes the spare about a millisecond.
const JOURNAL_MAX: usize = 256 << 10;

/// A core in a plugin, and a server in this process that takes the same inputs later.
///
/// When the plugin fails, the server catches up and takes its place, in the middle of the call that has failed. If the
/// server's results or outputs differ from those of the plugin, it cannot: clients have seen the plugin's.
#[derive(Debug)]
pub(crate) struct Spared {
    /// None once the spare has taken its place.
    plugin: Option<Sandboxed>,
    spare: OwnedServer,
    /// What the spare has not seen yet. None if it cannot catch up.
    journal: Option<Journal>,
    /// Buffer for the plugin's outputs, so that an output of the spare can take the place of one that fails.
    buf: Box<[u8]>,
    warnings: Warnings,
}

impl Spared {
    /// Joins a plugin and a server with equal states.
    pub(crate) fn new(plugin: Sandboxed, spare: OwnedServer, warnings: &Warnings) -> Spared {
        let buf = vec![0; spare.limits().output_room()].into();
        let journal = Some(Journal::default());
        Spared { plugin: Some(plugin), spare, journal, buf, warnings: warnings.clone() }
    }

    /// Returns the state.
    pub(crate) fn save(&mut self) -> Result<Saved, RunError> {
        self.catch_up();
        match &mut self.plugin {
            Some(plugin) if self.journal.is_none() => plugin.save(),
            _ => Ok(Saved::of(self.spare.server())),
        }
    }

    /// Has the spare catch up. If it cannot, the plugin goes on without one.
    fn catch_up(&mut self) {
        let Some(journal) = &mut self.journal else { return };
        if let Err(difference) = journal.catch_up(&mut self.spare, BackendError::fault) {
            self.journal = None;
            let why = describe(&difference);
            self.warn(format!("warning: the plugin goes on without its spare, which {why}"));
        }
    }

    /// Puts the spare in the place of the plugin, which has failed.
    ///
    /// # Errors
    /// The plugin's error, if the spare cannot take its place.
    fn take_over(&mut self, failure: BackendError) -> Result<(), BackendError> {
        let Some(mut journal) = self.journal.take() else { return Err(failure) };
        if let Err(difference) = journal.catch_up(&mut self.spare, BackendError::fault) {
            let why = describe(&difference);
            return Err(BackendError::Other(
                format!("{failure}; its spare cannot take its place: it {why}").into(),
            ));
        }
        self.plugin = None;
        self.warn(format!("warning: {failure}; the built-in server has taken its place"));
        Ok(())
    }

    fn warn(&self, line: String) {
        self.warnings.borrow_mut().push(line);
    }
}

fn describe(difference: &Difference) -> String {
    let Difference { recorded, replayed, .. } = difference;
    format!("differs from it: the plugin's is '{recorded}', the spare's '{replayed}'")
}

impl Backend for Spared {
    type Error = BackendError;

    fn handle(&mut self, now: Time, input: Input<'_>) -> Result<Consumed, BackendError> {
        let Some(plugin) = &mut self.plugin else { return self.spare.handle(now, input) };
        let handled = match &mut self.journal {
            Some(journal) => journal.handle(plugin, now, input),
            None => plugin.handle(now, input),
        };
        match handled {
            Err(failure @ BackendError::Other(_)) => {
                self.take_over(failure)?;
                self.spare.handle(now, input)
            }
            handled => handled,
        }
    }

    fn poll<'b>(&mut self, buf: &'b mut [u8]) -> Result<Option<Output<'b>>, BackendError> {
        // Like a server, it keeps its output if `buf` may be too short.
        if buf.len() < self.buf.len() {
            return Ok(None);
        }
        let Some(plugin) = &mut self.plugin else { return self.spare.poll(buf) };
        let Some(journal) = &mut self.journal else { return plugin.poll(buf) };
        match journal.poll(plugin, &mut self.buf) {
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
        self.plugin.as_ref().map_or_else(|| self.spare.poll_at(), Backend::poll_at)
    }

    fn limits(&self) -> &Limits {
        self.spare.limits()
    }

    fn rank_status(&self, job: JobId, rank: Rank) -> Option<RankStatus<'_>> {
        self.plugin.is_none().then(|| self.spare.rank_status(job, rank))?
    }

    fn fence_report(&self, job: JobId) -> Option<FenceReport> {
        self.plugin.is_none().then(|| self.spare.fence_report(job))?
    }
}
