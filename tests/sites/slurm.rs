//! Jobs inside allocations of a real Slurm with four nodes, which srun starts the daemons on.

use hydrant_tests::Job;
use hydrant_tests::hydrant_bin;
use hydrant_tests::peers::Peer;
use hydrant_tests::slurm::Cluster;
use rustix::process::{Pid, Signal, kill_process};

use crate::RAW;

/// `hydrant run ARGS` in an allocation of its own.
fn allocated(cluster: &Cluster, allocation: &str, args: &str) -> Job {
    let job = cluster.command("salloc").words("--quiet --partition four").words(allocation);
    job.arg(hydrant_bin()).arg("run").words(args)
}

/// All nodes are one machine.
fn this_machine() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The four nodes, with two ranks each.
const FOUR: &str = "--nodes 4 --ntasks-per-node 2";

#[test]
fn the_nodes_of_an_allocation_are_found() {
    let Some(cluster) = Cluster::running() else { return };
    let script = "[ $PMI_RANK = 5 ] && exit 7; exit 0";
    allocated(&cluster, FOUR, "-n 8 sh -c").arg(script).run().code(7).warns("rank 5 on n2");
    if Peer::Mpich5.there() {
        let outcome = allocated(&cluster, FOUR, "-n 8").arg(Peer::Mpich5.program("mpi_nodes")).run();
        outcome.code(0).quiet();
        for rank in 0..8 {
            let (within, first) = (rank % 2, rank - rank % 2);
            outcome.says(&format!("rank {rank} of 8 on {}: {within} of 2 with {first}\n", this_machine()), 1);
        }
    }
    if Peer::SlurmPmi2.there() {
        let kvs = Peer::SlurmPmi2.program("pmi2_kvs");
        let outcome = allocated(&cluster, FOUR, "-n 8").arg(&kvs).words("-k 4 -l 2").run();
        outcome.code(0).says("pmi2 size=8 ", 1).says(" errs=0 ", 1);
    }
}

#[test]
fn a_daemon_has_all_that_its_job_has_of_its_node() {
    let Some(cluster) = Cluster::running() else { return };
    let allocation = "--nodes 2 --ntasks-per-node 2 --cpus-per-task 3";
    let outcome = allocated(&cluster, allocation, "-n 1 scontrol --oneliner show steps").run();
    outcome.code(0).says("Nodes=1 CPUs=6 Tasks=1 Name=hydrant ", 2);
}

#[test]
fn a_launcher_that_is_killed_leaves_nothing_in_its_allocation() {
    let Some(cluster) = Cluster::running() else { return };
    let job = cluster.command("salloc").words("--quiet --partition four").words(FOUR);
    let job = job.args(["sh", "-c", r#""$@" & echo "launcher $!"; wait $!"#, "sh"]);
    let job = job.arg(hydrant_bin()).words("run -n 8").args([RAW, "init1", "fence1", "say", "up", "forever"]);
    let job = job.start();
    job.await_stdout("up", 8);
    let said = job.stdout();
    let launcher = said.lines().find_map(|line| line.strip_prefix("launcher ")?.parse().ok());
    let launcher = launcher.and_then(Pid::from_raw).expect("the shell says its number first");
    kill_process(launcher, Signal::KILL).expect("it runs");
    // Waiting also sees that neither daemons nor ranks are left.
    job.wait().code(137);
}

#[test]
fn an_allocation_that_is_cancelled_leaves_nothing() {
    let Some(cluster) = Cluster::running() else { return };
    let job = allocated(&cluster, &format!("--job-name cancelled {FOUR}"), "-n 8");
    let job = job.args([RAW, "init1", "fence1", "say", "up", "forever"]).start();
    job.await_stdout("up", 8);
    cluster.command("scancel").words("--name cancelled").run().code(0);
    // Waiting also sees that neither daemons nor ranks are left.
    let outcome = job.wait();
    assert!(!outcome.status.success(), "{outcome}");
}
