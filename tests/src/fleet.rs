//! Fleets.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::{Job, Running};

/// A fleet in the foreground (`hydrant up`), with a name that no other one has.
#[derive(Debug)]
pub struct Fleet {
    /// Its name.
    pub name: String,
    /// The command.
    pub running: Running,
}

impl Fleet {
    /// Starts one with these options and waits until it is ready.
    pub fn new(options: &str) -> Fleet {
        Fleet::within("", options)
    }

    /// As [`new`](Fleet::new), started by a program that `wrapper` begins: its name and arguments, separated by blanks.
    pub fn within(wrapper: &str, options: &str) -> Fleet {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("test-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let up = Job::command(&format!("up --foreground --name {name} {options}"));
        let up = match wrapper.split_once(' ') {
            Some((program, words)) => Job::new(program).words(words).args(up.command_line()),
            None => up,
        };
        let running = up.start();
        running.await_stdout("is ready", 1);
        Fleet { name, running }
    }

    /// `hydrant run --on` this fleet.
    pub fn job(&self, options: &str) -> Job {
        Job::command("run --on").arg(&self.name).words(options)
    }

    /// A job of a shell script.
    pub fn shell(&self, options: &str, script: &str) -> Job {
        self.job(options).words("sh -c").arg(script)
    }

    /// Ends the fleet.
    pub fn end(self) {
        Job::command("down").arg(&self.name).run().code(0).quiet();
        self.running.wait().code(0);
    }
}
