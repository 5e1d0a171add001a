//! Jobs over three hosts, each with an sshd.

use hydrant_tests::peers::Peer;
use hydrant_tests::{Folder, Outcome, Running, hydrant_bin, within};
use rustix::process::{Pid, Signal, kill_process};

use crate::RAW;
use crate::namespaces::{HOSTS, PATIENCE, Site};

/// Two ranks on each host, which stay.
fn staying(site: &Site, options: &str) -> Running {
    let job = site.hydrant(options).words("-hosts a:2,b:2,c:2 -n 6");
    let job = job.args([RAW, "init1", "fence1", "say", "up", "forever"]).start();
    job.await_stdout("up", 6);
    job
}

/// The one process of those whose command line holds `words`.
#[track_caller]
fn one(processes: impl IntoIterator<Item = (u32, String)>, words: &str) -> Pid {
    let all: Vec<_> = processes.into_iter().collect();
    let found: Vec<_> = all.iter().filter(|(_, line)| line.contains(words)).collect();
    let [(pid, _)] = found[..] else { panic!("not one process of {words:?}: {all:#?}") };
    Pid::from_raw(*pid as i32).expect("a process has a number")
}

/// The parent of a process, or 0 if it has ended.
pub(crate) fn parent(pid: u32) -> u32 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("PPid:"));
    line.and_then(|line| line.trim().parse().ok()).unwrap_or_default()
}

/// The job has ended for a failure of that host's, and says so.
#[track_caller]
fn failed(outcome: &Outcome, host: &str) {
    assert!(!outcome.status.success(), "{outcome}");
    outcome.warns(&format!("host {host}"));
}

/// Output of `mpi_nodes` with `-hosts a:2,b:1,c:3 -n 6`.
const PLACES: [&str; 6] = [
    "rank 0 of 6 on a: 0 of 2 with 0",
    "rank 1 of 6 on a: 1 of 2 with 0",
    "rank 2 of 6 on b: 0 of 1 with 2",
    "rank 3 of 6 on c: 0 of 3 with 3",
    "rank 4 of 6 on c: 1 of 3 with 3",
    "rank 5 of 6 on c: 2 of 3 with 3",
];

#[test]
fn mpich_runs_over_tcp() {
    let Some(site) = Site::shared().filter(|_| Peer::Mpich5.there()) else { return };
    let nodes = Peer::Mpich5.program("mpi_nodes");
    for radix in ["16", "2"] {
        let outcome = site.hydrant("-hosts a:2,b:1,c:3 -n 6 -radix").arg(radix).arg(&nodes).run();
        assert_eq!(outcome.code(0).lines(), PLACES, "{outcome}");
        site.is_idle();
    }
    let outcome = site.hydrant("-hosts a,b,c -n 6").arg(Peer::Mpich5.program("mpi_allreduce")).run();
    outcome.code(0).says("allreduce of 6: 0 wrong\n", 1);
}

#[test]
fn a_program_that_no_host_has_is_sent_along() {
    let Some(site) = Site::shared().filter(|_| Peer::Mpich5.there()) else { return };
    let program = site.program_of_login(&Peer::Mpich5.program("mpi_nodes"));
    let job = |options: &str| site.hydrant("-hosts a:2,b:1,c:3 -n 6 -wdir /").words(options).arg(&program);
    job("").run().code(127).warns(&program);
    site.is_idle();
    for options in ["--preload-binary", "--preload-binary -radix 2"] {
        let outcome = job(options).run();
        assert_eq!(outcome.code(0).lines(), PLACES, "{outcome}");
        site.is_idle();
    }
}

/// Ranks of a host share memory, and hosts are distinguished by the job info of PMIx.
#[test]
fn open_mpi_runs_over_tcp() {
    let Some(site) = Site::shared() else { return };
    for peer in Peer::OPEN_MPI {
        if !peer.there() {
            continue;
        }
        let folder = Folder::new(&format!("{}-sites", peer.name()));
        let job = |options: &str| {
            let variables = peer.variables(&folder.0).into_iter();
            variables.fold(site.hydrant(options), |job, (name, value)| job.args(["-env", name]).arg(value))
        };
        let nodes = peer.program("mpi_nodes");
        let outcome = job("-hosts a:2,b:1,c:3 -n 6 -radix 2").arg(&nodes).run();
        assert_eq!(outcome.code(0).lines(), PLACES, "{outcome}");
        site.is_idle();
        let outcome = job("-hosts a:2,b:2,c:2 -n 6").arg(peer.program("mpi_allreduce")).run();
        outcome.code(0).says("allreduce of 6: 0 wrong\n", 1);
        site.is_idle();
        let outcome = job("-hosts a:2,b:2,c:2 -n 3").arg(&nodes).words("spawn c 2").run();
        outcome
            .code(0)
            .says("child 0 of 2 on c: 0 of 2 with 0\n", 1)
            .says("child 1 of 2 on c: 1 of 2 with 0\n", 1);
        site.is_idle();
    }
}

#[test]
fn spawned_ranks_run_on_the_host_that_is_named() {
    let Some(site) = Site::shared().filter(|_| Peer::Mpich5.there()) else { return };
    let job = site.hydrant("-hosts a:2,b:2,c:2 -radix 2 -n 3").arg(Peer::Mpich5.program("mpi_nodes"));
    let outcome = job.words("spawn c 2").run();
    outcome
        .code(0)
        .says("child 0 of 2 on c: 0 of 2 with 0\n", 1)
        .says("child 1 of 2 on c: 1 of 2 with 0\n", 1);
    site.is_idle();
}

#[test]
fn input_output_and_exit_codes_are_as_on_one_machine() {
    let Some(site) = Site::shared() else { return };
    let script = "hostname; [ $PMI_RANK = 0 ] && cat; [ $PMI_RANK = 2 ] && exit 9; exit 0";
    let outcome =
        site.hydrant("-l -hosts a,b,c -n 3 sh -c").arg(script).input("from the login machine\n").run();
    outcome.code(9).warns("rank 2 on c");
    assert_eq!(outcome.lines(), ["[0] a", "[0] from the login machine", "[1] b", "[2] c"], "{outcome}");
    site.is_idle();
}

#[test]
fn a_host_that_ssh_does_not_reach_is_named_with_what_ssh_says() {
    let Some(site) = Site::shared() else { return };
    let outcome = site.hydrant("-hosts a,b,nowhere -bootstrap-timeout 2 -n 3 true").run();
    failed(&outcome, "nowhere");
    outcome.warns("Could not resolve hostname");
    site.is_idle();
}

#[test]
fn a_daemon_that_is_killed_ends_the_job_and_names_its_host() {
    let Some(site) = Site::shared() else { return };
    // With radix 2, c is below a or b.
    for host in HOSTS {
        let job = staying(&site, "-radix 2");
        // Beside the shell that sshd starts it by, and what starts those below it.
        let itself = hydrant_bin().display().to_string();
        let daemons: Vec<_> =
            site.guests(host).into_iter().filter(|(_, line)| line.starts_with(&itself)).collect();
        // The guardian is a child of the daemon's, with the same arguments.
        let parents =
            daemons.iter().filter(|&&(pid, _)| !daemons.iter().any(|&(other, _)| parent(pid) == other));
        let daemon = one(parents.cloned(), " daemon");
        kill_process(daemon, Signal::KILL).expect("it runs");
        failed(&job.wait(), host);
        site.is_idle();
    }
}

#[test]
fn a_job_needs_no_ssh_once_its_daemons_are_linked() {
    let Some(site) = Site::shared() else { return };
    let script = "echo up; [ $PMI_RANK = 0 ] && cat; hostname";
    let mut job = site.hydrant("-hosts a,b,c -n 3 sh -c").arg(script).hold_input().start();
    job.await_stdout("up", 3);
    for host in HOSTS {
        let ssh = one(site.login_processes(), &format!(" -- {host} "));
        kill_process(ssh, Signal::KILL).expect("it runs");
    }
    job.end_input();
    assert_eq!(job.wait().code(0).quiet().lines(), ["a", "b", "c", "up", "up", "up"]);
    site.is_idle();
}

#[test]
fn a_launcher_that_is_killed_leaves_nothing_on_any_host() {
    let Some(site) = Site::shared() else { return };
    for options in ["", "-radix 2"] {
        let job = staying(&site, options);
        job.signal(Signal::KILL);
        // Waiting also sees that no rank is left.
        job.wait().signaled(Signal::KILL);
        site.is_idle();
    }
}

#[test]
fn a_link_that_is_cut_is_noticed_and_its_host_named() {
    // A site of its own: the sshd of a host that is cut off does not learn that its client has gone.
    let Some(site) = Site::start() else { return };
    let job = staying(&site, "-heartbeat 4");
    site.cut("b");
    failed(&job.wait(), "b");
    let left =
        || HOSTS.iter().flat_map(|host| site.guests(host)).filter(|(_, line)| !line.starts_with("sshd:"));
    assert!(within(PATIENCE, || left().count() == 0), "left: {:#?}", left().collect::<Vec<_>>());
}

#[test]
fn links_go_by_the_interface_that_is_named() {
    let Some(site) = Site::shared() else { return };
    for (options, net) in [("-iface eth1 -radix 2", "10.78.0."), ("-iface 10.78.0.1 -radix 2", "10.78.0.")] {
        let job = staying(&site, options);
        let links = site.connections();
        assert!(!links.is_empty() && links.iter().all(|address| address.starts_with(net)), "{links:?}");
        // All daemons have joined, so nothing listens but the port for tools, which other hosts do not reach.
        let reachable = || site.listening().into_iter().filter(|address| !address.starts_with("127.0.0.1:"));
        assert!(within(PATIENCE, || site.listening().len() == 1), "{:?}", site.listening());
        assert_eq!(reachable().collect::<Vec<_>>(), [""; 0]);
        job.signal(Signal::TERM);
        let outcome = job.wait();
        assert!(!outcome.status.success(), "{outcome}");
        site.is_idle();
    }
}
