//! Debugger that has started this launcher, as a tool of the run, and the first job, which it lets start.

use hydrant_control::Event as HeadEvent;
use hydrant_core::JobId;
use hydrant_core::wire::pmix::{Infos, status};

use super::tool_jobs::{FIRST_JOB, Wishes};
use super::{Engine, Head};
use crate::debugger_call::{DebuggerCall, DebuggerCallError, INTEGERS, Launcher, answer_len};
use crate::error::RunError;

/// A debugger that has not let the first job start.
pub(super) enum CalledDebugger {
    /// Daemons are started meanwhile.
    Called(Box<DebuggerCall>),
    /// It is a tool of the run.
    Attached {
        uri: String,
        launcher: Launcher,
        /// Its job as a tool.
        job: JobId,
        /// What it wants of the first job.
        wishes: Wishes,
    },
}

impl CalledDebugger {
    /// Whether it is this tool of the run, and `suits` holds for the launcher.
    fn is_tool(&self, tool: JobId, suits: impl Fn(&Launcher) -> bool) -> bool {
        matches!(self, CalledDebugger::Attached { launcher, job, .. } if *job == tool && suits(launcher))
    }
}

impl Head {
    /// All daemons are ready for the first job: the debugger becomes a tool of the run.
    pub(super) fn attach_debugger(&mut self, engine: &mut Engine<'_>) -> Result<(), RunError> {
        let Some(CalledDebugger::Called(call)) = self.debugger.take() else { return Ok(()) };
        engine.await_tools()?;
        let wishes = call.directives().ok_or(status::UNPACK_FAILURE);
        // The directives are those of the job, and no program has others.
        let wishes = wishes.and_then(|directives| Wishes::read(&directives, &[Infos::EMPTY]));
        let DebuggerCall { uri, client, launcher, received, .. } = *call;
        let failed = |why| RunError::Debugger { uri: uri.clone(), why };
        let wishes = wishes.map_err(|code| failed(DebuggerCallError::Directives(code)))?;
        let job = self.job_for_tool(engine)?.ok_or_else(|| failed(DebuggerCallError::NoRoom))?;
        let is_open = engine.open_tool(job, |driver, now, poller| {
            driver.open_called(client, job, (&received, answer_len()), now, poller)
        })?;
        if !is_open {
            return Err(failed(DebuggerCallError::NoRoom));
        }
        engine.tools.debugger = Some(job);
        self.debugger = Some(CalledDebugger::Attached { uri, launcher, job, wishes });
        Ok(())
    }

    /// A tool lets processes go on. The debugger of the first job may let the launcher go on, which starts the job then.
    pub(super) fn release_first_job(
        &mut self,
        engine: &mut Engine<'_>,
        tool: JobId,
        infos: &Infos<'_>,
    ) -> Result<(), RunError> {
        let is_meant = |launcher: &Launcher| launcher.is_meant(infos);
        let debugger = self.debugger.take_if(|debugger| debugger.is_tool(tool, is_meant));
        let Some(CalledDebugger::Attached { job, wishes, .. }) = debugger else { return Ok(()) };
        let Wishes { channels, options, mut stopped } = wishes;
        let stopped = stopped.pop().unwrap_or_default();
        self.add_tool_job((FIRST_JOB, job), INTEGERS, channels, &options);
        let tool = engine.name_of_tool(job);
        self.handle(engine, HeadEvent::FirstJobReleased { upcall: FIRST_JOB, job, tool, stopped, options })
    }

    /// A tool has left. The first job does not start if its debugger has not let it.
    pub(super) fn check_debugger(&mut self, tool: JobId) -> Result<(), RunError> {
        match self.debugger.take_if(|debugger| debugger.is_tool(tool, |_| true)) {
            Some(CalledDebugger::Attached { uri, .. }) => {
                Err(RunError::Debugger { uri, why: DebuggerCallError::Left })
            }
            _ => Ok(()),
        }
    }
}
