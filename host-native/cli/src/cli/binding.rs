//! Conversion of the options of processors and memory.

use hydrant_placement::{Binding, CpuBinding, Level, Objects};

use super::args::JobArgs;
use super::argument::ParsedOption;
use super::conflict::conflict;
use super::error::UsageError;

/// Converts the options of processors and memory.
pub(super) fn binding(job: &JobArgs, options: &[ParsedOption]) -> Result<Binding, UsageError> {
    let mapping = job.hosts.map_by.unwrap_or_default();
    let cpus = match (&job.bind_to, job.cpus_per_rank.or(mapping.cores)) {
        (Some(how), None) => how.clone(),
        (Some(CpuBinding::None), Some(_)) => CpuBinding::None,
        (
            Some(CpuBinding::Objects(Objects { level: level @ (Level::Core | Level::Hwthread), count: 1 })),
            Some(count),
        ) => CpuBinding::Objects(Objects { level: *level, count }),
        (Some(_), Some(_)) => {
            let why = "it binds to cores; only -bind-to core, hwthread and none go with it";
            conflict(options, "bind_to", "cpus_per_rank", why)?;
            conflict(options, "bind_to", "map_by", why)?;
            unreachable!("both options are given")
        }
        (None, Some(count)) => CpuBinding::Objects(Objects { level: Level::Core, count }),
        (None, None) => mapping.objects.map_or(CpuBinding::None, CpuBinding::Objects),
    };
    Ok(Binding { cpus, map_by: mapping.objects, memory: job.membind.clone(), report: job.report_bindings })
}
