//! Checks of the hosts of a job: resource manager, and keys and known hosts of ssh.

use std::path::{Path, PathBuf};

use hydrant_placement::{Bootstrap, Environment, Host, HostSource, Location, PlacementOptions, locate};

use crate::finding::Finding;
use crate::machine::{self, Machine};

const TOPIC: &str = "ssh";
/// Maximum number of hosts in a finding.
const NAMES_MAX: usize = 8;

pub(crate) fn check(machine: &Machine, hosts: &HostSource) -> Vec<Finding> {
    let variables = |name: &str| machine.variables.get(std::ffi::OsStr::new(name)).cloned();
    let environment = Environment { hostname: machine.hostname.clone(), variables: &variables };
    let options = PlacementOptions { hosts: hosts.clone(), ..PlacementOptions::default() };
    let deployment = match locate(&options, &mut [1], &environment) {
        Ok((Location::Local, _)) => return vec![Finding::ok("hosts", "jobs run on this machine")],
        Ok((Location::Nodes(deployment), _)) => deployment,
        Err(error) => {
            return vec![Finding::problem(
                "hosts",
                error.to_string(),
                "see 'Hosts and mapping' in 'hydrant help run'",
            )];
        }
    };
    let nodes = deployment.job_map.nodes();
    let source = match deployment.resource_manager {
        Some(manager) => format!("{} hosts of {}", nodes.len(), manager.name()),
        None => format!("{} given hosts", nodes.len()),
    };
    let program = deployment.bootstrap.name();
    let mut findings = vec![Finding::ok("hosts", format!("{source}, daemons are started with {program}"))];
    match find_program(machine, program) {
        Some(_) => {}
        None => findings.push(Finding::problem(
            "hosts",
            format!("{program} is not in PATH"),
            "install it, or choose another method with --bootstrap",
        )),
    }
    if deployment.bootstrap == Bootstrap::Ssh {
        findings.push(key(machine));
        findings.extend(known_hosts(machine, nodes.iter().map(|node| &node.host)));
    }
    findings
}

fn find_program(machine: &Machine, name: &str) -> Option<PathBuf> {
    let path = machine.variable("PATH")?;
    std::env::split_paths(path).map(|dir| dir.join(name)).find(|file| file.is_file())
}

/// The `.ssh` directory of the user.
fn own(machine: &Machine) -> Option<PathBuf> {
    machine.variable("HOME").map(|home| Path::new(home).join(".ssh"))
}

/// Looks for a key that ssh may use without a question.
fn key(machine: &Machine) -> Finding {
    if machine.variable("SSH_AUTH_SOCK").is_some_and(|socket| Path::new(socket).exists()) {
        return Finding::ok(TOPIC, "an agent holds keys (SSH_AUTH_SOCK)");
    }
    let own = own(machine);
    let names = ["id_ed25519", "id_ecdsa", "id_rsa", "id_ed25519_sk", "id_ecdsa_sk"];
    let key = own.iter().flat_map(|dir| names.map(|name| dir.join(name))).find(|file| file.is_file());
    let configured = || {
        let config = machine::read(&own.as_ref()?.join("config"))?;
        config.to_lowercase().contains("identityfile").then_some(())
    };
    match (key, configured()) {
        (Some(key), _) => Finding::ok(TOPIC, format!("key {}", key.display())),
        (None, Some(())) => Finding::ok(TOPIC, "~/.ssh/config names a key"),
        (None, None) => Finding::note(
            TOPIC,
            "no key and no agent; hosts must accept this user without them (host-based authentication)",
            Some("make a key without a passphrase or use an agent: ssh-keygen -t ed25519; ssh-copy-id HOST"),
        ),
    }
}

/// Looks for hosts whose keys are unknown. ssh refuses them, because it cannot ask.
fn known_hosts<'h>(machine: &Machine, hosts: impl Iterator<Item = &'h Host>) -> Vec<Finding> {
    let own = own(machine).map(|dir| dir.join("known_hosts"));
    let all = machine.path("/etc/ssh/ssh_known_hosts");
    let texts: Vec<String> = own.into_iter().chain([all]).filter_map(|file| machine::read(&file)).collect();
    let lines = || texts.iter().flat_map(|text| text.lines());
    let unknown: Vec<&str> = hosts
        .map(|host| host.name.as_str())
        .filter(|host| !lines().any(|line| has_host(line, host)))
        .collect();
    if unknown.is_empty() {
        return vec![Finding::ok("known hosts", "all hosts of the job")];
    }
    let more = unknown.len().saturating_sub(NAMES_MAX);
    let mut list = unknown[..unknown.len() - more].join(", ");
    if more > 0 {
        list += &format!(" and {more} more");
    }
    let first = unknown[0];
    // A hashed line does not show its host.
    if lines().any(|line| line.starts_with("|1|")) {
        let hint = format!("ask for each: ssh-keygen -F {first}");
        return vec![Finding::note(
            "known hosts",
            format!("names are hashed; not found in plain: {list}"),
            Some(&hint),
        )];
    }
    let hint =
        format!("log in once (ssh {first} true), or add keys: ssh-keyscan {first} >>~/.ssh/known_hosts");
    vec![Finding::note("known hosts", format!("ssh does not know the keys of {list}"), Some(&hint))]
}

/// Whether a line of a known_hosts file names a host, alone or by a pattern with `*`.
fn has_host(line: &str, host: &str) -> bool {
    let mut words = line.split_whitespace().filter(|word| !word.starts_with('@'));
    words.next().into_iter().flat_map(|names| names.split(',')).any(|name| {
        let name = name.strip_prefix('[').and_then(|rest| rest.split(']').next()).unwrap_or(name);
        match name.split_once('*') {
            Some((start, end)) => {
                host.len() >= start.len() + end.len() && host.starts_with(start) && host.ends_with(end)
            }
            None => name == host,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Level;
    use crate::machine::tests::Root;
    use hydrant_placement::Hosts;

    fn list(text: &str) -> HostSource {
        HostSource::List(Hosts::parse(text).expect("a list of hosts"))
    }

    #[test]
    fn a_job_without_hosts_needs_no_ssh() {
        let root = Root::new("no-hosts");
        let findings = check(&root.machine(), &HostSource::Allocation);
        assert_eq!(findings, [Finding::ok("hosts", "jobs run on this machine")]);
    }

    #[test]
    fn keys_and_known_hosts_are_looked_for() {
        let root = Root::new("ssh");
        let mut machine = root.machine();
        let hosts = list("a,b.example.org");
        let levels = |machine: &Machine| {
            check(machine, &hosts).iter().map(|one| (one.topic, one.level)).collect::<Vec<_>>()
        };
        machine.variables.insert("HOME".into(), root.machine().root.into_os_string());
        let missing = [("hosts", Level::Problem), ("ssh", Level::Note), ("known hosts", Level::Note)];
        assert_eq!(levels(&machine)[1..], missing);

        root.write("bin/ssh", "");
        machine.variables.insert("PATH".into(), machine.path("bin").into_os_string());
        root.write(".ssh/id_ed25519", "");
        root.write(".ssh/known_hosts", "a,192.0.2.1 ssh-ed25519 AAAA\n");
        root.write("etc/ssh/ssh_known_hosts", "[*.example.org]:22 ssh-ed25519 AAAA\n");
        assert_eq!(levels(&machine), [("hosts", Level::Ok), ("ssh", Level::Ok), ("known hosts", Level::Ok)]);

        root.write(".ssh/known_hosts", "|1|salt|hash ssh-ed25519 AAAA\n");
        let finding = check(&machine, &hosts).pop().expect("findings");
        assert_eq!(finding.hint.as_deref(), Some("ask for each: ssh-keygen -F a"));
    }

    #[test]
    fn an_allocation_is_read() {
        let root = Root::new("allocation");
        let mut machine = root.machine();
        machine.variables.insert("SLURM_JOB_NODELIST".into(), "n[1-2]".into());
        let findings = check(&machine, &HostSource::Allocation);
        assert_eq!(findings[0].text, "2 hosts of Slurm, daemons are started with srun");
        machine.variables.insert("SLURM_JOB_NODELIST".into(), "n[1-".into());
        assert_eq!(check(&machine, &HostSource::Allocation)[0].level, Level::Problem);
    }

    #[test]
    fn lines_name_hosts() {
        assert!(has_host("a,b ssh-rsa X", "b"));
        assert!(has_host("@cert-authority *.org ssh-rsa X", "n.org"));
        assert!(!has_host("ab ssh-rsa X", "a"));
        assert!(!has_host("", "a"));
    }
}
