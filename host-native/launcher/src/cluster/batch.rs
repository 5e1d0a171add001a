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

/// LSF's environment variable reference: `LSB_MCPU_HOSTS` is `HOST SLOTS HOST SLOTS`; `LSB_DJOB_HOSTFILE` names a
/// file with a line for each slot; `LSB_HOSTS` has a word for each slot, and is left out where that gets long.
fn lsf(variables: Variables<'_>) -> Result<Option<Hosts>, ClusterError> {
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
    fn files_of_pbs_lsf_and_sge_are_read() {
        // Of the form that their manuals give: for select=2:mpiprocs=2, -n 3, and -pe mpi 6.
        let pbs = File::new(b"r1i0n3.ib0.hpc.example\nr1i0n3.ib0.hpc.example\nr1i0n4.ib0.hpc.example\nr1i0n4.ib0.hpc.example\n");
        let hosts = [("r1i0n3.ib0.hpc.example", 2), ("r1i0n4.ib0.hpc.example", 2)];
        assert_eq!(found(&[("PBS_NODEFILE", pbs.name())]), of(Batch::Pbs, &hosts));
        let lsf = File::new(b"hosta\nhosta\nhostb\n");
        assert_eq!(
            found(&[("LSB_DJOB_HOSTFILE", lsf.name())]),
            of(Batch::Lsf, &[("hosta", 2), ("hostb", 1)])
        );
        let sge = File::new(
            b"node001.cluster 4 all.q@node001.cluster UNDEFINED\nnode002.cluster 2 all.q@node002.cluster 0,0:0,1\n",
        );
        let hosts = [("node001.cluster", 4), ("node002.cluster", 2)];
        assert_eq!(found(&[("PE_HOSTFILE", sge.name())]), of(Batch::Sge, &hosts));
    }

    #[test]
    fn lsfs_variables_are_read() {
        let hosts = [("hosta", 4), ("hostb", 2)];
        let pairs = ("LSB_MCPU_HOSTS", "hosta 4 hostb 2 ");
        assert_eq!(found(&[pairs, ("LSB_DJOB_HOSTFILE", "/nonexistent")]), of(Batch::Lsf, &hosts));
        assert_eq!(
            found(&[("LSB_HOSTS", "hosta hostb hosta")]),
            of(Batch::Lsf, &[("hosta", 2), ("hostb", 1)])
        );
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
