//! Which variables a rank starts with, before the launcher adds what is the rank's own.
//!
//! Inherited variables pass unless they belong to another launcher: a rank must not take itself for somebody else's.
//! MPICH refuses to start when `PMIX_RANK` or `PRTE_LAUNCHED` reach it from outside, and Intel MPI asks
//! `HYDRA_BSTRAP_PGID` and `PALS_PMI` who started it. What the user assigns by name passes whatever it is called,
//! except for [`OWN_VARIABLES`](crate::plan::OWN_VARIABLES).

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use super::args::{JobArgs, ProgramArgs};
use super::value::Assignment;

/// Names and beginnings of names that belong to a launcher, be it another or an outer one of our own.
pub(super) const FOREIGN: [&str; 14] = [
    "PMI_",
    "PMI2_",
    "PMIX_",
    "PRTE_",
    "PRRTE_",
    "HYDI_",
    "HYDRA_BSTRAP_",
    "PALS_",
    "MPI_LOCALRANKID",
    "MPI_LOCALNRANKS",
    "OMPI_COMM_WORLD_",
    "OMPI_UNIVERSE_SIZE",
    "HYDRANT_QUERY",
    "HYDRANT_KVS",
];

/// Switches of the client libraries that only look like a launcher's: the user's, and inherited.
pub(super) const TUNABLES: [&str; 5] =
    ["PMI_DEBUG", "PMI2_DEBUG", "PMI_USE_LOGFILE", "PMI_VERSION", "PMI_SUBVERSION"];

/// A whole environment in the order in which it is handed to a process.
pub(super) type Environment = Vec<(OsString, OsString)>;

/// The environment of one program's ranks, out of the launcher's own.
pub(super) fn build(inherited: &Environment, job: &JobArgs, program: &ProgramArgs) -> Environment {
    let of_job = Inherit::from(job.genvall, job.genvnone, &job.genvlist).unwrap_or(Inherit::All);
    let inherit = Inherit::from(program.envall, program.envnone, &program.envlist).unwrap_or(of_job);

    let mut env = Environment::new();
    for (name, value) in inherited.iter().filter(|(name, _)| inherit.passes(name) && !is_foreign(name)) {
        set(&mut env, name, value);
    }
    for Assignment { name, value } in job.genv.iter().chain(&program.env) {
        set(&mut env, name, value);
    }
    env
}

/// What is passed on of the launcher's own environment.
#[derive(Clone, Copy)]
enum Inherit<'a> {
    All,
    None,
    List(&'a [OsString]),
}

impl<'a> Inherit<'a> {
    /// What the options say, if they say anything. Parsing has left the last of the three.
    fn from(all: bool, none: bool, list: &'a [OsString]) -> Option<Inherit<'a>> {
        match (all, none, list) {
            (true, _, _) => Some(Inherit::All),
            (_, true, _) => Some(Inherit::None),
            (_, _, []) => None,
            (_, _, list) => Some(Inherit::List(list)),
        }
    }

    fn passes(self, name: &OsStr) -> bool {
        match self {
            Inherit::All => true,
            Inherit::None => false,
            Inherit::List(names) => names.iter().any(|listed| listed == name),
        }
    }
}

fn is_foreign(name: &OsStr) -> bool {
    let bytes = name.as_bytes();
    FOREIGN.iter().any(|foreign| bytes.starts_with(foreign.as_bytes()))
        && !TUNABLES.iter().any(|tunable| bytes == tunable.as_bytes())
}

/// A name stands in an environment once; the later value holds.
fn set(env: &mut Environment, name: &OsStr, value: &OsStr) {
    match env.iter_mut().find(|(known, _)| known == name) {
        Some((_, old)) => *old = value.to_owned(),
        None => env.push((name.to_owned(), value.to_owned())),
    }
}
