//! The `hydrant` command as a library: plans a job, launches it and serves it.

mod border;
pub mod cli;
pub mod cluster;
mod engine;
mod error;
mod launch;
mod manage;
pub mod plan;
pub mod probe;
pub mod recording;
pub mod replay;
#[cfg(feature = "sandbox")]
mod sandbox;
mod segment;
pub mod serve;
pub mod storage;
pub mod universe;

pub use border::BackendError;
pub use engine::{DaemonError, daemon, run};
pub use error::RunError;
pub use manage::BoardError;

/// What [`run`] would do, in words; nothing is started.
///
/// # Errors
/// The job could not run where it should.
pub fn dry_run(plan: &mut plan::Plan) -> Result<String, RunError> {
    let around = cluster::Surroundings::of_process();
    let location = cluster::locate(plan, &around).map_err(Box::new)?;
    let bootstrap = match &location {
        cluster::Location::Here => &plan::Bootstrap::Local,
        cluster::Location::Nodes(layout) => &layout.bootstrap,
    };
    let hydrant = cluster::program(plan.options.cluster.remote_hydrant.as_ref(), bootstrap)?;
    cluster::describe(plan, &location, &around, &hydrant)
}
