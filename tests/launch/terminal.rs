//! `hydrant run` on a terminal: prompts, end of input, Ctrl-C, Ctrl-Z, foreground and background.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

use hydrant_tests::plain::hydrant_path;
use rustix::fs::{Mode, OFlags, open};
use rustix::process::{Pid, Signal, ioctl_tiocsctty, kill_process, setsid};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};

/// A terminal with a program in its foreground, and whoever sits before it.
struct Terminal {
    screen: File,
    child: Child,
    seen: Vec<u8>,
}

impl Terminal {
    fn start(command: &mut Command) -> Terminal {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let terminal: File =
            open(ptsname(&master, Vec::new()).unwrap(), flags, Mode::empty()).unwrap().into();
        // An interrupt key throws away what is on its way to the screen, perhaps what its signal has led to as well.
        let mut modes = tcgetattr(&terminal).unwrap();
        modes.local_modes |= LocalModes::NOFLSH;
        tcsetattr(&terminal, OptionalActions::Now, &modes).unwrap();
        let copy = || terminal.try_clone().unwrap();
        command.stdin(copy()).stdout(copy()).stderr(copy());
        // SAFETY: all calls are async-signal-safe system calls that touch no memory.
        unsafe {
            command.pre_exec(|| {
                // A test run in the background of a script would hand on that interrupts are ignored.
                libc::signal(libc::SIGINT, libc::SIG_DFL);
                setsid()?;
                Ok(ioctl_tiocsctty(rustix::stdio::stdin().as_fd())?)
            });
        }
        Terminal { screen: master.into(), child: command.spawn().unwrap(), seen: Vec::new() }
    }

    fn hydrant(ranks: &str, script: &str) -> Terminal {
        Terminal::start(Command::new(hydrant_path()).args(["run", "-n", ranks, "sh", "-c", script]))
    }

    fn type_in(&mut self, keys: &str) {
        self.screen.write_all(keys.as_bytes()).unwrap();
    }

    /// Reads on until the text has appeared.
    fn expect(&mut self, text: &str) {
        loop {
            if let Some(at) = self.seen.windows(text.len()).position(|window| window == text.as_bytes()) {
                self.seen.drain(..at + text.len());
                return;
            }
            let mut buffer = [0; 4096];
            let len = self.screen.read(&mut buffer).unwrap_or(0);
            assert!(len > 0, "{text:?} does not appear in {:?}", String::from_utf8_lossy(&self.seen));
            self.seen.extend_from_slice(&buffer[..len]);
        }
    }

    fn end(mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            // Who leads the session takes it along.
            let _ = kill_process(Pid::from_child(&self.child), Signal::KILL);
            let _ = self.child.wait();
        }
    }
}

#[test]
fn a_prompt_is_shown_and_answered() {
    let script =
        r#"test $PMI_RANK = 0 || exit 0; printf 'name? '; read name; echo "hi $name"; cat; echo over"#;
    let mut terminal = Terminal::hydrant("2", script);
    terminal.expect("name? ");
    terminal.type_in("you\n");
    terminal.expect("hi you\r\n");
    terminal.type_in("more\n");
    terminal.expect("more\r\nmore\r\n");
    terminal.type_in("\x04");
    terminal.expect("over\r\n");
    assert_eq!(terminal.end(), Some(0));
}

#[test]
fn control_c_ends_the_job() {
    // Nothing is started meanwhile: dash may lose a signal that comes while it does so.
    let mut terminal = Terminal::hydrant("2", "echo up; while :; do :; done");
    terminal.expect("up\r\nup\r\n");
    terminal.type_in("\x03");
    terminal.expect("the job was ended by SIGINT");
    assert_eq!(terminal.end(), Some(130));
}

#[test]
fn control_z_stops_and_fg_continues() {
    let script = format!(
        "set -m; {} run -n 1 sh -c 'echo up; read x; echo got $x'; echo stopped $?; fg; echo ended $?",
        hydrant_path()
    );
    let mut terminal = Terminal::start(Command::new("sh").args(["-c", &script]));
    terminal.expect("up\r\n");
    terminal.type_in("\x1a");
    terminal.expect("stopped 148");
    terminal.type_in("word\n");
    terminal.expect("got word\r\n");
    terminal.expect("ended 0");
    assert_eq!(terminal.end(), Some(0));
}

#[test]
fn in_the_background_the_terminal_is_somebody_elses() {
    let script = format!(
        "set -m; {} run -n 1 sh -c 'echo up; read x; echo got $x' & read y; echo shell $y; fg; echo ended $?",
        hydrant_path()
    );
    let mut terminal = Terminal::start(Command::new("sh").args(["-c", &script]));
    terminal.expect("up\r\n");
    terminal.type_in("one\n");
    // Typed ahead: it is read once the job is in the foreground.
    terminal.type_in("two\n");
    terminal.expect("shell one\r\n");
    terminal.expect("got two\r\n");
    terminal.expect("ended 0");
    assert_eq!(terminal.end(), Some(0));
}
