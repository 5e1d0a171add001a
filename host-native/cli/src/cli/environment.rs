//! Environment of ranks: inherited and assigned variables, before the variables that the launcher adds for each rank.
//!
//! Inherited [variables of other launchers](hydrant_driver::FOREIGN_VARIABLES) are dropped. Variables that the user assigns
//! are kept, except for [`OWN_VARIABLES`](hydrant_run::plan::OWN_VARIABLES).

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use hydrant_driver::is_foreign_variable;

use crate::value::Assignment;

/// Names and values, in the order in which a process receives them.
pub(super) type Environment = Vec<(OsString, OsString)>;

/// Variable with the collective components that Open MPI uses.
const COLLECTIVES: &str = "OMPI_MCA_coll";

/// Returns the value of a variable of the launcher.
pub(super) fn variable<'e>(environment: &'e Environment, name: &str) -> Option<&'e OsStr> {
    environment.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_os_str())
}

/// Environment options of the job or of one program.
#[derive(Clone, Copy)]
pub(super) struct EnvironmentOptions<'a> {
    /// `--genvall`, `--envall`.
    pub(super) all: bool,
    /// `--genvnone`, `--envnone`.
    pub(super) none: bool,
    /// `--genvlist`, `--envlist`.
    pub(super) list: &'a [OsString],
    /// `--genv`, `--env`.
    pub(super) assigned: &'a [Assignment],
}

/// Builds the environment of one program's ranks from the launcher's. Options of the program override those of the
/// job.
pub(super) fn build(
    inherited: &Environment,
    job: EnvironmentOptions<'_>,
    program: EnvironmentOptions<'_>,
) -> Environment {
    let inherit = Inherit::from(program).or(Inherit::from(job)).unwrap_or(Inherit::All);
    let mut env = Environment::new();
    let is_kept = |name: &OsStr| inherit.includes(name) && !is_foreign_variable(name.as_bytes());
    for (name, value) in inherited.iter().filter(|(name, _)| is_kept(name)) {
        set(&mut env, name, value);
    }
    for Assignment { name, value } in job.assigned.iter().chain(program.assigned) {
        set(&mut env, name, value);
    }
    choose_collectives(&mut env);
    env
}

/// Leaves Open MPI's `han` collectives out where its fault tolerance is enabled, unless the user has chosen collectives: the
/// survivors of a death on several hosts crash in them, under `mpirun` as well. Open MPI itself leaves out the other two.
fn choose_collectives(env: &mut Environment) {
    let enabled = variable(env, "OMPI_MCA_mpi_ft_enable").and_then(OsStr::to_str);
    if enabled.is_some_and(|enabled| ["1", "true", "yes"].contains(&enabled))
        && variable(env, COLLECTIVES).is_none()
    {
        set(env, COLLECTIVES.as_ref(), "^han,hcoll,portals4".as_ref());
    }
}

/// Selection of inherited variables.
#[derive(Clone, Copy)]
enum Inherit<'a> {
    All,
    None,
    List(&'a [OsString]),
}

impl<'a> Inherit<'a> {
    /// The selection that the options make, if any. At most one of the three is set: the last one overrides.
    fn from(options: EnvironmentOptions<'a>) -> Option<Inherit<'a>> {
        match options {
            EnvironmentOptions { all: true, .. } => Some(Inherit::All),
            EnvironmentOptions { none: true, .. } => Some(Inherit::None),
            EnvironmentOptions { list: [], .. } => None,
            EnvironmentOptions { list, .. } => Some(Inherit::List(list)),
        }
    }

    fn includes(self, name: &OsStr) -> bool {
        match self {
            Inherit::All => true,
            Inherit::None => false,
            Inherit::List(names) => names.iter().any(|listed| listed == name),
        }
    }
}

/// Adds a variable or replaces its value.
fn set(env: &mut Environment, name: &OsStr, value: &OsStr) {
    match env.iter_mut().find(|(known, _)| known == name) {
        Some((_, old)) => *old = value.to_owned(),
        None => env.push((name.to_owned(), value.to_owned())),
    }
}
