//! Resource managers, and the allocation of the job that this process is part of.

use std::path::Path;

use crate::environment::Environment;
use crate::error::{LineError, PlacementError};
use crate::excerpt::excerpt;
use crate::hostfile::{self, Format};
use crate::hostlist;
use crate::hosts::{self, Host, Hosts};

/// A resource manager (batch system).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResourceManager {
    /// Slurm: `SLURM_JOB_NODELIST`.
    Slurm,
    /// PBS and Torque: `PBS_NODEFILE`.
    Pbs,
    /// LSF: `LSB_MCPU_HOSTS`.
    Lsf,
    /// Grid Engine: `PE_HOSTFILE`.
    Sge,
}

impl ResourceManager {
    /// Its usual name.
    pub fn name(self) -> &'static str {
        match self {
            ResourceManager::Slurm => "Slurm",
            ResourceManager::Pbs => "PBS",
            ResourceManager::Lsf => "LSF",
            ResourceManager::Sge => "SGE",
        }
    }
}

/// The allocated hosts with their slots, if this process is in a job of a resource manager. The order of precedence is
/// Slurm, PBS, LSF, Grid Engine.
pub(crate) fn allocation(
    environment: &Environment<'_>,
) -> Result<Option<(ResourceManager, Hosts)>, PlacementError> {
    for (resource_manager, read) in [
        (ResourceManager::Slurm, slurm as fn(&Environment<'_>) -> _),
        (ResourceManager::Pbs, pbs),
        (ResourceManager::Lsf, lsf),
        (ResourceManager::Sge, sge),
    ] {
        if let Some(hosts) = read(environment)? {
            return Ok(Some((resource_manager, hosts)));
        }
    }
    Ok(None)
}

/// The name and value of a variable, if it is set.
fn text(
    environment: &Environment<'_>,
    variable: &'static str,
) -> Result<Option<(&'static str, String)>, PlacementError> {
    let Some(value) = environment.variable(variable) else { return Ok(None) };
    match value.into_string() {
        Ok(text) => Ok(Some((variable, text))),
        Err(bytes) => Err(invalid(variable, &bytes.to_string_lossy())(LineError::NotUtf8)),
    }
}

/// The name and value of the first of several variables that is set.
fn first(
    environment: &Environment<'_>,
    names: &[&'static str],
) -> Result<Option<(&'static str, String)>, PlacementError> {
    for name in names {
        if let Some(found) = text(environment, name)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// For `map_err`: adds the name and value of the variable to an error.
fn invalid<E: Into<LineError>>(variable: &'static str, value: &str) -> impl Fn(E) -> PlacementError {
    let value = excerpt(value);
    move |why| PlacementError::Variable { variable, value: value.clone(), why: why.into() }
}

/// sbatch(1), "OUTPUT ENVIRONMENT VARIABLES": host names in short form, and the number of tasks of each in the same
/// order. Without tasks, the number of processors counts.
fn slurm(environment: &Environment<'_>) -> Result<Option<Hosts>, PlacementError> {
    let Some((variable, list)) = first(environment, &["SLURM_JOB_NODELIST", "SLURM_NODELIST"])? else {
        return Ok(None);
    };
    let names = hostlist::expand(&list).map_err(invalid(variable, &list))?;
    let counts = match first(environment, &["SLURM_TASKS_PER_NODE", "SLURM_JOB_CPUS_PER_NODE"])? {
        Some((by, list)) => {
            let counts = hostlist::expand_counts(&list).map_err(invalid(by, &list))?;
            if counts.len() != names.len() {
                let (hosts, counted) = (names.len(), counts.len());
                return Err(PlacementError::Counts { names: variable, hosts, counts: by, counted });
            }
            counts
        }
        None => vec![1; names.len()],
    };
    // A node without tasks is part of the job.
    let hosts = names.iter().zip(counts).map(|(name, count)| Host::with_slots(name, count.max(1)));
    collect(hosts).map_err(invalid(variable, &list)).map(Some)
}

/// qsub(1B): a host file with one line for each slot.
fn pbs(environment: &Environment<'_>) -> Result<Option<Hosts>, PlacementError> {
    file(environment, "PBS_NODEFILE", Format::Slots)
}

/// sge_pe(5), "$pe_hostfile".
fn sge(environment: &Environment<'_>) -> Result<Option<Hosts>, PlacementError> {
    file(environment, "PE_HOSTFILE", Format::Columns)
}

/// With IBM's CSM, a job of several hosts has a launch node that runs no ranks. It comes first and has one slot.
fn lsf(environment: &Environment<'_>) -> Result<Option<Hosts>, PlacementError> {
    let Some(hosts) = lsf_hosts(environment)? else { return Ok(None) };
    let is_csm = environment.variable("CSM_ALLOCATION_ID").is_some();
    let first = hosts.iter().next().filter(|_| is_csm && hosts.len() > 1);
    Ok(Some(match first {
        Some(launch_node) if launch_node.ranks_per_turn() == 1 => hosts.without_first(),
        _ => hosts,
    }))
}

/// LSF's environment variable reference: `LSB_MCPU_HOSTS` is `HOST SLOTS HOST SLOTS`; `LSB_DJOB_HOSTFILE` names a
/// host file with one line for each slot; `LSB_HOSTS` has one word for each slot and is unset if it would be long.
fn lsf_hosts(environment: &Environment<'_>) -> Result<Option<Hosts>, PlacementError> {
    if let Some((variable, list)) = text(environment, "LSB_MCPU_HOSTS")? {
        let words: Vec<&str> = list.split_whitespace().collect();
        let host = |pair: &[&str]| match pair {
            [name, slots] => Ok(Host::with_slots(name, hosts::parse_slots(slots)?)),
            _ => Err(LineError::NoSlots(pair.concat())),
        };
        let pairs: Result<Vec<Host>, LineError> = words.chunks(2).map(host).collect();
        return pairs.and_then(collect).map_err(invalid(variable, &list)).map(Some);
    }
    if let Some(hosts) = file(environment, "LSB_DJOB_HOSTFILE", Format::Slots)? {
        return Ok(Some(hosts));
    }
    let Some((variable, list)) = text(environment, "LSB_HOSTS")? else { return Ok(None) };
    let hosts = list.split_whitespace().map(|name| Host::with_slots(name, 1));
    collect(hosts).map_err(invalid(variable, &list)).map(Some)
}

fn file(
    environment: &Environment<'_>,
    variable: &'static str,
    format: Format,
) -> Result<Option<Hosts>, PlacementError> {
    let path = environment.variable(variable);
    path.map(|path| hostfile::read(Path::new(&path), format, Some(variable))).transpose()
}

/// Adds up the slots of each host.
fn collect(all: impl IntoIterator<Item = Host>) -> Result<Hosts, LineError> {
    let mut hosts = Hosts::default();
    for host in all {
        hosts.add(host)?;
    }
    if hosts.is_empty() { Err(LineError::Nothing) } else { Ok(hosts) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_file::TestFile;

    fn found(environment: &[(&str, &str)]) -> Result<Option<(ResourceManager, Vec<Host>)>, String> {
        let value = |name: &str| {
            environment.iter().find(|(variable, _)| *variable == name).map(|(_, value)| value.into())
        };
        let environment = Environment { hostname: "here".to_owned(), variables: &value };
        let found = allocation(&environment).map_err(|error| error.to_string())?;
        Ok(found.map(|(manager, hosts)| (manager, hosts.iter().cloned().collect())))
    }

    fn of(
        manager: ResourceManager,
        hosts: &[(&str, u32)],
    ) -> Result<Option<(ResourceManager, Vec<Host>)>, String> {
        Ok(Some((manager, hosts.iter().map(|&(name, slots)| Host::with_slots(name, slots)).collect())))
    }

    #[test]
    fn without_a_job_there_is_no_allocation() {
        assert_eq!(found(&[("PBS_NODEFILE", ""), ("SLURM_TASKS_PER_NODE", "2"), ("HOSTS", "a")]), Ok(None));
    }

    #[test]
    fn slurm_nodes_have_a_slot_for_each_task() {
        let nodes = ("SLURM_JOB_NODELIST", "n[01-03],m5");
        let hosts = [("n01", 2), ("n02", 2), ("n03", 2), ("m5", 1)];
        let tasks = ("SLURM_TASKS_PER_NODE", "2(x3),1");
        assert_eq!(
            found(&[nodes, tasks, ("SLURM_JOB_CPUS_PER_NODE", "8(x4)")]),
            of(ResourceManager::Slurm, &hosts)
        );
        assert_eq!(found(&[("SLURM_NODELIST", "n[01-03],m5"), tasks]), of(ResourceManager::Slurm, &hosts));
        let processors = [("SLURM_JOB_NODELIST", "gpu07"), ("SLURM_JOB_CPUS_PER_NODE", "36")];
        assert_eq!(found(&processors), of(ResourceManager::Slurm, &[("gpu07", 36)]));
        assert_eq!(found(&[nodes]).unwrap().unwrap().1[3], Host::with_slots("m5", 1));
    }

    #[test]
    fn files_of_pbs_and_lsf_are_read() {
        // The form in their manuals, for select=2:mpiprocs=2 and for -n 3.
        let pbs = TestFile::new(b"r1i0n3.ib0.hpc.example\nr1i0n3.ib0.hpc.example\nr1i0n4.ib0.hpc.example\nr1i0n4.ib0.hpc.example\n");
        let hosts = [("r1i0n3.ib0.hpc.example", 2), ("r1i0n4.ib0.hpc.example", 2)];
        assert_eq!(found(&[("PBS_NODEFILE", pbs.name())]), of(ResourceManager::Pbs, &hosts));
        let lsf = TestFile::new(b"hosta\nhosta\nhostb\n");
        assert_eq!(
            found(&[("LSB_DJOB_HOSTFILE", lsf.name())]),
            of(ResourceManager::Lsf, &[("hosta", 2), ("hostb", 1)])
        );
        // PBS on a Cray (open-mpi/ompi#5973): node numbers, each once without mpiprocs.
        let cray = TestFile::new(b"2015\n2016\n");
        assert_eq!(
            found(&[("PBS_NODEFILE", cray.name())]),
            of(ResourceManager::Pbs, &[("2015", 1), ("2016", 1)])
        );
    }

    #[test]
    fn grid_engine_files_are_read() {
        let read = |bytes: &[u8]| {
            let file = TestFile::new(bytes);
            found(&[("PE_HOSTFILE", file.name())])
        };
        // Captured in jobs of Grid Engine 8.1.9 (Debian): -pe mpi 5 with full names; -binding pe linear:1 -pe mpi 5; and
        // -pe mpi 14 over two queues.
        let hosts = [("a.site", 2), ("b.site", 2), ("c.site", 1)];
        let plain =
            read(b"a.site 2 all.q@a.site UNDEFINED\nb.site 2 all.q@b.site UNDEFINED\nc.site 1 all.q@c.site UNDEFINED\n");
        assert_eq!(plain, of(ResourceManager::Sge, &hosts));
        let bound = read(b"b 2 all.q@b 0,0\nc 2 all.q@c 0,0\na 1 all.q@a 0,0\n");
        assert_eq!(bound, of(ResourceManager::Sge, &[("b", 2), ("c", 2), ("a", 1)]));
        let queues = read(
            b"b 4 all.q@b UNDEFINED\nc 4 all.q@c UNDEFINED\na 4 all.q@a UNDEFINED\n\
              b 1 long.q@b UNDEFINED\nc 1 long.q@c UNDEFINED\n",
        );
        assert_eq!(queues, of(ResourceManager::Sge, &[("b", 5), ("c", 5), ("a", 4)]));
        // From a report about an older version (open-mpi/ompi#167).
        let older = read(b"node01-53 6 all.q@node01-53 <NULL>\nnode01-53 10 distrib.q@node01-53 <NULL>\n");
        assert_eq!(older, of(ResourceManager::Sge, &[("node01-53", 16)]));
    }

    #[test]
    fn lsf_variables_are_read() {
        let hosts = [("hosta", 4), ("hostb", 2)];
        let pairs = ("LSB_MCPU_HOSTS", "hosta 4 hostb 2 ");
        assert_eq!(
            found(&[pairs, ("LSB_DJOB_HOSTFILE", "/dev/null/none")]),
            of(ResourceManager::Lsf, &hosts)
        );
        // From a report about a job (IBMSpectrumComputing/ray-integration#12): slots of several cores each.
        let cores = ("LSB_MCPU_HOSTS", "host1 1 host2 3");
        assert_eq!(found(&[cores]), of(ResourceManager::Lsf, &[("host1", 1), ("host2", 3)]));
        assert_eq!(
            found(&[("LSB_HOSTS", "hosta hostb hosta")]),
            of(ResourceManager::Lsf, &[("hosta", 2), ("hostb", 1)])
        );
    }

    #[test]
    fn the_csm_launch_node_gets_no_ranks() {
        // The order that scripts for Summit and Lassen expect: the batch node first, once.
        let csm = ("CSM_ALLOCATION_ID", "1234");
        let pairs = ("LSB_MCPU_HOSTS", "batch5 1 h41n08 42 h41n09 42 ");
        let nodes = [("h41n08", 42), ("h41n09", 42)];
        assert_eq!(found(&[pairs, csm]), of(ResourceManager::Lsf, &nodes));
        assert_eq!(found(&[pairs]), of(ResourceManager::Lsf, &[("batch5", 1), nodes[0], nodes[1]]));
        let words = ("LSB_HOSTS", "batch5 h41n08 h41n08");
        assert_eq!(found(&[words, csm]), of(ResourceManager::Lsf, &[("h41n08", 2)]));
        // No launch node: a first host with as many slots as the others, or a single host.
        let equal = ("LSB_MCPU_HOSTS", "h41n08 42 h41n09 42");
        assert_eq!(found(&[equal, csm]), of(ResourceManager::Lsf, &nodes));
        assert_eq!(found(&[("LSB_MCPU_HOSTS", "h41n08 1"), csm]), of(ResourceManager::Lsf, &[("h41n08", 1)]));
    }

    #[test]
    fn errors_name_the_variable() {
        let errors = [
            found(&[("SLURM_JOB_NODELIST", "n[1-3"), ("SLURM_TASKS_PER_NODE", "1(x3)")]),
            found(&[("SLURM_JOB_NODELIST", "n[1-3]"), ("SLURM_TASKS_PER_NODE", "1(x2)")]),
            found(&[("SLURM_JOB_NODELIST", "n[1-3]"), ("SLURM_TASKS_PER_NODE", "many")]),
            found(&[("SLURM_JOB_NODELIST", "n[1-100000]")]),
            found(&[("LSB_MCPU_HOSTS", "hosta 4 hostb")]),
            found(&[("LSB_MCPU_HOSTS", "hosta many")]),
            found(&[("LSB_HOSTS", " ")]),
            found(&[("PBS_NODEFILE", "/dev/null/nodes")]),
        ];
        let errors: Vec<String> = errors.into_iter().map(Result::unwrap_err).collect();
        insta::assert_snapshot!(errors.join("\n"));
    }
}
