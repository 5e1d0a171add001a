//! Hosts that join a run by themselves, before it is planned.

use std::ffi::OsString;
use std::net::SocketAddr;

use hydrant_board::manage::Secret;
use hydrant_overlay::{Enrolment, Notice, Secrets, Terms};
use hydrant_placement::{Bootstrap, Environment, Host, HostSource, Hosts};

use crate::error::RunError;
use crate::messages;
use crate::plan::{JoinSecret, Plan, Program};

/// Waits for the hosts of a run, and enters them into the plan, with the programs that they come with.
///
/// # Errors
/// The hosts do not come in time, or they and the plan do not fit. Hosts that have come have been told.
pub(crate) fn await_hosts(plan: &mut Plan) -> Result<Option<Enrolment>, RunError> {
    let Some(join) = &plan.options.cluster.join else { return Ok(None) };
    let cluster = &plan.options.cluster;
    let secrets = match join.secret.clone() {
        JoinSecret::One(secret) => Secrets::One(secret.to_bytes()),
        JoinSecret::Folder(folder) => Secrets::PerHost(Box::new(move |index| {
            let secret = Secret::read(&folder.join(index.to_string()));
            secret.map(|secret| secret.to_bytes()).map_err(|error| error.to_string())
        })),
    };
    let mut enrolment = Enrolment::listen(cluster.iface.as_deref(), join.port, secrets)?;
    let limit =
        plan.options.timeout.map_or(cluster.bootstrap_timeout, |limit| limit.min(cluster.bootstrap_timeout));
    let terms = Terms {
        hosts: join.hosts,
        ranks: cluster.placement.fill.is_empty().then(|| plan.size()),
        with_programs: join.with_programs,
        timeout: limit.as_millis().try_into().unwrap_or(u64::MAX),
    };
    let addrs: Vec<String> = enrolment.addrs().map(shown).collect();
    let wanted = terms.wanted();
    messages::print(
        messages::HYDRANT,
        format_args!("waiting for {wanted}: hydrant join {} --secret-file FILE", addrs.join(" or ")),
    );
    let verbose = plan.settings.verbose;
    enrolment.wait(&terms, &mut |notice| tell(&notice, verbose))?;
    match enter(plan, &enrolment) {
        Ok(()) => Ok(Some(enrolment)),
        Err(error) => {
            enrolment.dismiss(&error.to_string());
            Err(error)
        }
    }
}

/// An address as other machines know it.
fn shown(addr: SocketAddr) -> String {
    match addr.ip().is_unspecified() {
        true => format!("{}:{}", Environment::current().hostname, addr.port()),
        false => addr.to_string(),
    }
}

fn tell(notice: &Notice<'_>, verbose: bool) {
    match notice {
        Notice::Enrolled(host) if verbose => {
            let (name, slots, ip) =
                (&host.application.name, host.application.slots, host.addr.ip().to_canonical());
            let s = if slots == 1 { "" } else { "s" };
            messages::print(
                messages::HYDRANT,
                format_args!("host {name} has joined from {ip}, with {slots} slot{s}"),
            );
        }
        Notice::Enrolled(_) => {}
        Notice::Left(host) => {
            let name = &host.application.name;
            messages::print(messages::HYDRANT, format_args!("host {name} has left before the run began"));
        }
        Notice::Turned(addr, why) => messages::print(messages::HYDRANT, turned_away(*addr, why)),
    }
}

/// What the user is told of a host that cannot join.
pub(crate) fn turned_away(addr: SocketAddr, why: &str) -> String {
    format!("a host at {} cannot join: {why}", addr.ip().to_canonical())
}

/// Enters the hosts into the plan.
fn enter(plan: &mut Plan, enrolment: &Enrolment) -> Result<(), RunError> {
    let mut hosts = Hosts::default();
    let mut groups: Vec<(&[OsString], Hosts)> = Vec::new();
    for host in enrolment.hosts() {
        let slots = Host::with_slots(&host.application.name, host.application.slots);
        let added = |hosts: &mut Hosts| hosts.add(slots.clone()).map_err(RunError::links);
        added(&mut hosts)?;
        let Some(program) = host.application.program.as_deref() else { continue };
        match groups.last_mut().filter(|(last, _)| *last == program) {
            Some((_, of_program)) => added(of_program)?,
            None => {
                let mut of_program = Hosts::default();
                added(&mut of_program)?;
                groups.push((program, of_program));
            }
        }
    }
    let placement = &mut plan.options.cluster.placement;
    if let Some(template) = plan.programs.first().cloned().filter(|_| !groups.is_empty()) {
        if groups.len() > 1 && placement.fill.is_empty() {
            return Err(RunError::JoinedPrograms { ranks: template.ranks, programs: groups.len() });
        }
        let of_words = |words: &[OsString]| Program {
            command: words.first().cloned().unwrap_or_default(),
            args: words.get(1..).unwrap_or_default().to_vec(),
            ..template.clone()
        };
        plan.programs = groups.iter().map(|(words, _)| of_words(words)).collect();
        if groups.len() > 1 {
            placement.fill = (0..groups.len() as u32).collect();
            placement.program_hosts = (0..).zip(groups).map(|(appnum, (_, hosts))| (appnum, hosts)).collect();
        }
    }
    let slots = hosts.iter().map(|host| u64::from(host.ranks_per_turn())).sum();
    let ranks = plan.size();
    let placement = &mut plan.options.cluster.placement;
    if placement.fill.is_empty() && u64::from(ranks) > slots {
        return Err(RunError::FewSlots { ranks, hosts: hosts.len(), slots });
    }
    placement.hosts = HostSource::List(hosts);
    placement.bootstrap = Some(Bootstrap::Join);
    Ok(())
}
