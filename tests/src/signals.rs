//! Signal dispositions of programs that a test starts.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Signals that the caller of a test may ignore: `nohup` ignores SIGHUP, and a shell without job control ignores SIGINT and
/// SIGQUIT for background processes.
const RESET: [libc::c_int; 3] = [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT];

/// Gives the program the default action for each signal that the caller of the test may ignore. The test itself keeps its
/// dispositions, so that `nohup` protects it.
pub fn reset_signals(command: &mut Command) -> &mut Command {
    let reset = || {
        for signal in RESET {
            // SAFETY: the call changes the disposition of a signal to its default, without a handler.
            if unsafe { libc::signal(signal, libc::SIG_DFL) } == libc::SIG_ERR {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    };
    // SAFETY: `signal` is async-signal-safe, and the closure allocates nothing.
    unsafe { command.pre_exec(reset) }
}
