//! Jobs that ranks spawn, asked for by hand.

use std::fs::Permissions;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output, Stdio};

use hydrant_tests::plain::{Job, Scratch, hydrant, hydrant_path, sorted, text};
use rustix::process::Signal;

/// PMI-1 by hand. `$SPAWN` is the request that a test asks with.
const ASK: &str = r#"ask() { printf '%s\n' "$1" >&3; read -r reply <&3; }
    init() { ask 'cmd=init pmi_version=1 pmi_subversion=1'; }
    spawn() { printf '%s' "$SPAWN" >&3; read -r reply <&3; echo "$reply"; }
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

/// A job whose ranks run a script of [`ASK`]'s words.
fn job(options: &[&str], script: &str, programs: &[Program<'_>]) -> Command {
    let script = format!("{ASK} {script}");
    let mut command = hydrant(&[options, &["sh", "-c", &script]].concat());
    command.env("SPAWN", request(programs));
    command
}

/// One rank that spawns, says what it was answered and ends well.
fn spawn(options: &[&str], programs: &[Program<'_>]) -> Output {
    job(options, "init; spawn; end", programs).output().expect("hydrant starts")
}

/// Writes a file that may be run.
fn script(path: &str, text: &str) {
    std::fs::write(path, text).expect("a file is written");
    std::fs::set_permissions(path, Permissions::from_mode(0o755)).expect("it may be run");
}

const CHILD: &str = "init; ask cmd=get_appnum; appnum=$reply; ask cmd=get_my_kvsname; kvs=${reply##*=}; \
    ask \"cmd=get kvsname=$kvs key=from\"; \
    echo \"$PMI_RANK/$PMI_SIZE $PMI_SPAWNED ${appnum##*=} ${reply##*=} <$1> <$2>\"; end";

/// [`ASK`] and a script in one line, which PMI-1's requests are made of.
fn line(script: &str) -> String {
    let words = "ask() { echo \"$1\" >&3; read -r reply <&3; }; init() { ask 'cmd=init pmi_version=1 pmi_subversion=1'; }; \
        end() { ask cmd=finalize; }; ";
    format!("{words}{script}")
}

#[test]
fn programs_arguments_and_pairs_arrive() {
    let child = line(CHILD);
    let child = child.as_str();
    let first: &[&str] = &["sh", "-c", child, "x", "", "two words"];
    let output =
        spawn(&["-n", "1"], &[(2, first, &[("wdir", "/"), ("odd", "x")]), (1, &["sh", "-c", child], &[])]);
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
    let lines = [
        "0/3 1 0 parent <> <two words>",
        "1/3 1 0 parent <> <two words>",
        "2/3 1 1 parent <> <>",
        "cmd=spawn_result rc=0 errcodes=0,0,0",
    ];
    assert_eq!(sorted(&output.stdout), lines);
}

#[test]
fn info_keys_say_where_and_what() {
    let scratch = Scratch::new("spawn-info");
    script(&scratch.path("here"), "#!/bin/sh\necho \"$PWD $EXTRA $MORE\"\n");
    let options = scratch.path("options");
    std::fs::write(&options, "# where\nwdir=/usr\nenv=MORE=of it\n").expect("a file is written");
    let dir = scratch.path("");
    let info: &[(&str, &str)] = &[("path", &dir), ("file", &options), ("env", "EXTRA=1"), ("soft", "1:2,9")];
    let output = spawn(&[], &[(4, &["here"], info)]);
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
    assert_eq!(
        sorted(&output.stdout),
        ["/usr 1 of it", "/usr 1 of it", "cmd=spawn_result rc=0 errcodes=0,0,0,0"]
    );
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
        let output = spawn(&[], &[program, there]);
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(0), "{err}");
        assert!(out.starts_with("cmd=spawn_result rc=14"), "{out}");
        assert!(out.ends_with(&format!("errcodes={code},125\n")), "{out}");
        assert!(
            err.starts_with(&format!("hydrant: nothing is spawned for rank 0: {reason}"))
                || err.contains(reason),
            "{err}"
        );
        assert_eq!(err.lines().count(), 1, "{err}");
    }
}

#[test]
fn a_limit_refuses_a_spawn_and_says_its_name() {
    for (options, limit) in [
        (["--limit", "ranks=2"], "ranks"),
        (["--limit", "jobs=1"], "jobs"),
        (["--limit", "conns=2"], "conns"),
    ] {
        let output = spawn(&options, &[(2, &["echo", "started"], &[])]);
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(0), "{err}");
        let refused = format!("cmd=spawn_result rc=2 msg=limit_{limit}_");
        assert!(out.starts_with(&refused) && out.ends_with("errcodes=28,28\n"), "{out}");
        assert!(err.contains(&format!("raise it with --limit {limit}=N")), "{err}");
    }
}

#[test]
fn jobs_fail_by_themselves_and_the_exit_code_counts_both() {
    let dies = line("init; exit 9");
    let script = "init; spawn; end; echo went on";
    let output =
        job(&["-n", "1"], script, &[(2, &["sh", "-c", &dies], &[])]).output().expect("hydrant starts");
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!((output.status.code(), out.lines().last()), (Some(9), Some("went on")), "{err}");
    assert!(
        err.starts_with("hydrant: rank ") && err.contains(" of spawned job 1 exited with code 9 without"),
        "{err}"
    );
}

#[test]
fn labels_and_files_tell_the_jobs_apart() {
    let say: Program<'_> = (2, &["sh", "-c", "echo $PMI_RANK"], &[]);
    let output = spawn(&["-l"], &[say]);
    assert_eq!(sorted(&output.stdout), ["[0] cmd=spawn_result rc=0 errcodes=0,0", "[1:0] 0", "[1:1] 1"]);
    let scratch = Scratch::new("spawn-files");
    let output = spawn(&["-outfile-pattern", &scratch.path("%g.%r")], &[say]);
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(0), ""));
    let files =
        ["0.0", "1.0", "1.1"].map(|name| std::fs::read_to_string(scratch.path(name)).expect("it is written"));
    assert_eq!(files, ["cmd=spawn_result rc=0 errcodes=0,0\n", "0\n", "1\n"]);
}

#[test]
fn numbers_of_jobs_that_are_over_are_free_again() {
    // A child that has not quite ended may still be counted; then it is asked for once more.
    let script = "init; i=0; while [ $i -lt 50 ]; do
        printf '%s' \"$SPAWN\" >&3; read -r reply <&3
        case $reply in *rc=0*) i=$((i + 1));; esac; done; end";
    let options = ["--limit", "jobs=4", "--limit", "ranks=4", "--limit", "conns=4"];
    let output = job(&options, script, &[(1, &["echo", "child"], &[])]).output().expect("hydrant starts");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), "child\n".repeat(50));
}

#[test]
fn spawned_ranks_serve_each_other() {
    let hydrant = hydrant_path();
    let output =
        spawn(&["-n", "1"], &[(3, &[hydrant, "probe", "--pmi", "2"], &[]), (1, &[hydrant, "probe"], &[])]);
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
    assert!(text(&output.stdout).contains("4 ranks on 1 host exchanged"), "{}", text(&output.stdout));
}

#[test]
fn signals_reach_every_job() {
    let child = "trap 'echo child; exit 3' TERM; echo up; while :; do :; done";
    let script = "trap 'echo parent; exit 0' TERM; init; spawn; end; while :; do :; done";
    let mut job = Job::spawn(&mut job(&["-n", "1"], script, &[(1, &["sh", "-c", child], &[])]));
    let mut lines = [job.line(), job.line()];
    lines.sort();
    assert_eq!(lines, ["cmd=spawn_result rc=0 errcodes=0", "up"]);
    job.signal(Signal::TERM);
    let (status, out, _) = job.end();
    assert_eq!(
        (status.code(), sorted(out.as_bytes())),
        (Some(3), vec!["child".to_owned(), "parent".to_owned()])
    );
}

#[test]
fn a_rank_that_aborts_itself_goes_alone() {
    let script = r#"init() { printf 'cmd=init pmi_version=2 pmi_subversion=0\n' >&3; read -r reply <&3; }
        say() { printf '%6d%s' ${#1} "$1" >&3; }
        hear() { length=$(dd bs=1 count=6 <&3 2>/dev/null); dd bs=1 count=${length##* } <&3 2>/dev/null; echo; }
        init; say "cmd=fullinit;pmirank=$PMI_RANK;"; hear >/dev/null
        if test $PMI_RANK = 1; then say 'cmd=abort;isworld=FALSE;msg=enough;exitcode=6;'; exec sleep 1000; fi
        say 'cmd=kvs-fence;'; hear; say 'cmd=finalize;'; hear"#;
    let output =
        hydrant(&["-n", "3", "sh", "-c", script]).stdin(Stdio::null()).output().expect("hydrant starts");
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(6), "{out}{err}");
    assert_eq!(out.matches("cmd=kvs-fence-response;rc=0;").count(), 2, "{out}");
    assert_eq!(err.lines().next(), Some("hydrant: rank 1 aborted itself with code 6: enough"));
}

#[test]
fn process_sets_are_named_by_host_program_and_user() {
    let script = r#"init() { printf 'cmd=init pmi_version=2 pmi_subversion=0\n' >&3; read -r reply <&3; }
        say() { printf '%6d%s' ${#1} "$1" >&3; }
        hear() { length=$(dd bs=1 count=6 <&3 2>/dev/null); dd bs=1 count=${length##* } <&3 2>/dev/null; echo; }
        init; say "cmd=fullinit;pmirank=$PMI_RANK;"; hear >/dev/null
        for name in hydrant://app/1 ocean; do say "cmd=pset-info;name=$name;"; hear; done
        say 'cmd=finalize;'; hear >/dev/null"#;
    let sh = ["sh", "-c", script];
    let args = [&["-n", "1", "-pset", "ocean", "true", ":", "-n", "2", "-pset", "ocean"], &sh[..]].concat();
    let output = hydrant(&args).output().expect("hydrant starts");
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
    let lines = sorted(&output.stdout);
    let sizes = ["size=2", "size=2", "size=3", "size=3"];
    assert!(lines.len() == 4 && lines.iter().zip(sizes).all(|(line, size)| line.contains(size)), "{lines:?}");
    let output = hydrant(&["-pset", "mpi://mine", "true"]).output().expect("hydrant starts");
    assert_eq!(output.status.code(), Some(2));
    let err = text(&output.stderr);
    assert!(
        err.starts_with(
            "hydrant: argument 1: invalid value 'mpi://mine' for -pset: expected 1 to 127 printable "
        ),
        "{err}"
    );
}

#[test]
fn a_start_that_fails_midway_is_undone() {
    let scratch = Scratch::new("spawn-undone");
    // It is there and may be run, and only the system finds out that its interpreter is missing.
    let broken = scratch.path("broken");
    script(&broken, "#!/nowhere/interpreter\n");
    let output = spawn(&["-n", "1"], &[(40, &["sleep", "1000"], &[]), (1, &[&broken], &[])]);
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{err}");
    assert!(out.starts_with("cmd=spawn_result rc=14"), "{out}");
    assert!(out.ends_with(&format!("errcodes={}2\n", "125,".repeat(40))), "{out}");
    assert!(
        err.starts_with("hydrant: spawned job 1 is ended before it began: cannot start rank 40"),
        "{err}"
    );
    assert_eq!(err.lines().count(), 1, "{err}");
}

#[test]
fn descriptors_suffice_or_the_spawn_is_refused() {
    let job = job(&["-n", "1"], "init; spawn; end", &[(40, &["true"], &[])]);
    let output = Command::new("sh")
        .args(["-c", "ulimit -n 64; exec \"$@\"", "sh"])
        .arg(job.get_program())
        .args(job.get_args())
        .envs(job.get_envs().filter_map(|(name, value)| Some((name, value?))))
        .stdin(Stdio::null())
        .output()
        .expect("sh starts");
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{err}");
    assert!(out.ends_with(&format!("errcodes={}11\n", "11,".repeat(39))), "{out}");
    assert!(err.contains("open files, but the hard limit is 64"), "{err}");
}

#[test]
fn a_late_fence_of_a_spawned_job_names_the_job() {
    let scratch = Scratch::new("spawn-late");
    let fifo = scratch.path("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().expect("mkfifo runs").success());
    // Rank 1 comes when the test says so.
    let child = line("init; test $PMI_RANK = 1 && read -r word <\"$FIFO\"; ask cmd=barrier_in; end");
    let options = ["--fence-warning", "0.05", "-n", "1"];
    let mut command = job(&options, "init; spawn; end", &[(2, &["sh", "-c", &child], &[])]);
    let mut job = Job::spawn(command.env("FIFO", &fifo));
    let mut warning = String::new();
    let mut stderr = BufReader::new(job.child.stderr.take().expect("it is captured"));
    stderr.read_line(&mut warning).expect("the output is text");
    std::fs::write(&fifo, "go\n").expect("rank 1 reads");
    assert!(
        warning.starts_with("hydrant: a fence of spawned job 1 has been waiting for 0.05 s: 1 of 2"),
        "{warning}"
    );
    assert_eq!(job.end().0.code(), Some(0));
}
