//! The hosts that a batch system has set aside for the job that this process is part of.

use std::ffi::OsString;
use std::path::Path;

use super::error::{ClusterError, LineError};
use super::hostfile::{self, Form};
use super::hostlist;
use super::hosts::{self, Host, Hosts};

/// A batch system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Batch {
    /// Slurm: `SLURM_JOB_NODELIST`.
    Slurm,
    /// PBS and Torque: `PBS_NODEFILE`.
    Pbs,
    /// LSF: `LSB_MCPU_HOSTS`.
    Lsf,
    /// Grid Engine: `PE_HOSTFILE`.
    Sge,
}

impl Batch {
    /// As its users call it.
    pub fn name(self) -> &'static str {
        match self {
            Batch::Slurm => "Slurm",
            Batch::Pbs => "PBS",
            Batch::Lsf => "LSF",
            Batch::Sge => "SGE",
        }
    }
}

/// How the environment is looked at. A variable without a value is as good as none.
type Variables<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// The batch system's hosts with their slots, where this process is in one of its jobs. Slurm is asked first, then
/// PBS, LSF and SGE.
pub(super) fn allocation(variables: Variables<'_>) -> Result<Option<(Batch, Hosts)>, ClusterError> {
    for (batch, ask) in [
        (Batch::Slurm, slurm as fn(Variables<'_>) -> _),
        (Batch::Pbs, pbs),
        (Batch::Lsf, lsf),
        (Batch::Sge, sge),
    ] {
        if let Some(hosts) = ask(variables)? {
            return Ok(Some((batch, hosts)));
        }
    }
    Ok(None)
}

/// A variable that is set, as text.
fn text(
    variables: Variables<'_>,
    variable: &'static str,
) -> Result<Option<(&'static str, String)>, ClusterError> {
    let Some(value) = variables(variable).filter(|value| !value.is_empty()) else { return Ok(None) };
    match value.into_string() {
        Ok(text) => Ok(Some((variable, text))),
        Err(odd) => Err(wrong(variable, &odd.to_string_lossy())(LineError::NoText)),
    }
}

/// The first of several variables that is set.
fn first(
    variables: Variables<'_>,
    names: &[&'static str],
) -> Result<Option<(&'static str, String)>, ClusterError> {
    for name in names {
        if let Some(found) = text(variables, name)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// For `map_err`: names the variable.
fn wrong<E: Into<LineError>>(variable: &'static str, value: &str) -> impl Fn(E) -> ClusterError {
    let shown: String = value.escape_debug().take(60).collect();
    let value = if shown.len() < value.len() { format!("{shown}...") } else { shown };
    move |why| ClusterError::Variable { variable, value: value.clone(), why: why.into() }
}

/// sbatch(1), "OUTPUT ENVIRONMENT VARIABLES": names in short form, and how many tasks go to each in the same order.
/// Where no tasks are told, it is processors.
fn slurm(variables: Variables<'_>) -> Result<Option<Hosts>, ClusterError> {
    let Some((variable, list)) = first(variables, &["SLURM_JOB_NODELIST", "SLURM_NODELIST"])? else {
        return Ok(None);
    };
    let names = hostlist::expand(&list).map_err(wrong(variable, &list))?;
    let counts = match first(variables, &["SLURM_TASKS_PER_NODE", "SLURM_JOB_CPUS_PER_NODE"])? {
        Some((by, list)) => {
            let counts = hostlist::counts(&list).map_err(wrong(by, &list))?;
            if counts.len() != names.len() {
                let (hosts, counted) = (names.len(), counts.len());
                return Err(ClusterError::Counts { names: variable, hosts, counts: by, counted });
            }
            counts
        }
        None => vec![1; names.len()],
    };
    // A node without tasks is part of the job all the same.
    let hosts = names.iter().zip(counts).map(|(name, count)| Host::with_slots(name, count.max(1)));
    collect(hosts).map_err(wrong(variable, &list)).map(Some)
}

/// qsub(1B): a file with a line for each slot.
fn pbs(variables: Variables<'_>) -> Result<Option<Hosts>, ClusterError> {
    file(variables, "PBS_NODEFILE", Form::Slots)
}

/// sge_pe(5), "$pe_hostfile".
fn sge(variables: Variables<'_>) -> Result<Option<Hosts>, ClusterError> {
    file(variables, "PE_HOSTFILE", Form::Columns)
}

/// Where LSF is joined to IBM's CSM, a job of several hosts runs on a launch node of its own, which comes first, with one
/// slot, and is no place for ranks.
fn lsf(variables: Variables<'_>) -> Result<Option<Hosts>, ClusterError> {
    let Some(hosts) = lsf_hosts(variables)? else { return Ok(None) };
    let csm = variables("CSM_ALLOCATION_ID").is_some_and(|number| !number.is_empty());
    let first = hosts.iter().next().filter(|_| csm && hosts.len() > 1);
    Ok(Some(match first {
        Some(launch_node) if launch_node.turn() == 1 => hosts.without_first(),
        _ => hosts,
    }))
}

/// LSF's environment variable reference: `LSB_MCPU_HOSTS` is `HOST SLOTS HOST SLOTS`; `LSB_DJOB_HOSTFILE` names a
/// file with a line for each slot; `LSB_HOSTS` has a word for each slot, and is left out where that gets long.
fn lsf_hosts(variables: Variables<'_>) -> Result<Option<Hosts>, ClusterError> {
    if let Some((variable, list)) = text(variables, "LSB_MCPU_HOSTS")? {
        let words: Vec<&str> = list.split_whitespace().collect();
        let host = |pair: &[&str]| match pair {
            [name, slots] => Ok(Host::with_slots(name, hosts::slots(slots)?)),
            _ => Err(LineError::NoSlots(pair.concat())),
        };
        let pairs: Result<Vec<Host>, LineError> = words.chunks(2).map(host).collect();
        return pairs.and_then(collect).map_err(wrong(variable, &list)).map(Some);
    }
    if let Some(hosts) = file(variables, "LSB_DJOB_HOSTFILE", Form::Slots)? {
        return Ok(Some(hosts));
    }
    let Some((variable, list)) = text(variables, "LSB_HOSTS")? else { return Ok(None) };
    let hosts = list.split_whitespace().map(|name| Host::with_slots(name, 1));
    collect(hosts).map_err(wrong(variable, &list)).map(Some)
}

fn file(variables: Variables<'_>, variable: &'static str, form: Form) -> Result<Option<Hosts>, ClusterError> {
    let path = variables(variable).filter(|path| !path.is_empty());
    path.map(|path| hostfile::read(Path::new(&path), form, Some(variable))).transpose()
}

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
    use crate::cluster::tests::File;

    fn found(environment: &[(&str, &str)]) -> Result<Option<(Batch, Vec<Host>)>, String> {
        let value =
            |name: &str| environment.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into());
        let found = allocation(&value).map_err(|error| error.to_string())?;
        Ok(found.map(|(batch, hosts)| (batch, hosts.iter().cloned().collect())))
    }

    fn of(batch: Batch, hosts: &[(&str, u32)]) -> Result<Option<(Batch, Vec<Host>)>, String> {
        Ok(Some((batch, hosts.iter().map(|&(name, slots)| Host::with_slots(name, slots)).collect())))
    }

    #[test]
    fn outside_of_an_allocation_there_is_none() {
        assert_eq!(found(&[("PBS_NODEFILE", ""), ("SLURM_TASKS_PER_NODE", "2"), ("HOSTS", "a")]), Ok(None));
    }

    #[test]
    fn slurms_nodes_have_the_slots_of_their_tasks() {
        let nodes = ("SLURM_JOB_NODELIST", "n[01-03],m5");
        let hosts = [("n01", 2), ("n02", 2), ("n03", 2), ("m5", 1)];
        let tasks = ("SLURM_TASKS_PER_NODE", "2(x3),1");
        assert_eq!(found(&[nodes, tasks, ("SLURM_JOB_CPUS_PER_NODE", "8(x4)")]), of(Batch::Slurm, &hosts));
        assert_eq!(found(&[("SLURM_NODELIST", "n[01-03],m5"), tasks]), of(Batch::Slurm, &hosts));
        let processors = [("SLURM_JOB_NODELIST", "gpu07"), ("SLURM_JOB_CPUS_PER_NODE", "36")];
        assert_eq!(found(&processors), of(Batch::Slurm, &[("gpu07", 36)]));
        assert_eq!(found(&[nodes]).unwrap().unwrap().1[3], Host::with_slots("m5", 1));
    }

    #[test]
    fn files_of_pbs_and_lsf_are_read() {
        // Of the form that their manuals give: for select=2:mpiprocs=2, and -n 3.
        let pbs = File::new(b"r1i0n3.ib0.hpc.example\nr1i0n3.ib0.hpc.example\nr1i0n4.ib0.hpc.example\nr1i0n4.ib0.hpc.example\n");
        let hosts = [("r1i0n3.ib0.hpc.example", 2), ("r1i0n4.ib0.hpc.example", 2)];
        assert_eq!(found(&[("PBS_NODEFILE", pbs.name())]), of(Batch::Pbs, &hosts));
        let lsf = File::new(b"hosta\nhosta\nhostb\n");
        assert_eq!(
            found(&[("LSB_DJOB_HOSTFILE", lsf.name())]),
            of(Batch::Lsf, &[("hosta", 2), ("hostb", 1)])
        );
        // As a Cray's PBS has it (open-mpi/ompi#5973): nodes of which only the number is told, once where no mpiprocs is.
        let cray = File::new(b"2015\n2016\n");
        assert_eq!(found(&[("PBS_NODEFILE", cray.name())]), of(Batch::Pbs, &[("2015", 1), ("2016", 1)]));
    }

    #[test]
    fn files_of_a_real_grid_engine_are_read() {
        let read = |bytes: &[u8]| {
            let file = File::new(bytes);
            found(&[("PE_HOSTFILE", file.name())])
        };
        // Captured in jobs of Grid Engine 8.1.9 (Debian): -pe mpi 5, in full names; -binding pe linear:1 -pe mpi 5; and
        // -pe mpi 14, for which one queue was not enough.
        let hosts = [("a.site", 2), ("b.site", 2), ("c.site", 1)];
        let plain =
            read(b"a.site 2 all.q@a.site UNDEFINED\nb.site 2 all.q@b.site UNDEFINED\nc.site 1 all.q@c.site UNDEFINED\n");
        assert_eq!(plain, of(Batch::Sge, &hosts));
        let bound = read(b"b 2 all.q@b 0,0\nc 2 all.q@c 0,0\na 1 all.q@a 0,0\n");
        assert_eq!(bound, of(Batch::Sge, &[("b", 2), ("c", 2), ("a", 1)]));
        let queues = read(
            b"b 4 all.q@b UNDEFINED\nc 4 all.q@c UNDEFINED\na 4 all.q@a UNDEFINED\n\
              b 1 long.q@b UNDEFINED\nc 1 long.q@c UNDEFINED\n",
        );
        assert_eq!(queues, of(Batch::Sge, &[("b", 5), ("c", 5), ("a", 4)]));
        // From a report of an older one (open-mpi/ompi#167).
        let older = read(b"node01-53 6 all.q@node01-53 <NULL>\nnode01-53 10 distrib.q@node01-53 <NULL>\n");
        assert_eq!(older, of(Batch::Sge, &[("node01-53", 16)]));
    }

    #[test]
    fn lsfs_variables_are_read() {
        let hosts = [("hosta", 4), ("hostb", 2)];
        let pairs = ("LSB_MCPU_HOSTS", "hosta 4 hostb 2 ");
        assert_eq!(found(&[pairs, ("LSB_DJOB_HOSTFILE", "/nonexistent")]), of(Batch::Lsf, &hosts));
        // From a report of a real job (IBMSpectrumComputing/ray-integration#12): slots of several cores each.
        let cores = ("LSB_MCPU_HOSTS", "host1 1 host2 3");
        assert_eq!(found(&[cores]), of(Batch::Lsf, &[("host1", 1), ("host2", 3)]));
        assert_eq!(
            found(&[("LSB_HOSTS", "hosta hostb hosta")]),
            of(Batch::Lsf, &[("hosta", 2), ("hostb", 1)])
        );
    }

    #[test]
    fn the_launch_node_of_csm_takes_no_ranks() {
        // As scripts for Summit and Lassen take them apart: batch nodes first, once.
        let csm = ("CSM_ALLOCATION_ID", "1234");
        let pairs = ("LSB_MCPU_HOSTS", "batch5 1 h41n08 42 h41n09 42 ");
        let nodes = [("h41n08", 42), ("h41n09", 42)];
        assert_eq!(found(&[pairs, csm]), of(Batch::Lsf, &nodes));
        assert_eq!(found(&[pairs]), of(Batch::Lsf, &[("batch5", 1), nodes[0], nodes[1]]));
        let words = ("LSB_HOSTS", "batch5 h41n08 h41n08");
        assert_eq!(found(&[words, csm]), of(Batch::Lsf, &[("h41n08", 2)]));
        // No launch node: as many slots as the others, or nobody else.
        let equal = ("LSB_MCPU_HOSTS", "h41n08 42 h41n09 42");
        assert_eq!(found(&[equal, csm]), of(Batch::Lsf, &nodes));
        assert_eq!(found(&[("LSB_MCPU_HOSTS", "h41n08 1"), csm]), of(Batch::Lsf, &[("h41n08", 1)]));
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
            found(&[("PBS_NODEFILE", "/nonexistent/nodes")]),
        ];
        let errors: Vec<String> = errors.into_iter().map(Result::unwrap_err).collect();
        insta::assert_snapshot!(errors.join("\n"));
    }
}
