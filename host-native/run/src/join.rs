//! Start of a daemon: joins its parent and waits for the setup of the run.

use std::ffi::OsString;
use std::path::PathBuf;

use hydrant_control::protocol::{Order, Report, Setup, decode, encode};
use hydrant_core::trace::SignalName;
use hydrant_overlay::{
    Applicant, Channel, DaemonMain, DaemonSpec, Destination, EnrolError, Event, EventLoop, LifelineLost,
    Overlay, OverlayError, SpecError,
};
use hydrant_reactor::process::{Guardian, outlive_parent};
use hydrant_start::new_job_folder;

use crate::engine::start_guardian;
use hydrant_reactor::{Error, Key, KeyRange, OpenFiles, Reactor};

/// A host that joins a run by itself.
#[derive(Clone, Debug)]
pub struct JoinOptions {
    /// Where it enrols, and what it offers.
    pub applicant: Applicant,
    /// Environment of its ranks, if it comes with their program.
    pub environment: Vec<(OsString, OsString)>,
}

/// Error that ends a daemon before it has got a setup.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// Standard input holds no specification.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// The run does not take this host.
    #[error(transparent)]
    Enrol(#[from] EnrolError),
    /// The links failed.
    #[error(transparent)]
    Overlay(#[from] OverlayError),
    /// The parent is lost.
    #[error(transparent)]
    LifelineLost(#[from] LifelineLost),
    /// A signal ended the daemon.
    #[error("ended by {0}")]
    Signal(SignalName),
}

impl JoinError {
    /// Remedy, if there is a specific one.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            JoinError::Overlay(error) => error.hint(),
            _ => None,
        }
    }
}

/// A daemon that has joined its parent and has the setup of the run.
pub(crate) struct Joined {
    pub(crate) reactor: Reactor,
    pub(crate) files: OpenFiles,
    pub(crate) overlay: Overlay,
    /// Name of this host, as used by the head.
    pub(crate) host: String,
    pub(crate) setup: Setup,
    pub(crate) guardian: Guardian,
    /// Folder for files that the head sends, which the guardian removes. It has not been made yet.
    pub(crate) folder: PathBuf,
}

/// Joins the parent and waits for the setup. Returns none if the parent shuts the node down first. Daemons that are forked
/// run `main`. `signals` and `keys` belong to the event loop that the caller continues with.
///
/// It takes over the process: it blocks signals in the calling thread and collects the exit statuses of child processes.
/// Call it once and from the only thread.
///
/// # Errors
/// The node cannot join, or its parent is lost. All daemons below it have been killed.
pub(crate) fn join(
    spec: DaemonSpec,
    main: DaemonMain,
    signals: Key,
    keys: KeyRange,
) -> Result<Option<Joined>, JoinError> {
    // The link reports the end of the parent, which leaves time to end the processes of the ranks. Without ssh in between,
    // the system would kill this process together with its parent.
    outlive_parent().map_err(Error::during("prctl")).map_err(OverlayError::from)?;
    let host = spec.host().to_owned();
    let mut event_loop = EventLoop::new(spec.radix(), signals)?;
    let folder = new_job_folder();
    let guardian = start_guardian(&[&folder]).map_err(OverlayError::from)?;
    let now = event_loop.now();
    let (files, poller) = (&event_loop.files, &event_loop.reactor.poller);
    let mut overlay = Overlay::daemon(spec, Some(main), now, keys, files, poller)?;
    loop {
        while let Some(event) = overlay.next_event() {
            let now = event_loop.now();
            match event {
                Event::Message { from, channel: Channel::Control, body, .. } => match decode(&body) {
                    Some(Order::Setup(setup)) => {
                        let EventLoop { reactor, files, .. } = event_loop;
                        let setup = *setup;
                        return Ok(Some(Joined { reactor, files, overlay, host, setup, guardian, folder }));
                    }
                    Some(Order::Identify) => {
                        let here = encode(&Report::Identity { pid: std::process::id() });
                        // The report is short, and its destination exists.
                        let _ = overlay.route(now, Destination::Node(from), Channel::Control, &here);
                    }
                    _ => {}
                },
                Event::Message { via, body, .. } => overlay.consumed(via, body.len() as u32),
                Event::Shutdown => overlay.shutdown(now, &event_loop.reactor.poller),
                Event::Closed => return Ok(None),
                Event::LifelineLost(error) => return Err(error.into()),
                // The overlay reports failures to the head, which decides.
                Event::Failed(_)
                | Event::Retrying(_)
                | Event::Applied { .. }
                | Event::Turned { .. }
                | Event::Joined { .. }
                | Event::Left { .. }
                | Event::Complete
                | Event::CreditAvailable { .. } => {}
            }
        }
        if let Some(signal) = event_loop.turn(&mut overlay)?.signal {
            return Err(JoinError::Signal(SignalName(signal.as_raw())));
        }
    }
}
