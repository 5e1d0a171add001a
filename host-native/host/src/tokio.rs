//! Host in a program of tokio.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::{Error, Event, Host};

/// A [`Host`] whose events a task of tokio awaits. Feature `tokio`.
///
/// ```
/// use hydrant_host::{AsyncHost, Event, Exit, Host, Job, Rank, Settings};
///
/// # tokio::runtime::Builder::new_current_thread().enable_io().build()?.block_on(async {
/// let mut host = Host::open(&Settings::for_ranks(1))?;
/// let job = host.register_job(&Job::new("app", 1))?;
/// let mut command = std::process::Command::new("true");
/// host.setup_fork(job, Rank(0), &mut command)?;
/// let mut child = command.spawn()?;
/// host.watch(job, Rank(0), child.id())?;
/// let mut host = AsyncHost::new(host)?;
/// loop {
///     match host.next_event().await? {
///         Event::Exited { exit, .. } => break assert_eq!(exit, Exit::Code(0)),
///         event => println!("{event:?}"),
///     }
/// }
/// child.wait()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A launcher that starts ranks by `tokio::process::Command` gives [`Host::setup_fork`] its `as_std_mut`, awaits the child beside
/// the events, and reports its end by [`Host::exited`].
#[derive(Debug)]
pub struct AsyncHost {
    host: Host,
    /// Another descriptor of what the host's is one of.
    ready: AsyncFd<OwnedFd>,
}

impl AsyncHost {
    /// Registers the host's descriptor with the runtime, whose I/O driver is enabled.
    ///
    /// # Errors
    /// The system cannot watch the descriptor, or has none left.
    ///
    /// # Panics
    /// Outside of a runtime, or without its I/O driver, as [`AsyncFd::register`].
    pub fn new(host: Host) -> io::Result<AsyncHost> {
        let fd = host.as_fd().try_clone_to_owned()?;
        // SAFETY: the descriptor stays open until its owner is dropped, and nothing else owns it.
        let ready = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) };
        Ok(AsyncHost { host, ready: ready.map_err(|error| error.into_parts().1)? })
    }

    /// The host, for all other calls. [`next_event`](AsyncHost::next_event) notices what they have left.
    pub fn get_mut(&mut self) -> &mut Host {
        &mut self.host
    }

    /// Gives the host back.
    pub fn into_inner(self) -> Host {
        self.host
    }

    /// Waits for the next event. Cancel safe: a future that is dropped has taken none.
    ///
    /// # Errors
    /// As [`Host::next_event`].
    pub async fn next_event(&mut self) -> Result<Event, Error> {
        loop {
            let ready = self.ready.readable().await;
            let mut ready = ready.map_err(|why| hydrant_reactor::Error { what: "epoll", why })?;
            if let Some(event) = self.host.next_event()? {
                return Ok(event);
            }
            // The runtime is told of changes only. A socket of which one turn has not read all makes none.
            let fds = &mut [PollFd::new(&self.host, PollFlags::IN)];
            if matches!(poll(fds, Some(&Timespec::default())), Ok(0)) {
                ready.clear_ready();
            }
        }
    }
}
