//! Pseudo-terminals for the output of ranks.
//!
//! C programs write to a terminal line by line and keep their output for a pipe until the buffer is full. A pseudo-terminal
//! passes bytes on as they are: line ends, echo and control characters are the business of the launcher's own terminal.

use std::os::fd::{AsFd, OwnedFd};

use hydrant_control::protocol::{PseudoTerminals, WindowSize};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::Errno;
use rustix::pty::{OpenptFlags, grantpt, openpt, unlockpt};
use rustix::termios::{OptionalActions, Winsize, isatty, tcgetattr, tcgetwinsize, tcsetattr, tcsetwinsize};

/// Whether output streams of ranks are pseudo-terminals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pty {
    /// Those that go to a terminal.
    #[default]
    Auto,
    /// All of them.
    Always,
    /// None: all are pipes.
    Never,
}

/// Bytes that a pseudo-terminal holds at most: the kernel's buffers of both ends.
pub(crate) const CAPACITY: usize = 256 * 1024;

/// Opens a pseudo-terminal of this size. Returns our end, which does not block, and the rank's.
pub(crate) fn open(size: WindowSize) -> Result<(OwnedFd, OwnedFd), Errno> {
    let (ours, theirs) = open_pair()?;
    let mut modes = tcgetattr(&theirs)?;
    modes.make_raw();
    tcsetattr(&theirs, OptionalActions::Now, &modes)?;
    resize(&ours, size)?;
    fcntl_setfl(&ours, OFlags::RDWR | OFlags::NONBLOCK)?;
    Ok((ours, theirs))
}

/// Sets the size that ranks see.
pub(crate) fn resize(pty: impl AsFd, WindowSize { rows, columns }: WindowSize) -> Result<(), Errno> {
    tcsetwinsize(pty, Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 })
}

/// Returns the size of the launcher's terminal. Without one, that of a terminal of old.
pub fn window_size() -> WindowSize {
    let known =
        [rustix::stdio::stdout(), rustix::stdio::stderr()].into_iter().find_map(|fd| tcgetwinsize(fd).ok());
    known.map_or(WindowSize { rows: 24, columns: 80 }, |size| WindowSize {
        rows: size.ws_row,
        columns: size.ws_col,
    })
}

/// Returns which streams of ranks are pseudo-terminals: those that go to a terminal, or what the user wants. `files_alone`
/// tells whether standard output and error go to files by pattern, and nowhere else.
pub fn pseudo_terminals(wanted: Pty, files_alone: [bool; 2]) -> Option<PseudoTerminals> {
    let is_pty = |is_terminal: bool, file_alone: bool| match wanted {
        Pty::Auto => is_terminal && !file_alone,
        Pty::Always => true,
        Pty::Never => false,
    };
    let stdout = is_pty(isatty(rustix::stdio::stdout()), files_alone[0]);
    let stderr = is_pty(isatty(rustix::stdio::stderr()), files_alone[1]);
    (stdout || stderr).then(|| PseudoTerminals { stdout, stderr, size: window_size() })
}

/// Opens both ends.
#[cfg(target_os = "linux")]
fn open_pair() -> Result<(OwnedFd, OwnedFd), Errno> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let ours = openpt(flags)?;
    grantpt(&ours)?;
    unlockpt(&ours)?;
    // By the descriptor, because the rank's name space of files may have another /dev/pts.
    let theirs = rustix::pty::ioctl_tiocgptpeer(&ours, flags)?;
    Ok((ours, theirs))
}

/// Opens both ends.
#[cfg(not(target_os = "linux"))]
fn open_pair() -> Result<(OwnedFd, OwnedFd), Errno> {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY)?;
    rustix::io::fcntl_setfd(&ours, rustix::io::FdFlags::CLOEXEC)?;
    grantpt(&ours)?;
    unlockpt(&ours)?;
    let name = rustix::pty::ptsname(&ours, Vec::new())?;
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let theirs = rustix::fs::open(name, flags, rustix::fs::Mode::empty())?;
    Ok((ours, theirs))
}
