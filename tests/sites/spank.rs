//! Steps of a real Slurm that hydrant serves inside slurmstepd: `srun --hydrant`.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use hydrant_abi::ABI_VERSION;
use hydrant_tests::peers::{Peer, intel_lib};
use hydrant_tests::slurm::Cluster;
use hydrant_tests::{Folder, Job, library, plugin};
use rustix::process::{Pid, Signal, kill_process};

use crate::RAW;
use crate::made::{hostile, hostile_on};

/// A Slurm with the plugin: `hydrant.wasm` by default, and by name one that traps at once, two that do so when they get the job, on
/// the only node or on node 2 of several, and one that never answers then, on the only node.
fn cluster() -> Option<Arc<Cluster>> {
    static CLUSTER: Mutex<Weak<Cluster>> = Mutex::new(Weak::new());
    let mut cluster = CLUSTER.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(running) = cluster.upgrade() {
        return Some(running);
    }
    if !Peer::Slurm.there() {
        return None;
    }
    let spank = library("hydrant-spank", "libhydrant_spank.so");
    let trap = hostile("spank-trap", ABI_VERSION, "(unreachable)", "(i32.const 0)");
    let alone = hostile_on("spank-alone", 0, REGISTER_JOB, "(unreachable)", "(i32.const 0)");
    let endless = "(loop $again (br $again)) (unreachable)";
    let endless = hostile_on("spank-endless", 0, REGISTER_JOB, endless, "(i32.const 0)");
    let late = hostile_on("spank-late", 2, REGISTER_JOB, "(unreachable)", "(i32.const 0)");
    let line = "required %d/libhydrant_spank.so plugin=%d/hydrant.wasm plugin.trap=%d/spank-trap.wasm \
                plugin.endless=%d/spank-endless.wasm plugin.missing=/nowhere/hydrant.wasm \
                plugin.late=%d/spank-late.wasm plugin.alone=%d/spank-alone.wasm cache=%d/cache\n";
    let started = Arc::new(Cluster::with_plugins(line, &[&spank, plugin(), &trap, &endless, &late, &alone])?);
    // Compiles the plugin, once for all tests.
    srun(&started, "--hydrant -n 1 true").run().code(0);
    *cluster = Arc::downgrade(&started);
    Some(started)
}

/// `srun OPTIONS` without PMI of Slurm.
fn srun(cluster: &Cluster, options: &str) -> Job {
    // A folder that every user has.
    cluster.command("srun").dir("/").words("--mpi=none --quiet").words(options)
}

/// Number of the input.
const REGISTER_JOB: u32 = 1;
/// Eight ranks on four nodes.
const FOUR: &str = "--partition four --nodes 4 --ntasks 8";
/// Ranks of PMI-1 that exchange nothing, say a word and wait.
const UP: [&str; 5] = ["init1", "fence1", "say", "up", "forever"];

/// Slurm is as before: slurmstepd has lived, and other steps are served.
fn serves(cluster: &Cluster) {
    let outcome = srun(cluster, "--hydrant=built-in -n 2").arg(RAW).words("init1 fence1 end1").run();
    outcome.code(0).quiet();
}

fn says_hello(job: Job, size: u32) {
    let outcome = job.arg(Peer::Mpich5.program("mpi_hello")).run();
    outcome.code(0).quiet();
    for rank in 0..size {
        let line = format!("rank {rank} of {size}, program 0, universe {size}, MPICH 5.0.2\n");
        outcome.says(&line, 1);
    }
}

#[test]
fn programs_of_mpich_are_served_on_one_node() {
    let Some(cluster) = cluster() else { return };
    if !Peer::Mpich5.there() {
        return;
    }
    for server in ["--hydrant", "--hydrant=built-in"] {
        says_hello(srun(&cluster, server).words("-n 8"), 8);
        let ring = srun(&cluster, server).words("-n 8").arg(Peer::Mpich5.program("mpi_ring")).run();
        ring.code(0).quiet().stdout_is("ring of 8: 140\n");
    }
}

#[test]
fn programs_of_mpich_are_served_on_four_nodes() {
    let Some(cluster) = cluster() else { return };
    if !Peer::Mpich5.there() {
        return;
    }
    let four = |server: &str| srun(&cluster, server).words(FOUR);
    for server in ["--hydrant", "--hydrant=built-in"] {
        says_hello(four(server), 8);
    }
    for distribution in ["block", "cyclic", "plane=2"] {
        let ring = four("--hydrant").words("--distribution").arg(distribution);
        let ring = ring.arg(Peer::Mpich5.program("mpi_ring")).run();
        ring.code(0).quiet().stdout_is("ring of 8: 140\n");
    }
    let outcome = four("--hydrant").arg(Peer::Mpich5.program("mpi_end")).words("abort 7").run();
    outcome.code(143).warns("hydrant: ending the step: rank 1 aborted it with code 7");
}

/// The versions of Open MPI that are there, each with a folder for its files.
fn open_mpi() -> impl Iterator<Item = (Peer, Folder)> {
    Peer::OPEN_MPI.into_iter().filter(|peer| peer.there()).map(|peer| (peer, Folder::new(peer.name())))
}

/// A program of Open MPI behind `job`, a srun. All nodes are this machine, and Open MPI 4 names segments by a rank's number on its
/// node.
fn with_open_mpi(job: Job, peer: Peer, folder: &Folder, program: &str) -> Job {
    let job = peer.variables(&folder.0).into_iter().fold(job, |job, (name, value)| job.env(name, value));
    let segments = "export OMPI_MCA_btl_vader_backing_directory=$0/$SLURMD_NODENAME; \
                    mkdir -p $OMPI_MCA_btl_vader_backing_directory; exec \"$@\"";
    job.words("sh -c").arg(segments).arg(&folder.0).arg(peer.program(program))
}

#[test]
fn programs_of_open_mpi_are_served() {
    let Some(cluster) = cluster() else { return };
    for (peer, folder) in open_mpi() {
        for (options, size) in [("-n 4", 4), (FOUR, 8)] {
            for server in ["--hydrant", "--hydrant=built-in"] {
                let job = srun(&cluster, server).words(options);
                let outcome = with_open_mpi(job, peer, &folder, "mpi_allreduce").run();
                outcome.code(0).quiet().says(&format!("allreduce of {size}: 0 wrong\n"), 1);
            }
        }
    }
}

/// The port for PMIx is opened by root, and accepts the user.
#[test]
fn another_user_has_pmix() {
    let Some(cluster) = cluster() else { return };
    let (peer, folder) = (Peer::OpenMpi5, Folder::new("spank-user"));
    if !peer.there() {
        return;
    }
    std::os::unix::fs::chown(&folder.0, Some(65534), Some(65534)).expect("root may");
    let job = cluster.command("setpriv").dir("/").words("--reuid 65534 --regid 65534 --clear-groups");
    let job = job.words("srun --mpi=none --quiet --hydrant").words(FOUR);
    let outcome = with_open_mpi(job, peer, &folder, "mpi_allreduce").run();
    outcome.code(0).quiet().says("allreduce of 8: 0 wrong\n", 1);
}

/// As in a container of the site: the tasks have another root, and none of Slurm's folders.
#[test]
fn tasks_with_a_root_of_their_own_are_served() {
    let Some(cluster) = cluster() else { return };
    for peer in [Peer::Mpich5, Peer::OpenMpi5] {
        if !peer.there() {
            continue;
        }
        let folder = Folder::new("spank-root");
        let contained = "root=$0/$SLURM_PROCID; mkdir $root && mount --rbind / $root && mount -t tmpfs none $root/var && \
                         exec chroot $root \"$@\"";
        let job = srun(&cluster, "--hydrant").words(FOUR).words("unshare --mount sh -c");
        let job = job.arg(contained).arg(&folder.0);
        let variables = peer.variables(&folder.0).into_iter();
        let job = variables.fold(job, |job, (name, value)| job.env(name, value));
        let outcome = job.arg(peer.program("mpi_allreduce")).run();
        outcome.code(0).quiet().says("allreduce of 8: 0 wrong\n", 1);
    }
}

#[test]
fn a_task_on_a_terminal_is_served() {
    let Some(cluster) = cluster() else { return };
    for peer in [Peer::Mpich5, Peer::OpenMpi5].into_iter().filter(|peer| peer.there()) {
        let folder = Folder::new("spank-pty");
        let program = peer.program("mpi_hello");
        let line = format!("srun --mpi=none --quiet --hydrant --pty -n 1 {}", program.display());
        let job = cluster.command("script").dir("/").words("-qec").arg(line).arg("/dev/null");
        let variables = peer.variables(&folder.0).into_iter();
        let outcome = variables.fold(job, |job, (name, value)| job.env(name, value)).run();
        outcome.code(0).says("rank 0 of 1, program 0, universe 1", 1);
    }
}

#[test]
fn heterogeneous_steps_are_refused() {
    let Some(cluster) = cluster() else { return };
    let allocated = || cluster.command("salloc").words("--quiet -p four -N1 -n1 : -p four -N2 -n2");
    let step = |groups: &str| {
        let job = allocated().words("srun --mpi=none --quiet --hydrant --het-group").arg(groups);
        job.arg(RAW).words("init1 fence1 end1 say ended").run()
    };
    let both = step("0,1");
    both.warns("--hydrant serves no heterogeneous steps");
    assert!(!both.status.success(), "{both}");
    // A component alone is a step as any other.
    step("0").code(0).says("ended\n", 1);
    step("1").code(0).says("ended\n", 2);
}

#[test]
fn a_rank_of_open_mpi_that_fails_ends_the_step() {
    let Some(cluster) = cluster() else { return };
    for (peer, folder) in open_mpi() {
        for options in ["-n 4", FOUR] {
            let job = srun(&cluster, "--hydrant").words(options);
            let outcome = with_open_mpi(job, peer, &folder, "mpi_end").words("abort 7").run();
            outcome.code(143).warns("hydrant: ending the step: rank 1 aborted it with code 7");
        }
    }
}

#[test]
fn a_step_on_several_nodes_ends_as_one() {
    let Some(cluster) = cluster() else { return };
    let four = |server: &str| srun(&cluster, server).words(FOUR);
    // The plugin of one node, whose server fails when it gets the job. The tasks run.
    let failed = four("--hydrant=late").words("sleep 1000").run();
    failed.code(143).warns("hydrant: ending the step: the server on n1 failed: plugin ").warns("trapped");
    let killed = four("--hydrant").arg(RAW).words("init1 only 6 kill 9 all forever").run();
    killed.code(143).warns("hydrant: ending the step: rank 6 died by SIGKILL between init and finalize\n");
    let trapped = four("--hydrant=trap").words("sleep 1000").run();
    trapped.code(1).warns(" does not serve its tasks: plugin ").warns("trapped");
    // srun, which has the head, is killed. Waiting also sees that no ranks are left.
    let headless = four("--hydrant").arg(RAW).args(UP).start();
    headless.await_stdout("up", 8);
    headless.signal(Signal::KILL);
    headless.wait().signaled(Signal::KILL);
    // The secret of the step is in srun's environment for slurmstepd, and in none of the tasks.
    let shown = four("--hydrant").words("sh -c").arg("env | grep -c HYDRANT_STEP; true").run();
    shown.code(0).says("0\n", 8);
}

/// The processes of a node end at once, as they do with their machine.
// Fault: A node of a step of `srun --hydrant` is lost, or the step is cancelled
// Outcome: all tasks and srun end; standard error names the node
// Guarantee: Loss of a link is noticed; TCP probes find a silent machine within 20 s
// Also: sites `spank::a_step_that_is_cancelled_leaves_nothing`
#[test]
fn a_node_that_is_lost_ends_the_step() {
    let Some(cluster) = cluster() else { return };
    let place = format!("echo \"at $SLURMD_NODENAME: $PPID $$\"; exec {RAW} init1 fence1 say up forever");
    // Slurm puts one task each on n1, n2 and n3.
    let step = srun(&cluster, "--hydrant").words(FOUR).words("sh -c").arg(&place).start();
    step.await_stdout("up", 8);
    // The slurmstepd of n2 and its task. The slurmstepd comes first, because it would report that its task has ended.
    let said = step.stdout();
    let pids = said.lines().find_map(|line| line.strip_prefix("at n2: ")).expect("n2 has a task");
    for pid in pids.split(' ') {
        let pid = Pid::from_raw(pid.parse().expect("a process id")).expect("no process has number 0");
        kill_process(pid, Signal::KILL).expect("it runs");
    }
    // srun does not wait until Slurm notices the loss. Waiting also sees that no ranks are left on the other nodes.
    let outcome = step.wait();
    outcome.warns("hydrant: ending the step: n2 is lost: ");
    assert!(!outcome.status.success(), "{outcome}");
    serves(&cluster);
}

/// n2 has no line for the plugin, so that its tasks start without it.
#[test]
fn a_node_that_does_not_connect_ends_the_step() {
    if !Peer::Slurm.there() {
        return;
    }
    let spank = library("hydrant-spank", "libhydrant_spank.so");
    let line = "optional %d/libhydrant_spank.so join-seconds=15\n";
    let Some(cluster) = Cluster::with_plugins_except("n2", line, &[&spank]) else { return };
    let outcome = srun(&cluster, "--hydrant").words(FOUR).arg(RAW).args(UP).run();
    outcome.warns("hydrant: ending the step: n2 has not connected to srun within 15 s (join-seconds): ");
    outcome.warns("plugstack.conf");
    assert!(!outcome.status.success(), "{outcome}");
    // Nodes that have the plugin serve steps without the other one.
    let rest = srun(&cluster, "--hydrant --partition four --nodes 2 --ntasks 2 --nodelist n0,n3");
    rest.arg(RAW).words("init1 fence1 end1").run().code(0).quiet();
}

/// `srun OPTIONS ... mpi_spawn ARGS` with MPICH.
fn spawning(cluster: &Cluster, options: &str, args: &str) -> Job {
    srun(cluster, options).arg(Peer::Mpich5.program("mpi_spawn")).words(args)
}

#[test]
fn ranks_of_mpich_spawn() {
    let Some(cluster) = cluster() else { return };
    if !Peer::Mpich5.there() {
        return;
    }
    for server in ["--hydrant", "--hydrant=built-in"] {
        let outcome = spawning(&cluster, &format!("{server} -n 4"), "world 3").run();
        outcome.code(0).quiet().says("child ", 3).says(" of 4 done", 4);
        let outcome = spawning(&cluster, &format!("{server} {FOUR}"), "world 3").run();
        outcome.code(0).quiet().says("child ", 3).says(" of 8 done", 8);
    }
    // All ranks at once, from all nodes.
    let outcome = spawning(&cluster, &format!("--hydrant {FOUR}"), "self 1").run();
    outcome.code(0).quiet().says("child 0 of 1\n", 8).says(" of 8 done", 8);
    // Spawned jobs spawn.
    let outcome = spawning(&cluster, "--hydrant -n 1", "nested 2").run();
    outcome.code(0).quiet().says("child 0 of 1\n", 3).says("depth 0 below\n", 1).says("depth 1 below\n", 1);
    // Nodes of the allocation that the step does not have.
    let allocated = cluster.command("salloc").words("--quiet --partition four --nodes 4 --ntasks 8");
    let step = allocated.words("srun --mpi=none --quiet --hydrant -N 2 -n 2").dir("/");
    let outcome = step.arg(Peer::Mpich5.program("mpi_spawn")).words("keys world 1 host=n3").run();
    outcome.code(0).quiet().says("child 0 of 1\n", 1).says(" of 2 done, universe 8\n", 2);
}

#[test]
fn ranks_of_intel_mpi_spawn() {
    let Some(cluster) = cluster() else { return };
    if !Peer::Mpich5.there() || !Peer::Intel.there() {
        return;
    }
    for options in ["-n 2", FOUR] {
        // The program of MPICH has the ABI of Intel MPI.
        let job = spawning(&cluster, &format!("--hydrant {options}"), "world 2");
        let job = job.env("LD_LIBRARY_PATH", intel_lib()).env("FI_PROVIDER_PATH", intel_lib());
        let outcome = job.env("FI_PROVIDER", "tcp").env("I_MPI_SPAWN", "on").run();
        outcome.code(0).says("child ", 2).says(" of 2\n", 2).says("parent 0 of ", 1);
    }
}

/// Parents and children find each other through the servers alone.
#[test]
fn ranks_of_open_mpi_spawn() {
    let Some(cluster) = cluster() else { return };
    for (peer, folder) in open_mpi() {
        let spawn = |options: &str, args: &str| {
            with_open_mpi(srun(&cluster, options), peer, &folder, "mpi_spawn").words(args).run()
        };
        for server in ["--hydrant", "--hydrant=built-in"] {
            let outcome = spawn(&format!("{server} -n 2"), "world 2");
            outcome.code(0).quiet().says("child ", 2).says(" of 2 done", 2);
            let outcome = spawn(&format!("{server} --partition four --nodes 2 --ntasks 2"), "world 2");
            outcome.code(0).quiet().says("child ", 2).says(" of 2 done", 2);
        }
        let outcome = spawn("--hydrant -n 1", "nested 2");
        outcome
            .code(0)
            .quiet()
            .says("child 0 of 1\n", 3)
            .says("depth 0 below\n", 1)
            .says("depth 1 below\n", 1);
        let outcome = spawn("--hydrant -n 2", "missing");
        outcome.code(0).says("refused: ", 2).says("child 0 of 1\n", 1).says(" of 2 done", 2);
        outcome.warns("hydrant: nothing is spawned for rank 1: /no/such/program: No such file or directory");
    }
}

/// A rank changes what is one for all nodes, those of a spawned step among them.
#[test]
fn names_and_process_sets_are_those_of_all_nodes() {
    let Some(cluster) = cluster() else { return };
    let steps = format!(
        "init2
        only 5
        frame cmd=pset-define;name=odd;members=1,3,5,7;
        expect cmd=pset-define-response;rc=0;
        frame cmd=pset-define;name=odd;members=1,3;
        refused other members
        frame cmd=name-publish;name=parent;port=p;
        expect cmd=name-publish-response;rc=0;
        all
        fence2
        only 1
        frame cmd=pset-info;name=odd;
        expect cmd=pset-info-response;rc=0;size=4;
        only 7
        frame cmd=name-lookup;name=parent;
        expect cmd=name-lookup-response;rc=0;port=p;
        only 0
        frame cmd=spawn;ncmds=1;preputcount=0;subcmd={RAW};maxprocs=2;argc=6;argv0=init2;argv1=frame;\
        argv2=cmd=name-lookup;;name=parent;;;argv3=expect;argv4=rc=0;;port=p;;;argv5=end2;infokeycount=0;
        expect cmd=spawn-response;rc=0;
        all
        fence2
        end2
        say done"
    );
    for options in ["-n 8", FOUR] {
        let outcome = srun(&cluster, "--hydrant").words(options).arg(RAW).steps(&steps).run();
        outcome.code(0).quiet().says("done\n", 8);
    }
}

#[test]
fn spawned_programs_have_what_the_rank_says() {
    let Some(cluster) = cluster() else { return };
    if !Peer::Mpich5.there() {
        return;
    }
    let outcome = spawning(&cluster, "--hydrant -n 1", "args").run();
    let line = "child 0 of 1 program 0 in / with 10:[][a  b ][;x;;y][][k=v][100%][\\n]['\"`$][é][] env=-\n";
    outcome.code(0).quiet().says(line, 1);
    let folder = Folder::new("spank-programs");
    let outcome = spawning(&cluster, "--hydrant -n 3", "multiple").arg(&folder.0).arg("n0").run();
    outcome.code(0).quiet();
    let wdir = folder.0.display();
    for rank in 0..2 {
        let line = format!("child {rank} of 3 program 0 in {wdir} with 3:[a b][x=y][\"q\"] env=from-info\n");
        outcome.says(&line, 1);
    }
    outcome.says("child 2 of 3 program 1 in / with 0: env=-\n", 1);
}

// Fault: A rank of a step of `srun --hydrant` spawns what cannot be started: a program that is not there, more processes than the
// allocation has processors, or on a host that is not a node of it
// Outcome: the rank gets an error, standard error has the reason, and the step goes on
// Guarantee: A spawn is answered when all its processes run, or none
#[test]
fn a_spawn_that_cannot_be_started_is_an_error() {
    let Some(cluster) = cluster() else { return };
    if Peer::Mpich5.there() {
        let outcome = spawning(&cluster, "--hydrant -n 2", "missing").run();
        outcome.code(0).says("refused: ", 2).says("child 0 of 1\n", 1).says(" of 2 done", 2);
        outcome.warns("hydrant: nothing is spawned for rank 1: /no/such/program: No such file or directory");
        let outcome = spawning(&cluster, "--hydrant -n 2", "partly").run();
        outcome.code(0).says("refused: ", 2).says("child", 0).says(" of 2 done", 2);
        outcome.warns("hydrant: nothing is spawned for rank 0: /no/such/program: No such file or directory");
        let outcome = spawning(&cluster, "--hydrant -n 1", "keys world 2 x=y").run();
        outcome.code(0).says("refused: ", 1).says(" of 1 done", 1);
        outcome.warns("More processors requested than permitted");
        outcome.warns("hydrant: nothing is spawned for rank 0: srun of the spawned step ended early: ");
        let outcome = spawning(&cluster, "--hydrant -n 1", "keys world 1 host=n7").run();
        outcome.code(0).says("refused: ", 1).warns(": host n7: the nodes of the allocation are n0\n");
    }
}

/// The allocation of srun, in which both steps are, ends with srun.
#[test]
fn a_spawned_step_outlives_its_spawner() {
    let Some(cluster) = cluster() else { return };
    if !Peer::Mpich5.there() {
        return;
    }
    let folder = Folder::new("spank-outlives");
    let job = spawning(&cluster, "--hydrant -n 1", "outlives");
    let outcome = job.arg(folder.0.join("pipe")).run();
    outcome.code(0).quiet().says("child outlived its parent\n", 1);
}

// Fault: A rank of a step that a rank of another step of `srun --hydrant` has spawned fails, or one of the other step, or srun is
// lost
// Outcome: both steps end; standard error has the reason
// Guarantee: The nodes of both steps have one head, and notice its loss
#[test]
fn a_step_and_those_that_it_has_spawned_end_together() {
    let Some(cluster) = cluster() else { return };
    if Peer::Mpich5.there() {
        for (options, how) in [("-n 2", "exit"), (FOUR, "signal")] {
            let folder = Folder::new("spank-dies");
            let job = spawning(&cluster, &format!("--hydrant {options}"), "dies").arg(how);
            let outcome = job.arg(folder.0.join("pipe")).run();
            let line = "hydrant: ending the step: a step that rank 0 has spawned ends: rank 0 ";
            outcome.code(143).warns(line);
        }
    }
    let spawn = format!(
        "mcmd=spawn\\nnprocs=2\\nexecname={RAW}\\ntotspawns=1\\nspawnssofar=1\\nargcnt=4\\narg1=init1\\narg2=say\\n\
         arg3=up\\narg4=forever\\nendcmd\\n"
    );
    let steps = ["init1", "send", &spawn, "expect", "rc=0", "say", "up"];
    for options in ["-n 2", "--partition four --ntasks 2 --nodelist n0,n1"] {
        let step = || srun(&cluster, "--hydrant").words(options).arg(RAW);
        let killed = step().args(steps).arg("forever").start();
        killed.await_stdout("up", 6);
        killed.signal(Signal::KILL);
        // Waiting also sees that no ranks are left.
        killed
            .wait()
            .signaled(Signal::KILL)
            .warns("hydrant: ending the step: the server on n0 failed: the link to srun");
        let failed = step().args(steps).words("fence1 only 1 kill 9 all forever").run();
        failed
            .code(143)
            .warns("hydrant: ending the step: rank 1 died by SIGKILL between init and finalize\n");
    }
    serves(&cluster);
}

#[test]
fn a_rank_that_fails_ends_the_step() {
    let Some(cluster) = cluster() else { return };
    let step = || srun(&cluster, "--hydrant -n 4");
    if Peer::Mpich5.there() {
        let outcome = step().arg(Peer::Mpich5.program("mpi_end")).words("abort 7").run();
        outcome.code(143).warns("hydrant: ending the step: rank 1 aborted it with code 7");
    }
    let killed = step().arg(RAW).words("init1 only 2 kill 9 all forever").run();
    killed.code(143).warns("hydrant: ending the step: rank 2 died by SIGKILL between init and finalize\n");
    // What Slurm does without hydrant.
    let outcome = step().args(["sh", "-c", "[ $PMI_RANK = 2 ] && exit 5; exit 0"]).run();
    outcome.code(5).warns("task 2: Exited with exit code 5");
}

#[test]
fn a_plugin_that_fails_ends_its_step_alone() {
    let Some(cluster) = cluster() else { return };
    let other = srun(&cluster, "--hydrant --job-name beside -n 2").args([RAW]).args(UP).start();
    other.await_stdout("up", 2);
    for (name, why) in [("alone", "trapped"), ("endless", "no response within 5 s")] {
        let outcome = srun(&cluster, &format!("--hydrant={name} -n 2 sleep 1000")).run();
        let file = cluster.folder().join(format!("spank-{name}.wasm"));
        let line = format!("hydrant: ending the step: the server on n0 failed: plugin {}: ", file.display());
        // slurmstepd is there to tell of its tasks.
        outcome.code(143).warns(&line).warns(why);
    }
    serves(&cluster);
    cluster.command("scancel").words("--name beside").run().code(0);
    assert!(!other.wait().status.success());
}

// Fault: A node of a step of `srun --hydrant` cannot load the plugin
// Outcome: the step ends on all nodes; standard error names node and reason
// Guarantee: A node that does not serve its tasks tells the head
// Also: hydrant-spank `a_node_that_comes_after_a_failure_is_told_to_end`
#[test]
fn a_step_that_cannot_be_served_fails() {
    let Some(cluster) = cluster() else { return };
    let refused = |options: &str, why: &str| {
        let outcome = srun(&cluster, options).arg("true").run();
        outcome.code(1).warns(why);
    };
    let known = "--hydrant=other: no such server; there are built-in, trap, endless, missing, late, alone";
    refused("--hydrant=other -n 1", known);
    refused("--hydrant=missing -n 2", "hydrant: plugin /nowhere/hydrant.wasm: cannot be read: ");
    // The head is told, which ends the tasks of nodes that have the plugin.
    let several = srun(&cluster, "--hydrant=missing").words(FOUR).arg("true").run();
    several.code(1).warns(" does not serve its tasks: plugin /nowhere/hydrant.wasm: cannot be read: ");
    assert_eq!(several.stderr.matches("hydrant: ending the step: n").count(), 1, "{several}");
    srun(&cluster, "--help").run().code(0).says("--hydrant=NAME", 1);
    // Without the option Slurm is as it was.
    let outcome = srun(&cluster, "-n 2 sh -c").arg("echo \"fd:$PMI_FD\"").run();
    outcome.code(0).stdout_is("fd:\nfd:\n");
}

#[test]
fn a_step_that_is_cancelled_leaves_nothing() {
    let Some(cluster) = cluster() else { return };
    for (options, ranks) in [("-n 4", 4), (FOUR, 8)] {
        let job = srun(&cluster, "--hydrant --job-name cancelled").words(options).arg(RAW).args(UP).start();
        job.await_stdout("up", ranks);
        cluster.command("scancel").words("--name cancelled").run().code(0);
        // Waiting also sees that no ranks are left.
        assert!(!job.wait().status.success());
    }
    serves(&cluster);
}

#[test]
fn steps_and_jobs_side_by_side_have_servers_of_their_own() {
    let Some(cluster) = cluster() else { return };
    let folder = Folder::new("spank-array");
    let exchange = format!("srun --mpi=none --hydrant --exact -n 3 {RAW} init1 fence1 fence1 end1 say ended");
    let script = format!("{exchange} & first=$!; {exchange} && wait $first");
    let both = cluster.command("salloc").words("--quiet -n 6 sh -c").arg(&script).run();
    both.code(0).says("ended\n", 6);
    let output = folder.path("%a");
    let array = cluster.command("sbatch").words("--quiet --wait --array=0-2 -n 2 --output").arg(&output);
    array.arg("--wrap").arg(exchange.replace("-n 3", "-n 2")).run().code(0);
    for element in 0..3 {
        let said = folder.read(&format!("{element}"));
        assert_eq!(said, "ended\nended\n", "element {element}");
    }
}

#[test]
fn steps_of_several_users_are_served_side_by_side() {
    let Some(cluster) = cluster() else { return };
    let raw = cluster.add(Path::new(RAW));
    let root = srun(&cluster, "--hydrant --job-name roots -n 2").arg(&raw).args(UP).start();
    root.await_stdout("up", 2);
    let other = "--reuid 65534 --regid 65534 --clear-groups srun --mpi=none --quiet --hydrant -n 2";
    let outcome = cluster.command("setpriv").dir("/").words(other).arg(&raw);
    outcome.words("init1 fence1 end1 say ended").run().code(0).says("ended\n", 2);
    // Compiled code is in root's folder alone.
    let mode = std::fs::metadata(cluster.folder().join("cache")).expect("the first step made it");
    use std::os::unix::fs::MetadataExt;
    assert_eq!((mode.uid(), mode.mode() & 0o077), (0, 0));
    cluster.command("scancel").words("--name roots").run().code(0);
    assert!(!root.wait().status.success());
}
