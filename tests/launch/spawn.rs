//! Spawned jobs, requested by shell scripts.

use hydrant_tests::{Folder, Job, Outcome, hydrant_path};
use rustix::process::Signal;

/// Shell functions for PMI-1. `$SPAWN` is the request of the test.
const ASK: &str = r#"ask() { printf '%s\n' "$1" >&$PMI_FD; read -r reply <&$PMI_FD; }
    init() { ask 'cmd=init pmi_version=1 pmi_subversion=1'; }
    spawn() { printf '%s' "$SPAWN" >&$PMI_FD; read -r reply <&$PMI_FD; echo "$reply"; }
    end() { ask 'cmd=finalize'; }
    "#;

/// A program to spawn: how many, its command and arguments, its info pairs.
type Program<'a> = (u32, &'a [&'a str], &'a [(&'a str, &'a str)]);

/// The request for programs, in PMI-1.
fn request(programs: &[Program<'_>]) -> String {
    let mut text = String::new();
    for (index, (count, command, info)) in programs.iter().enumerate() {
        let (command, args) = command.split_first().expect("a program has a command");
        text += &format!("mcmd=spawn\nnprocs={count}\nexecname={command}\n");
        text += &format!("totspawns={}\nspawnssofar={}\n", programs.len(), index + 1);
        for (arg, number) in args.iter().zip(1..) {
            text += &format!("arg{number}={arg}\n");
        }
        text += &format!("argcnt={}\n", args.len());
        if index == 0 {
            text += "preput_num=1\npreput_key_0=from\npreput_val_0=parent\n";
        }
        text += &format!("info_num={}\n", info.len());
        for (number, (key, value)) in info.iter().enumerate() {
            text += &format!("info_key_{number}={key}\ninfo_val_{number}={value}\n");
        }
        text += "endcmd\n";
    }
    text
}

/// A job whose ranks run a script of [`ASK`]'s functions.
fn job(options: &str, script: &str, programs: &[Program<'_>]) -> Job {
    let job = Job::hydrant(options).args(["bash", "-c"]).arg(format!("{ASK} {script}"));
    job.env("SPAWN", request(programs))
}

/// One rank that spawns, prints the reply and ends well.
fn spawn(options: &str, programs: &[Program<'_>]) -> Outcome {
    job(options, "init; spawn; end", programs).run()
}

const CHILD: &str = "init; ask cmd=get_appnum; appnum=$reply; ask cmd=get_my_kvsname; kvs=${reply##*=}; \
    ask \"cmd=get kvsname=$kvs key=from\"; \
    echo \"$PMI_RANK/$PMI_SIZE $PMI_SPAWNED ${appnum##*=} ${reply##*=} <$1> <$2>\"; end";

/// [`ASK`] and a script in one line, which PMI-1's requests are made of.
fn line(script: &str) -> String {
    let words = "ask() { echo \"$1\" >&$PMI_FD; read -r reply <&$PMI_FD; }; init() { ask 'cmd=init pmi_version=1 pmi_subversion=1'; }; \
        end() { ask cmd=finalize; }; ";
    format!("{words}{script}")
}

#[test]
fn programs_arguments_and_pairs_arrive() {
    let child = line(CHILD);
    let child = child.as_str();
    let first: &[&str] = &["bash", "-c", child, "x", "", "two words"];
    let programs: &[Program<'_>] =
        &[(2, first, &[("wdir", "/"), ("odd", "x")]), (1, &["bash", "-c", child], &[])];
    let outcome = spawn("-n 1", programs);
    let lines = [
        "0/3 1 0 parent <> <two words>",
        "1/3 1 0 parent <> <two words>",
        "2/3 1 1 parent <> <>",
        "cmd=spawn_result rc=0 errcodes=0,0,0",
    ];
    assert_eq!(outcome.code(0).quiet().lines(), lines, "{outcome}");
}

#[test]
fn info_keys_choose_folder_environment_and_number() {
    let folder = Folder::new("spawn-info");
    folder.executable("here", "#!/bin/sh\necho \"$PWD $EXTRA $MORE\"\n");
    let options = folder.file("options", "# where\nwdir=/usr\nenv=MORE=of it\n");
    let dir = folder.path("");
    let info: &[(&str, &str)] = &[("path", &dir), ("file", &options), ("env", "EXTRA=1"), ("soft", "1:2,9")];
    let outcome = spawn("", &[(4, &["here"], info)]);
    let lines = ["/usr 1 of it", "/usr 1 of it", "cmd=spawn_result rc=0 errcodes=0,0,0,0"];
    assert_eq!(outcome.code(0).quiet().lines(), lines, "{outcome}");
}

#[test]
fn what_cannot_be_started_is_an_error_and_nothing_starts() {
    let there: Program<'_> = (1, &["echo", "started"], &[]);
    for (program, code, reason) in [
        ((1, &["/nowhere/x"][..], &[][..]), 2, "cannot start /nowhere/x: not found"),
        ((1, &["/etc/passwd"], &[]), 13, "cannot start /etc/passwd: Permission denied"),
        ((1, &["sh"], &[("wdir", "/nowhere")]), 2, "cannot use the working directory /nowhere"),
        ((1, &["sh"], &[("host", "elsewhere")]), 113, "host elsewhere: only this machine"),
        (
            (1, &["sh"], &[("soft", "2:3")]),
            22,
            "soft '2:3': no number of processes in the list can be started",
        ),
    ] {
        let outcome = spawn("", &[program, there]);
        outcome.code(0).warns(reason);
        assert!(outcome.stdout.starts_with("cmd=spawn_result rc=14"), "{outcome}");
        assert!(outcome.stdout.ends_with(&format!("errcodes={code},125\n")), "{outcome}");
        let lines = outcome.stderr.lines().filter(|line| !line.starts_with("hydrant: hint: "));
        assert_eq!(lines.count(), 1, "{outcome}");
    }
}

#[test]
fn a_limit_refuses_a_spawn_by_name() {
    for limit in ["ranks=2", "jobs=1", "conns=2"] {
        let outcome = spawn(&format!("--limit {limit}"), &[(2, &["echo", "started"], &[])]);
        let name = limit.split_once('=').expect("a name and a number").0;
        outcome.code(0).warns(&format!("raise it with --limit {name}=N"));
        let refused = format!("cmd=spawn_result rc=2 msg=limit_{name}_");
        assert!(outcome.stdout.starts_with(&refused), "{outcome}");
        assert!(outcome.stdout.ends_with("errcodes=28,28\n"), "{outcome}");
    }
}

#[test]
fn a_spawned_job_that_outlives_its_parent_gives_the_exit_code() {
    let folder = Folder::new("spawn-outlives");
    let over = folder.path("over");
    let dies = line(&format!("init; until test -e {over}; do :; done; exit 9"));
    let parent = format!("init; spawn; end; echo went on; : >{over}");
    let outcome = job("-n 1", &parent, &[(2, &["bash", "-c", &dies], &[])]).run();
    assert_eq!(outcome.code(9).stdout.lines().last(), Some("went on"), "{outcome}");
    outcome.warns("hydrant: rank ").warns(" of spawned job 1 exited with code 9 without");
}

#[test]
fn labels_and_files_tell_the_jobs_apart() {
    let say: Program<'_> = (2, &["sh", "-c", "echo $PMI_RANK"], &[]);
    let outcome = spawn("-l", &[say]);
    let lines = ["[0] cmd=spawn_result rc=0 errcodes=0,0", "[1:0] 0", "[1:1] 1"];
    assert_eq!(outcome.lines(), lines, "{outcome}");
    let folder = Folder::new("spawn-files");
    let outcome = spawn(&format!("-outfile-pattern {}", folder.path("%g.%r")), &[say]);
    outcome.code(0).stdout_is("");
    let files = ["0.0", "1.0", "1.1"].map(|name| folder.read(name));
    assert_eq!(files, ["cmd=spawn_result rc=0 errcodes=0,0\n", "0\n", "1\n"]);
}

#[test]
fn numbers_of_jobs_that_are_over_are_free_again() {
    // A child that has not quite ended may still be counted. The script asks again then.
    let script = "init; i=0; while [ $i -lt 50 ]; do
        printf '%s' \"$SPAWN\" >&$PMI_FD; read -r reply <&$PMI_FD
        case $reply in *rc=0*) i=$((i + 1));; esac; done; end";
    let options = "--limit jobs=4 --limit ranks=4 --limit conns=4";
    let outcome = job(options, script, &[(1, &["echo", "child"], &[])]).run();
    outcome.code(0).stdout_is(&"child\n".repeat(50));
}

#[test]
fn spawned_ranks_serve_each_other() {
    let hydrant = hydrant_path();
    let outcome =
        spawn("-n 1", &[(3, &[hydrant, "probe", "--pmi", "2"], &[]), (1, &[hydrant, "probe"], &[])]);
    outcome.code(0).quiet().says("4 ranks on 1 host exchanged", 1);
}

#[test]
fn descriptors_of_the_user_reach_spawned_ranks() {
    let folder = Folder::new("passed-spawned");
    let script = format!("exec 3<{}; exec \"$@\"", folder.file("given", "content\n"));
    let spawner = job("-n 1", "init; spawn; end", &[(1, &["bash", "-c", "cat <&3"], &[])]);
    let job = Job::new("bash").args(["-c", &script, "bash"]).args(spawner.command_line());
    let request = request(&[(1, &["bash", "-c", "cat <&3"], &[])]);
    job.env("SPAWN", request).run().code(0).says("content", 1).says("rc=0", 1);
}

#[test]
fn a_wdir_of_info_is_the_pwd_of_spawned_ranks() {
    let outcome = spawn("-n 1", &[(1, &["printenv", "PWD"], &[("wdir", "/usr")])]);
    outcome.code(0).says("/usr\n", 1);
}

#[test]
fn signals_reach_every_job() {
    let child = "trap 'echo child; exit 3' TERM; echo up; while :; do :; done";
    let script = "trap 'echo parent; exit 0' TERM; init; spawn; end; while :; do :; done";
    let mut job = job("-n 1", script, &[(1, &["bash", "-c", child], &[])]).start();
    assert_eq!(job.lines(), ["cmd=spawn_result rc=0 errcodes=0", "up"]);
    job.signal(Signal::TERM);
    let outcome = job.wait();
    outcome.code(3).says("child\n", 1).says("parent\n", 1);
    assert_eq!(outcome.lines().len(), 4, "{outcome}");
}

/// Shell functions for PMI-2: `say MESSAGE` sends, `hear` prints the reply.
const PMI2: &str = r#"init() { printf 'cmd=init pmi_version=2 pmi_subversion=0\n' >&$PMI_FD; read -r reply <&$PMI_FD; }
    say() { printf '%6d%s' ${#1} "$1" >&$PMI_FD; }
    hear() { length=$(dd bs=1 count=6 <&$PMI_FD 2>/dev/null); dd bs=1 count=${length##* } <&$PMI_FD 2>/dev/null; echo; }
    init; say "cmd=fullinit;pmirank=$PMI_RANK;"; hear >/dev/null
    "#;

#[test]
fn a_rank_that_aborts_itself_ends_alone() {
    let script = format!(
        "{PMI2}
        if test $PMI_RANK = 1; then say 'cmd=abort;isworld=FALSE;msg=enough;exitcode=6;'; exec sleep 1000; fi
        say 'cmd=kvs-fence;'; hear; say 'cmd=finalize;'; hear"
    );
    let outcome = Job::hydrant("-n 3 bash -c").arg(script).run();
    outcome.code(6).says("cmd=kvs-fence-response;rc=0;", 2);
    outcome.stderr_starts("hydrant: rank 1 aborted itself with code 6: enough\n");
}

#[test]
fn process_sets_are_named_by_host_program_and_user() {
    let script = format!(
        "{PMI2}
        for name in hydrant://app/1 ocean; do say \"cmd=pset-info;name=$name;\"; hear; done
        say 'cmd=finalize;'; hear >/dev/null"
    );
    let first = format!("{PMI2} say 'cmd=finalize;'; hear >/dev/null");
    let job = Job::hydrant("-n 1 -pset ocean bash -c").arg(first).words(": -n 2 -pset ocean bash -c");
    let outcome = job.arg(script).run();
    let lines = outcome.code(0).quiet().lines();
    let sizes = ["size=2", "size=2", "size=3", "size=3"];
    let all = lines.iter().zip(sizes).all(|(line, size)| line.contains(size));
    assert!(lines.len() == 4 && all, "{outcome}");
    let outcome = Job::command("run -pset mpi://mine true").run();
    outcome.code(2).stderr_starts(
        "hydrant: argument 1: invalid value 'mpi://mine' for -pset: expected 1 to 127 printable ",
    );
}

#[test]
fn a_start_that_fails_midway_is_undone() {
    let folder = Folder::new("spawn-undone");
    // The file may be executed. Only the system finds out that its interpreter is missing.
    let broken = folder.executable("broken", "#!/nowhere/interpreter\n");
    let outcome = spawn("-n 1", &[(40, &["sleep", "1000"], &[]), (1, &[&broken], &[])]);
    assert!(outcome.code(0).stdout.starts_with("cmd=spawn_result rc=14"), "{outcome}");
    assert!(outcome.stdout.ends_with(&format!("errcodes={}2\n", "125,".repeat(40))), "{outcome}");
    outcome.stderr_starts("hydrant: spawned job 1 is ended before it began: cannot start rank 40");
    outcome.warns("\nhydrant: hint: correct the first line: there is no \"/nowhere/interpreter\"");
    assert_eq!(outcome.stderr.lines().count(), 2, "{outcome}");
}

#[test]
fn descriptors_suffice_or_the_spawn_is_refused() {
    let programs: &[Program<'_>] = &[(40, &["true"], &[])];
    let command = job("-n 1", "init; spawn; end", programs).command_line();
    let job = Job::new("sh").args(["-c", "ulimit -n 64; exec \"$@\"", "sh"]).args(command);
    let outcome = job.env("SPAWN", request(programs)).run();
    outcome.code(0).warns("open files are needed, but the hard limit is 64");
    assert!(outcome.stdout.ends_with(&format!("errcodes={}11\n", "11,".repeat(39))), "{outcome}");
}

#[test]
fn a_stalled_fence_of_a_spawned_job_names_the_job() {
    let folder = Folder::new("spawn-late");
    let fifo = folder.fifo("fifo");
    // Rank 1 joins the fence when the test writes to the named pipe.
    let child = line("init; test $PMI_RANK = 1 && read -r word <\"$FIFO\"; ask cmd=barrier_in; end");
    let programs: &[Program<'_>] = &[(2, &["bash", "-c", &child], &[])];
    let job = job("--fence-warning 0.05 -n 1", "init; spawn; end", programs).env("FIFO", &fifo).start();
    job.await_stderr("\n");
    std::fs::write(&fifo, "go\n").expect("rank 1 reads");
    let outcome = job.wait();
    outcome.code(0);
    outcome.stderr_starts("hydrant: ranks of spawned job 1 have been waiting for 0.05 s: 1 of 2");
}
