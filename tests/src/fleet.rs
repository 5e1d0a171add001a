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
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("test-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let running = Job::command(&format!("up --foreground --name {name} {options}")).start();
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
