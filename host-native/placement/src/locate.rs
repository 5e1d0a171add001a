//! Search for the hosts of a job, and mapping of its ranks to them.

use std::path::PathBuf;

use crate::bootstrap::Bootstrap;
use crate::environment::Environment;
use crate::error::PlacementError;
use crate::hostfile::{self, Format};
use crate::hosts::{self, Host, Hosts};
use crate::job_map::{self, JobMap, MappingPolicy, NamedHost};
use crate::resource_manager::{self, ResourceManager};

/// What the user asked for: hosts, mapping, and how daemons are started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlacementOptions {
    /// Source of the hosts.
    pub hosts: HostSource,
    /// Hosts of programs, by their `appnum` (`-host`). With a list or a file they are among its hosts, and if a program
    /// without hosts of its own is in an allocation, among the hosts of that. Otherwise they are the hosts of the job.
    pub program_hosts: Vec<(u32, Hosts)>,
    /// Number of hosts to use, from the front, and no more than the job has ranks. Without it, all.
    pub nodes: Option<u32>,
    /// Mapping and numbering of ranks.
    pub policy: MappingPolicy,
    /// Host of each rank, by its position from 0, in place of `policy`. Repeated for further ranks. Empty without such a map.
    pub rank_map: Vec<u32>,
    /// Programs, by their `appnum`, without a number of ranks: each gets as many ranks as all hosts take in one turn.
    /// On this machine without hosts, the number that the caller gave stays.
    pub fill: Vec<u32>,
    /// Method that starts daemons. Without it, `default_bootstrap` does.
    pub bootstrap: Option<Bootstrap>,
    /// Hosts may join while the job runs, so that named hosts need daemons, also if there is only this machine.
    pub elastic: bool,
    /// Method that starts daemons where they are needed. Without it, the resource manager decides.
    pub default_bootstrap: Option<Bootstrap>,
}

impl PlacementOptions {
    /// Number of hosts that a job of this many ranks uses. A rank map names hosts by position, so it keeps all.
    fn nodes_used(&self, ranks: u64) -> Option<u32> {
        let ranks = u32::try_from(ranks).unwrap_or(u32::MAX);
        self.nodes.map(|nodes| if self.rank_map.is_empty() { nodes.min(ranks) } else { nodes })
    }

    /// Says that the user wants more hosts than the job has ranks, if so.
    pub fn surplus_nodes(&self, ranks: u32) -> Option<String> {
        let used = self.nodes_used(ranks.into())?;
        let nodes = self.nodes.filter(|&nodes| nodes > used)?;
        let (s, are) = if used == 1 { ("", "is") } else { ("s", "are") };
        Some(format!("--nodes {nodes}, but the job has {used} rank{s}: {used} host{s} {are} used"))
    }
}

/// Source of the hosts of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum HostSource {
    /// The allocation of the resource manager whose job this process is part of. Outside of such a job: this machine.
    #[default]
    Allocation,
    /// A list of hosts.
    List(Hosts),
    /// A host file in the format of hydra or Open MPI.
    File(PathBuf),
    /// Such a file, named by a variable.
    Variable(&'static str, PathBuf),
}

/// Where the ranks of a job run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// On this machine, as children of this process.
    Local,
    /// On several hosts, or on one other, each with a daemon.
    Nodes(Deployment),
}

/// Ranks on hosts, and how daemons are started there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deployment {
    /// The resource manager that named the hosts, if one did.
    pub resource_manager: Option<ResourceManager>,
    /// The ranks of each host.
    pub job_map: JobMap,
    /// Hosts that get no daemon before they get ranks. [`locate`] leaves them in the job map.
    pub unused: Vec<Host>,
    /// Method that starts the daemons: the user's choice, otherwise `srun` in a Slurm job, `qrsh` in a Grid Engine job,
    /// and ssh elsewhere.
    pub bootstrap: Bootstrap,
}

/// Finds the hosts of a job and maps its ranks to them. Returns also the number of slots of all hosts, if an allocation or the
/// user names hosts: a host without a number has one.
///
/// `programs` holds the number of ranks of each program. Programs listed in [`PlacementOptions::fill`] get their number
/// here.
///
/// Without hosts the job runs on this machine. Without hosts, and with a single host that is this machine, it stays local,
/// unless a bootstrap for hosts, or [`Bootstrap::Local`], is asked for, or hosts may [join](PlacementOptions::elastic).
///
/// # Errors
/// Hosts cannot be read, are invalid, or take fewer ranks than the job has.
///
/// # Panics
/// If `fill` names a program that `programs` does not have.
pub fn locate(
    options: &PlacementOptions,
    programs: &mut [u32],
    environment: &Environment<'_>,
) -> Result<(Location, Option<u32>), PlacementError> {
    let (resource_manager, hosts) = match &options.hosts {
        HostSource::List(hosts) => (None, hosts.clone()),
        HostSource::File(file) => (None, hostfile::read(file, Format::Words, None)?),
        HostSource::Variable(variable, file) => (None, hostfile::read(file, Format::Words, Some(variable))?),
        HostSource::Allocation if !options.program_hosts.is_empty() => {
            let all_name_hosts = options.program_hosts.len() == programs.len();
            let allocation = if all_name_hosts { None } else { resource_manager::allocation(environment)? };
            match allocation {
                Some((resource_manager, hosts)) => (Some(resource_manager), hosts),
                None => {
                    let mut hosts = Hosts::default();
                    options.program_hosts.iter().try_for_each(|(_, own)| hosts.add_of_program(own))?;
                    (None, hosts)
                }
            }
        }
        HostSource::Allocation => match resource_manager::allocation(environment)? {
            Some((resource_manager, hosts)) => (Some(resource_manager), hosts),
            None => (None, Hosts::of_this_machine(&environment.hostname)),
        },
    };
    let mut own: Vec<(u32, Vec<NamedHost>)> = Vec::new();
    for (program, list) in &options.program_hosts {
        own.push((*program, named(*program, list, &hosts)?));
    }
    let own_of = |program: u32| own.iter().find(|(of, _)| *of == program).map_or(&[][..], |(_, own)| own);
    let is_named = !matches!(options.hosts, HostSource::Allocation)
        || resource_manager.is_some()
        || !options.program_hosts.is_empty();
    let ranks = || programs.iter().copied().map(u64::from).sum();
    let nodes = if options.fill.is_empty() { options.nodes_used(ranks()) } else { options.nodes };
    let hosts = match nodes {
        Some(nodes) => hosts.first(nodes)?,
        None => hosts,
    };
    if !options.fill.is_empty() {
        for &program in &options.fill {
            let own = options.program_hosts.iter().find(|(of, _)| *of == program);
            let of_program = match own {
                Some(_) => {
                    &job_map::candidates(hosts.as_slice(), &vec![0; hosts.len()], own_of(program), None, 0)
                }
                None => &hosts,
            };
            let ranks = job_map::ranks_per_turn(of_program, options.policy.ppn);
            programs[program as usize] = u32::try_from(ranks).map_err(|_| PlacementError::Ranks(ranks))?;
        }
    }
    job_map::check_rank_map(&options.rank_map, hosts.len())?;
    let slots = hosts.iter().map(Host::ranks_per_turn).fold(0, u32::saturating_add);
    let slots = Some(slots).filter(|_| is_named);
    let single_host = hosts.iter().next().filter(|_| hosts.len() == 1);
    // A resource manager may name a host by its name on another network.
    let is_local = |host: &Host| {
        environment.is_local(host) || resource_manager.is_some() && environment.has_same_short_name(host)
    };
    let stays = match options.bootstrap {
        // Local daemons can be tried out without any host name.
        Some(Bootstrap::Local) => false,
        Some(_) => !is_named,
        None => !is_named || single_host.is_some_and(is_local) && !options.elastic,
    };
    if stays {
        job_map::check_capacity(&hosts, programs.iter().copied().map(u64::from).sum())?;
        return Ok((Location::Local, slots));
    }
    let chosen = options.bootstrap.as_ref().or(options.default_bootstrap.as_ref());
    let bootstrap = chosen.cloned().unwrap_or_else(|| Bootstrap::for_environment(environment));
    hosts.iter().try_for_each(|host| bootstrap.check_user(host))?;
    let job_map = match &options.rank_map[..] {
        [] if own.is_empty() => JobMap::new(&hosts, programs, options.policy)?,
        [] => {
            let programs: Vec<_> =
                (0..).zip(&*programs).map(|(appnum, &size)| (size, own_of(appnum))).collect();
            JobMap::of_programs(&hosts, &programs, options.policy)?
        }
        rank_map => JobMap::from_rank_map(&hosts, programs, rank_map)?,
    };
    Ok((Location::Nodes(Deployment { resource_manager, job_map, unused: Vec::new(), bootstrap }), slots))
}

/// The positions of the hosts of a program among the hosts of the job, with the slots that the program names.
fn named(program: u32, own: &Hosts, hosts: &Hosts) -> Result<Vec<NamedHost>, PlacementError> {
    let found = own.iter().map(|host| {
        let at = hosts::position(hosts.as_slice(), host.name.as_bytes());
        at.map(|at| (at, host.slots)).ok_or_else(|| PlacementError::NotAmong {
            program,
            host: host.name.clone(),
            hosts: hosts.iter().map(|host| host.name.as_str()).take(8).collect::<Vec<_>>().join(", ")
                + if hosts.len() > 8 { ", ..." } else { "" },
        })
    });
    found.collect()
}

#[cfg(test)]
mod tests;
