//! Checks of a machine, an environment and a program before an MPI job.
//!
//! [`examine`] returns a [`Finding`] for each check. The facts come from a [`Machine`], which tests can make up:
//!
//! ```
//! use hydrant_doctor::{Level, Machine, Question, examine};
//!
//! let machine = Machine::current();
//! let findings = examine(&machine, &Question::default());
//! for finding in findings.iter().filter(|finding| finding.level == Level::Problem) {
//!     eprintln!("{}: {}", finding.topic, finding.text);
//! }
//! ```
//!
//! [`kind`] and [`needed_libraries`] read program files, and [`library`] knows the MPI libraries among the shared ones.

mod elf;
mod environment;
mod finding;
mod library;
mod limits;
mod machine;
mod network;
mod program;
mod ssh;
mod system;

pub use elf::{
    NoExec, dynamic_linker, kind, library_file, needed_libraries, script_interpreter, shared_object_name,
};
pub use finding::{Finding, Level, render};
pub use library::{Library, Protocol, library};
pub use machine::{Limit, Machine};

use std::ffi::OsString;

use hydrant_placement::HostSource;

/// Subject of an examination.
#[derive(Clone, Debug, Default)]
pub struct Question {
    /// Hosts of the job.
    pub hosts: HostSource,
    /// Program of the ranks: a path, or a name that is searched in `PATH`, then in the working directory.
    pub program: Option<OsString>,
}

/// Checks a machine for a job.
///
/// Each check reads a bounded number of bytes. Nothing waits for another machine.
pub fn examine(machine: &Machine, question: &Question) -> Vec<Finding> {
    let mut findings = limits::check(machine);
    findings.extend(system::check(machine));
    findings.extend(network::check(machine));
    findings.extend(environment::check(machine));
    findings.extend(ssh::check(machine, &question.hosts));
    if let Some(command) = &question.program {
        findings.extend(program::check(machine, command));
    }
    findings
}
