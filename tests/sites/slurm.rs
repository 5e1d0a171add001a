//! Jobs inside allocations of a real Slurm with four nodes, which srun starts the daemons on.

use std::path::Path;

use hydrant_tests::peers::Peer;
use hydrant_tests::slurm::Cluster;
use hydrant_tests::{Folder, Job, hydrant_bin, this_machine};
use rustix::process::{Pid, Signal, kill_process};

use crate::RAW;

/// `hydrant run ARGS` in an allocation of its own.
fn allocated(cluster: &Cluster, allocation: &str, args: &str) -> Job {
    let job = cluster.command("salloc").words("--quiet --partition four").words(allocation);
    job.arg(hydrant_bin()).arg("run").words(args)
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
        // All nodes are one machine.
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

/// What the refusal of `srun --hydrant` says to use.
#[test]
fn ranks_of_open_mpi_spawn() {
    let Some(cluster) = Cluster::running() else { return };
    let (peer, folder) = (Peer::OpenMpi5, Folder::new("slurm-spawn"));
    if !peer.there() {
        return;
    }
    let job = allocated(&cluster, FOUR, "-n 4").arg(peer.program("mpi_spawn")).words("world 2");
    let outcome = job.assign(peer.variables(&folder.0)).run();
    outcome.code(0).says("child ", 2).says(" of 4 done, universe 8\n", 4);
}

/// `--nodes`, `-n` and `-m` place ranks as in srun, on nodes with equal and with different numbers of processors.
#[test]
fn ranks_are_placed_as_by_srun() {
    let Some(cluster) = Cluster::running() else { return };
    let script = r#"
        for options in "--nodes 2 -n 6" "--nodes 2 -n 7" "--nodes 2 -n 7 -m cyclic" "--nodes 1 -n 3" "-n 6 -m block" \
            "--nodes 2 -n 2 --ntasks-per-node 1 -m cyclic" \
            "--nodes 4 -n 2"; do
            echo "$options"
            "$0" run $options sh -c 'echo $PMI_RANK $PMIX_HOSTNAME' 2>&1 | sort -n > "$1.hydrant"
            srun --overlap $options sh -c 'echo $SLURM_PROCID $SLURMD_NODENAME' 2> "$1.warnings" | sort -n > "$1.srun"
            grep -v ^hydrant: "$1.hydrant" | diff - "$1.srun" || exit
        done
        grep "can't run 2 processes on 4 nodes, setting nnodes to 2" "$1.warnings"
        grep ^hydrant: "$1.hydrant""#;
    let folder = Folder::new("slurm-placed");
    for allocation in ["--nodes 4 --exclusive", "--nodes 4 --ntasks 10"] {
        let job = cluster.command("salloc").words("--quiet --partition four").words(allocation);
        let job = job.args(["sh", "-c", script]).arg(hydrant_bin()).arg(folder.path("placed"));
        let outcome = job.run();
        let notice = "hydrant: --nodes 4, but the job has 2 ranks: 2 hosts are used";
        outcome.code(0).says(notice, 1).says("setting nnodes to 2", 1);
    }
}

#[test]
fn a_daemon_has_all_that_its_job_has_of_its_node() {
    let Some(cluster) = Cluster::running() else { return };
    let allocation = "--nodes 2 --ntasks-per-node 2 --cpus-per-task 3";
    let outcome = allocated(&cluster, allocation, "-n 2 -ppn 1 scontrol --oneliner show steps").run();
    // One step has the daemons of both nodes.
    outcome.code(0).says("NodeList=n[0-1] Nodes=2 CPUs=12 Tasks=2 Name=hydrant ", 2);
    // srun from 23.11 on reads this variable, by which older ones know the other. The ranks have both.
    let variables = [("SLURM_CPUS_PER_TASK", "2"), ("SRUN_CPUS_PER_TASK", "2")];
    let script = "echo $SLURM_CPUS_PER_TASK $SRUN_CPUS_PER_TASK; scontrol --oneliner show steps";
    let job = allocated(&cluster, allocation, "-n 2 -ppn 1 sh -c").arg(script);
    let outcome = variables.into_iter().fold(job, |job, (name, value)| job.env(name, value)).run();
    outcome.code(0).says("CPUs=12 Tasks=2 Name=hydrant ", 2).says("3 2\n", 2);
}

#[test]
fn a_tree_of_one_step_is_deep() {
    let Some(cluster) = Cluster::running() else { return };
    let outcome =
        allocated(&cluster, FOUR, "-radix 2 -n 8").args([RAW, "init1", "fence1", "say", "up", "end1"]).run();
    outcome.code(0).says("up", 8);
}

#[test]
fn a_daemon_that_does_not_start_is_named() {
    let Some(cluster) = Cluster::running() else { return };
    let folder = Folder::new("slurm-daemon");
    let text = format!(
        "#!/bin/sh\n[ $SLURMD_NODENAME = n2 ] && {{ echo no daemon here >&2; exit 9; }}\nexec {} \"$@\"\n",
        hydrant_bin().display()
    );
    let remote = cluster.add(Path::new(&folder.executable("daemon", &text)));
    let job = allocated(&cluster, FOUR, "-n 8 --remote-hydrant").arg(&remote).words("true");
    let outcome = job.run();
    outcome.code(1).warns("host n2 (node 3): srun ended").warns("n2: task 2: Exited with exit code 9");
}

#[test]
fn a_lost_step_ends_the_job() {
    let Some(cluster) = Cluster::running() else { return };
    let folder = Folder::new("slurm-step");
    let pid = folder.path("pid");
    let srun = folder.executable("srun", &format!("#!/bin/sh\necho $$ > {pid}\nexec srun \"$@\"\n"));
    let job = allocated(&cluster, FOUR, "-n 8 --bootstrap-exec").arg(&srun);
    let job = job.args([RAW, "init1", "fence1", "say", "up", "forever"]).start();
    job.await_stdout("up", 8);
    let pid =
        folder.read("pid").trim().parse().ok().and_then(Pid::from_raw).expect("the script says its number");
    kill_process(pid, Signal::KILL).expect("it runs");
    // Waiting also sees that neither daemons nor ranks are left. Slurm kills the daemon of a node and its ranks in any order.
    let outcome = job.wait();
    match outcome.status.code() {
        Some(137) => outcome.warns(" died by SIGKILL\n"),
        _ => outcome.code(1).warns("is lost: "),
    };
}

// Fault: A node of an allocation with `--no-kill` fails in a job that goes on after failures
// Outcome: the ranks there are dead, the host is named, and the others go on
// Guarantee: The step of the daemons is not ended for a failed node
#[test]
fn a_node_that_fails_is_survived() {
    // A cluster of its own, because a node of it fails.
    let Some(cluster) = Cluster::with_plugins("", &[]) else { return };
    let steps = "init1\nfence1\nsay up\nonly 0\ncount\nall\nfence1\nend1\nsay done";
    let job = allocated(&cluster, &format!("--no-kill {FOUR}"), "-disable-auto-cleanup -n 8").arg(RAW);
    let mut job = job.steps(steps).hold_input().start();
    job.await_stdout("up\n", 8);
    let fail = cluster.command("scontrol").words("update nodename=n2 state=down reason=test");
    fail.run().code(0);
    job.await_stderr("host n2 (node 3): its daemon is lost: its connection was closed\n");
    job.end_input();
    let outcome = job.wait();
    assert!(!outcome.status.success(), "{outcome}");
    outcome.says("done\n", 6);
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
