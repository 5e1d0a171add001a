//! Hosts of single programs, files of hosts and programs, and variables that name them.

use hydrant_tests::{Folder, Job};

/// The lines of a job over daemons of this machine, sorted.
fn placed(job: Job) -> Vec<String> {
    let outcome = job.run();
    let mut lines: Vec<String> = outcome.code(0).lines().into_iter().map(str::to_owned).collect();
    lines.sort();
    lines
}

/// A script that tells its program and its host.
fn say(program: &str) -> String {
    format!("echo {program} $PMI_RANK on $PMI_HOSTNAME")
}

#[test]
fn each_program_runs_on_its_hosts() {
    let options = "--bootstrap local -n 1 -host a sh -c";
    let apart = Job::hydrant(options).arg(say("x")).words(": -n 2 -host b sh -c").arg(say("y"));
    let expected = ["x 0 on a", "y 1 on b", "y 2 on b"];
    assert_eq!(placed(apart), expected);
    let folder = Folder::new("programs");
    let text = format!("\u{feff}-n 1 -host a sh -c '{}' :\n-n 2 -host b sh -c '{}'\n", say("x"), say("y"));
    let file = folder.file("job", &text);
    for option in ["-configfile", "--app"] {
        assert_eq!(placed(Job::hydrant("--bootstrap local").arg(option).arg(&file)), expected);
    }
    let hosts = folder.file("hosts", "\u{feff}a:2\nb:2\n");
    let job = Job::hydrant("--bootstrap local -f").arg(&hosts).words("-n 1 -host b sh -c").arg(say("x"));
    let beside = job.words(": -n 3 sh -c").arg(say("y"));
    assert_eq!(placed(beside), ["x 0 on b", "y 1 on a", "y 2 on a", "y 3 on b"]);
    let elsewhere = Job::hydrant("--bootstrap local -f").arg(&hosts).words("-n 1 -host c true").run();
    elsewhere.code(2).warns("-host of program 0 names c, and the hosts of the job are a, b");
}

#[test]
fn a_dry_run_shows_the_hosts_of_each_program() {
    let job =
        Job::command("run --bootstrap local --dry-run -n 1 -host a:4 x : -n 3 -host b,c y : -n 4 z").run();
    job.code(0).says("node 1: a, 4 slots: rank 0 of program 0; ranks 4-7 of program 2\n", 1);
    job.says("node 2: b: ranks 1,3 of program 1\n", 1).says("node 3: c: rank 2 of program 1\n", 1);
}

#[test]
fn options_of_the_whole_job_may_not_differ() {
    let hosts = Job::hydrant("-hosts a true : -hosts b true").run();
    hosts.code(2).warns("-hosts b differs from -hosts a of an earlier program");
    let folder = Folder::new("differ");
    let file = folder.file("job", "-timeout 5 true\n-timeout 6 true\n");
    let lines = Job::hydrant("-configfile").arg(&file).run();
    lines.code(2).warns("job line 2: -timeout 6 differs from -timeout 5");
}

/// An agent as ssh, and as the one that mpi-operator had first. Each writes its arguments to a file.
fn agents(folder: &Folder) -> [String; 2] {
    let ssh = "#!/bin/sh\necho \"ssh $*\" >>\"$0.log\"\nwhile [ \"$1\" != -- ]; do shift; done\nshift 2\nexec sh -c \"$*\"\n";
    let kubexec = "#!/bin/sh\necho \"kubexec $*\" >>\"$0.log\"\nshift\nexec sh -c \"$*\"\n";
    [folder.executable("ssh", ssh), folder.executable("kubexec.sh", kubexec)]
}

#[test]
fn variables_of_operators_name_hosts_and_agent() {
    let folder = Folder::new("operator");
    let [ssh, kubexec] = agents(&folder);
    let hosts = folder.file("hosts", "joe@w-0 slots=1\njoe@w-1 slots=1\n");
    let without_users = folder.file("pods", "w-0:1\nw-1:1\n");
    let run = |variables: &[(&str, &str)]| {
        let job = Job::hydrant("--iface lo sh -c").arg(say("x"));
        let job = job.env_remove("HYDRANT_REMOTE");
        placed(variables.iter().fold(job, |job, (name, value)| job.env(name, value)))
    };
    let expected = ["x 0 on w-0", "x 1 on w-1"];
    let extra = "-o ConnectionAttempts=10";
    for (host_file, agent, args) in [
        ("OMPI_MCA_orte_default_hostfile", "OMPI_MCA_plm_rsh_agent", "OMPI_MCA_plm_rsh_args"),
        ("I_MPI_HYDRA_HOST_FILE", "I_MPI_HYDRA_BOOTSTRAP_EXEC", "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS"),
        ("HYDRA_HOST_FILE", "HYDRA_LAUNCHER_EXEC", "HYDRA_LAUNCH_EXTRA_ARGS"),
    ] {
        assert_eq!(run(&[(host_file, &hosts), (agent, &ssh), (args, extra)]), expected);
        let log = folder.read("ssh.log");
        let line = format!("ssh -x -T -o BatchMode=yes {extra} -l joe -- w-0 ");
        assert!(log.contains(&line), "{log}");
        assert_eq!(run(&[(host_file, &without_users), (agent, &kubexec)]), expected);
        let log = folder.read("kubexec.sh.log");
        assert!(log.contains("kubexec w-1 exec "), "{log}");
        for log in ["ssh.log", "kubexec.sh.log"] {
            std::fs::remove_file(folder.path(log)).expect("a log of this test");
        }
    }
}

#[test]
fn more_ranks_than_slots_are_a_warning() {
    let outcome = Job::hydrant("--bootstrap local -hosts a:1,b:1 -n 4 true").run();
    outcome.code(0).stderr_is("hydrant: warning: more ranks than slots: a runs 2 on 1, b runs 2 on 1\n");
}
