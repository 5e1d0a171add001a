//! Pseudo-terminals for the output of ranks.
//!
//! C programs write to a terminal line by line and keep their output for a pipe until the buffer is full. A pseudo-terminal
//! passes bytes on as they are: line ends, echo and control characters are the business of the launcher's own terminal.

use std::os::fd::{AsFd, OwnedFd};

use hydrant_control::protocol::{PseudoTerminals, WindowSize};
use hydrant_launch::open_pty;
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::Errno;
use rustix::termios::{OptionalActions, Winsize, isatty, tcgetattr, tcgetwinsize, tcsetattr, tcsetwinsize};

use crate::plan::{Options, Pty};

/// Bytes that a pseudo-terminal holds at most: the kernel's buffers of both ends.
pub(super) const CAPACITY: usize = 256 * 1024;

/// Opens a pseudo-terminal of this size. Returns our end, which does not block, and the rank's.
pub(super) fn open(size: WindowSize) -> Result<(OwnedFd, OwnedFd), Errno> {
    let (ours, theirs) = open_pty()?;
    let mut modes = tcgetattr(&theirs)?;
    modes.make_raw();
    tcsetattr(&theirs, OptionalActions::Now, &modes)?;
    resize(&ours, size)?;
    fcntl_setfl(&ours, OFlags::RDWR | OFlags::NONBLOCK)?;
    Ok((ours, theirs))
}

/// Sets the size that ranks see.
pub(super) fn resize(pty: impl AsFd, WindowSize { rows, columns }: WindowSize) -> Result<(), Errno> {
    tcsetwinsize(pty, Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 })
}

/// Returns the size of the launcher's terminal. Without one, that of a terminal of old.
pub(super) fn window_size() -> WindowSize {
    let known =
        [rustix::stdio::stdout(), rustix::stdio::stderr()].into_iter().find_map(|fd| tcgetwinsize(fd).ok());
    known.map_or(WindowSize { rows: 24, columns: 80 }, |size| WindowSize {
        rows: size.ws_row,
        columns: size.ws_col,
    })
}

/// Returns which streams of ranks are pseudo-terminals: those that go to a terminal, or what the user wants.
pub(super) fn wanted(options: &Options) -> Option<PseudoTerminals> {
    let is_pty = |is_terminal: bool, pattern: &Option<String>| match options.pty {
        Pty::Auto => is_terminal && pattern.is_none(),
        Pty::Always => true,
        Pty::Never => false,
    };
    let stdout = is_pty(isatty(rustix::stdio::stdout()), &options.outfile_pattern);
    let stderr = is_pty(isatty(rustix::stdio::stderr()), &options.errfile_pattern);
    (stdout || stderr).then(|| PseudoTerminals { stdout, stderr, size: window_size() })
}
