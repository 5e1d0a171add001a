//! Hosts that join by themselves, in network namespaces of their own: the machine to start from is one of four. No ssh.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use hydrant_tests::peers::Peer;
use hydrant_tests::{Folder, Job, Running, hydrant_bin};
use rustix::process::{Pid, Signal, kill_process};

use crate::RAW;
use crate::namespaces::{HOSTS, LOGIN, Site};
use crate::ssh::parent;

/// Where the run listens, as all machines know it.
const ADDRESS: &str = "login:4200";
/// The machines that join, in the order of their numbers.
pub(crate) const ALL: [&str; 4] = [LOGIN, HOSTS[0], HOSTS[1], HOSTS[2]];

/// A folder with the secret, which all machines see.
pub(crate) fn folder() -> Folder {
    let folder = Folder::new("join");
    let path = folder.file("secret", "a secret of sixteen bytes or more\n");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("the file is this user's");
    folder
}

/// `hydrant run` on the login machine, for the hosts that join.
pub(crate) fn head(site: &Site, folder: &Folder, options: &str) -> Job {
    let job = site.hydrant("--bootstrap join --join-port 4200 --secret-file").arg(folder.path("secret"));
    job.words(options)
}

/// `hydrant join` on a machine, with four slots.
pub(crate) fn host(site: &Site, folder: &Folder, number: usize) -> Job {
    let job = site.on(ALL[number], hydrant_bin()).words("join").arg(ADDRESS);
    job.arg("--secret-file").arg(folder.path("secret")).words(&format!("-n 4 --index {number}"))
}

/// Output of `mpi_nodes`.
fn places() -> Vec<String> {
    let place = |rank: usize| {
        let (host, local) = (rank / 4, rank % 4);
        format!("rank {rank} of 16 on {}: {local} of 4 with {}", ALL[host], host * 4)
    };
    let mut places: Vec<String> = (0..16).map(place).collect();
    places.sort_unstable();
    places
}

#[test]
fn four_hosts_join_in_any_order_and_run_mpi() {
    let Some(site) = Site::shared() else { return };
    for peer in [Peer::Mpich5, Peer::OpenMpi5] {
        if !peer.there() {
            continue;
        }
        let folder = folder();
        let nodes = peer.program("mpi_nodes");
        // Two come before the run, and one of them is below another in the tree.
        let mut hosts = vec![host(&site, &folder, 3).start(), host(&site, &folder, 1).start()];
        let job = head(&site, &folder, "--expect 4 -radix 2 -n 16");
        let job = job.assign(peer.variables(&folder.0)).arg(&nodes).start();
        hosts.push(host(&site, &folder, 2).start());
        hosts.push(host(&site, &folder, 0).start());
        let outcome = job.wait();
        assert_eq!(outcome.code(0).lines(), places(), "{outcome}");
        for host in hosts {
            host.wait().code(0).quiet();
        }
        // The hosts bring the program and its environment, in which spawned ranks run, too.
        let own = |number| {
            let job = host(&site, &folder, number);
            let job =
                peer.variables(&folder.0).into_iter().fold(job, |job, (name, value)| job.env(name, value));
            job.arg("--").arg(&nodes).words("spawn a 2").start()
        };
        let hosts = [2, 0, 3, 1].map(own);
        let outcome = head(&site, &folder, "--expect 4").run();
        let children = [0, 1].map(|rank| format!("child {rank} of 2 on a: {rank} of 2 with 0"));
        // UCX of MPICH may warn on standard output.
        let lines = outcome.code(0).lines().into_iter().filter(|line| !line.contains(" UCX "));
        assert_eq!(lines.collect::<Vec<_>>(), [&children[..], &places()].concat(), "{outcome}");
        for host in hosts {
            host.wait().code(0).quiet();
        }
        site.is_idle();
    }
}

/// The daemon that a machine runs for `hydrant join`.
fn daemon(site: &Site, host: &str) -> Pid {
    let itself = format!("{} join ", hydrant_bin().display());
    let daemons: Vec<_> =
        site.guests(host).into_iter().filter(|(_, line)| line.starts_with(&itself)).collect();
    // The guardian is a child of the daemon's, with the same arguments.
    let mut parents =
        daemons.iter().filter(|&&(pid, _)| !daemons.iter().any(|&(other, _)| parent(pid) == other));
    let pid = parents.next().unwrap_or_else(|| panic!("no daemon on {host}: {daemons:#?}")).0;
    Pid::from_raw(pid as i32).expect("a process has a number")
}

#[test]
fn a_host_that_is_lost_or_cut_off_is_named_and_nothing_is_left() {
    // A site of its own, because a host of it is cut off.
    let Some(site) = Site::start() else { return };
    let folder = folder();
    let started = |options: &str| -> (Running, [Running; 4]) {
        let hosts = [3, 2, 1, 0].map(|number| host(&site, &folder, number).start());
        let job =
            head(&site, &folder, options).args([RAW, "init1", "fence1", "say", "up", "forever"]).start();
        job.await_stdout("up", 16);
        (job, hosts)
    };
    for lost in HOSTS {
        let (job, hosts) = started("--expect 4 -radix 2");
        kill_process(daemon(&site, lost), Signal::KILL).expect("it runs");
        let outcome = job.wait();
        outcome
            .code(1)
            .warns(&format!("host {lost} (node "))
            .warns("its daemon is lost: its connection was closed");
        for host in hosts {
            assert!(!host.wait().status.success());
        }
        site.is_idle();
    }
    let (job, hosts) = started("--expect 4 -heartbeat 4");
    site.cut("b");
    job.wait().code(1).warns("host b (node 3)");
    for host in hosts {
        assert!(!host.wait().status.success());
    }
    site.is_idle();
}
