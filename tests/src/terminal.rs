//! An interactive shell on a pseudo terminal, for what only happens there: Ctrl-C, Ctrl-Z, `fg`.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Instant;

use rustix::process::{Pid, Signal};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::{PATIENCE, reset_signals};

/// A shell with job control on a terminal of its own. Dropping it hangs the terminal up, which ends what runs there.
#[derive(Debug)]
pub struct Terminal {
    shell: Child,
    keyboard: File,
    screen: Receiver<Vec<u8>>,
    seen: String,
    deadline: Instant,
}

impl Terminal {
    /// Opens a terminal and starts `bash` there, without any start-up file and with `ready> ` as its prompt.
    pub fn open() -> Terminal {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)
            .expect("the system has pseudo terminals");
        grantpt(&master).expect("a fresh terminal is ours to grant");
        unlockpt(&master).expect("a fresh terminal is ours to unlock");
        let name = ptsname(&master, Vec::new()).expect("a terminal has a name");
        let name = name.to_str().expect("a terminal's name is ASCII");
        let side = OpenOptions::new().read(true).write(true).open(name).expect("the terminal is there");
        let copy = || Stdio::from(side.try_clone().expect("a descriptor can be copied"));
        // setsid makes the terminal the shell's own, so that Ctrl-C and Ctrl-Z become signals.
        let shell = reset_signals(&mut Command::new("setsid"))
            .args(["--ctty", "bash", "--norc", "--noprofile", "--noediting", "-i"])
            .env_remove("LD_LIBRARY_PATH")
            .env("PS1", "ready> ")
            .stdin(copy())
            .stdout(copy())
            .stderr(copy())
            .spawn()
            .expect("util-linux has setsid");
        let keyboard = File::from(master);
        let mut output = keyboard.try_clone().expect("a descriptor can be copied");
        let (sender, screen) = mpsc::channel();
        thread::spawn(move || {
            let mut buf = [0; 4096];
            // A terminal whose last process has gone reads as an error.
            while let Ok(n @ 1..) = output.read(&mut buf) {
                if sender.send(buf[..n].to_vec()).is_err() {
                    return;
                }
            }
        });
        let mut terminal =
            Terminal { shell, keyboard, screen, seen: String::new(), deadline: Instant::now() + PATIENCE };
        // An interrupt key throws away what is on its way to the screen, perhaps what its signal has led to as well.
        terminal.type_in("stty -echo noflsh\n");
        terminal.expect("ready> ");
        terminal.expect("ready> ");
        terminal
    }

    /// Types; `\x03` is Ctrl-C and `\x1a` is Ctrl-Z.
    pub fn type_in(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).expect("the terminal is open");
    }

    /// Sets the size of the window. The system sends `SIGWINCH` to the programs in the foreground.
    pub fn resize(&mut self, rows: u16, columns: u16) {
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&self.keyboard, size).expect("the terminal is open");
    }

    /// Waits until `text` shows up behind what earlier calls waited for; gives what came before it.
    #[track_caller]
    pub fn expect(&mut self, text: &str) -> String {
        loop {
            if let Some(at) = self.seen.find(text) {
                let before = self.seen[..at].to_owned();
                self.seen.drain(..at + text.len());
                return before;
            }
            let left = self.deadline.saturating_duration_since(Instant::now());
            match self.screen.recv_timeout(left) {
                Ok(bytes) => self.seen.push_str(&String::from_utf8_lossy(&bytes)),
                Err(e) => panic!("waiting for {text:?}: {e}; the screen shows\n{}", self.seen),
            }
        }
    }

    /// Waits for the end of the shell, or of the program that took its place with `exec`.
    #[track_caller]
    pub fn wait(mut self) -> ExitStatus {
        let group = Pid::from_child(&self.shell);
        assert!(crate::running::ended(group, self.deadline), "hung; the screen shows\n{}", self.seen);
        self.shell.wait().expect("the shell is a child")
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if matches!(self.shell.try_wait(), Ok(Some(_))) {
            return;
        }
        let group = Pid::from_child(&self.shell);
        // The shell leads the session: its end hangs up all that runs on the terminal.
        let _ = rustix::process::kill_process_group(group, Signal::HUP);
        let _ = rustix::process::kill_process_group(group, Signal::KILL);
        drop(self.shell.wait());
    }
}
