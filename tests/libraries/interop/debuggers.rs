//! Jobs that tools of PMIx spawn, and debuggers over PMIx: `tests/clients/pmix_debugger.c` on libpmix 4.2.2 and that of Open MPI 5.
//! The processes that it debugs use libpmix 4.2.2.

use hydrant_tests::peers::Peer;
use hydrant_tests::{Folder, Job, Outcome, hydrant_path, nodes, until};
use rustix::process::Signal;

use super::openmpi::relocated;
use super::tools::{Library, Run, there, with_library};

/// A run whose rank 0 waits, with libpmix 4.2.2 for what is spawned.
fn waiting(options: &str) -> Run {
    let folder = Folder::new("debuggers");
    let uri = folder.path("uri");
    let job = relocated(Job::hydrant(&format!("--report-uri {uri} {options}")));
    let job = job.words("sh -c").arg("echo up; test $PMI_RANK != 0 || read line; :").env("TMPDIR", &folder.0);
    let running = job.hold_input().start();
    running.await_stdout("up\n", 1);
    Run { folder, running, uri }
}

/// Starts the debugger.
fn debugger(run: &Run, library: Library, commands: &str) -> Job {
    run.client("pmix_debugger", library, commands)
}

fn debug(run: &Run, library: Library, commands: &str) -> Outcome {
    debugger(run, library, commands).run()
}

fn shapes() -> [(String, &'static str); 2] {
    [("-n 1".to_owned(), "ppr:2:node"), (format!("-n 2 {}", nodes(2, 2, 2)), "ppr:1:node")]
}

// Serves: Tools | `PMIx_Spawn` by a tool | served: the job runs in the run, whose first program gives what the request leaves
// open, such as variables. The tool gets the job's output with `PMIX_FWD_STDOUT` and `PMIX_FWD_STDERR`, which the launcher
// writes too, and the event of its end. `PMIX_MAPBY` and `PMIX_PPR` place so many ranks on each host (`ppr:N:node`). Other
// mappings are as for spawns of ranks, and other resources than `node` are refused
#[test]
fn tools_spawn_jobs() {
    if !there() {
        return;
    }
    for (options, map) in shapes() {
        let run = waiting(&options);
        for library in [Library::Four, Library::Five] {
            for (map, processes) in [("-", 2), (map, 2), (map, 0)] {
                let commands = format!("spawn - {map} {processes} rank 3 , ended");
                let outcome = debug(&run, library, &commands);
                outcome.code(0).quiet().says("spawn status 0\n", 1).says("ended status 0\n", 1);
                outcome.says("exit code 3\n", 1).says("runs: rank 0\n", 1).says("runs: rank 1\n", 1);
            }
        }
        debug(&run, Library::Five, "spawn - ppr:1:core 2 rank 0").says("spawn status -47\n", 1);
        debug(&run, Library::Five, &format!("spawn - {map} 3 rank 0")).says("spawn status -27\n", 1);
        debug(&run, Library::Five, "spawn - - 0 rank 0").says("spawn status -27\n", 1);
        run.end()
            .code(3)
            .says("runs: rank 0\n", 6)
            .warns("3 ranks are asked for, and the hosts have places for 2");
    }
}

/// With the tool that `tests/bench/start --row jobs` times, also of jobs that end at once.
#[test]
fn a_tool_runs_jobs_one_after_another() {
    if !there() {
        return;
    }
    for (options, map) in shapes() {
        let run = waiting(&options);
        for library in [Library::Four, Library::Five] {
            let outcome = run.client("pmix_prun", library, &format!("20 {map} 2 /bin/echo ran")).run();
            assert_eq!(outcome.code(0).quiet().lines().len(), 20, "{outcome}");
        }
        run.end().code(0).says("ran\n", 80);
    }
}

// Serves: Tools | `PMIX_STDIN_TGT`, `PMIX_FWD_STDIN` | served: of a job that a tool spawns. The process that is named, or all
// or none, reads what tools push to the job (`PMIx_IOF_push`); without a name rank 0. The value is a PROC, its rank, or a text
// (`all`, `none` or the number of a rank), as PRRTE has it. Other ranks have no input
#[test]
fn tools_push_input_to_jobs_that_they_spawn() {
    if !there() {
        return;
    }
    for options in ["-n 1".to_owned(), format!("-n 1 {}", nodes(2, 2, 2))] {
        let run = waiting(&options);
        for library in [Library::Four, Library::Five] {
            for (stdin, readers) in [
                ("stdin=1", &[1][..]),
                ("stdin", &[0]),
                ("stdin=all", &[0, 1]),
                ("stdin=none", &[]),
                ("-", &[]),
            ] {
                let folder = Folder::new("go");
                let go = folder.path("go");
                let script = format!(
                    "while read line; do echo $PMIX_RANK got $line; done; echo $PMIX_RANK has all; \
                     while [ ! -e {go} ]; do sleep 0.01; done"
                );
                let job = debugger(&run, library, &format!("spawn {stdin} - 2 /bin/sh -c")).arg(script);
                let job = job.words(", push all one , push 0 two , push 1 three , push all , line , ended");
                let mut tool = job.hold_input().start();
                // No job ends before the last push.
                tool.await_stdout("push status ", 4).await_stdout(" has all\n", 2);
                std::fs::write(&go, "").expect("the folder is there");
                tool.end_input();
                let outcome = tool.wait();
                let none = if stdin == "-" { -47 } else { -173 };
                let pushed = |reads| format!("push status {}\n", if reads { 0 } else { none });
                let all = [true, readers.contains(&0), readers.contains(&1), true];
                for reads in [true, false] {
                    let count = all.iter().filter(|&&taken| (taken && !readers.is_empty()) == reads).count();
                    assert_eq!(outcome.stdout.matches(&pushed(reads)).count(), count, "{stdin}: {outcome}");
                }
                outcome.code(0).quiet().says("ended status 0\n", 1).says(" has all\n", 2);
                for (rank, own) in [(0, "two"), (1, "three")] {
                    let gets = usize::from(readers.contains(&rank));
                    outcome
                        .says(&format!("{rank} got one\n"), gets)
                        .says(&format!("{rank} got {own}\n"), gets);
                }
                outcome.says(" got ", 2 * readers.len());
            }
        }
        run.end().code(0);
    }
}

/// The end of the last job of a run.
#[test]
fn a_tool_gets_the_end_of_the_last_job() {
    if !there() {
        return;
    }
    for options in ["-v -n 1".to_owned(), format!("-v -n 1 {}", nodes(2, 1, 2))] {
        let mut run = waiting(&options);
        let commands = "spawn init - 1 rank 0 , ready , line , release , ended";
        let mut tool = debugger(&run, Library::Five, commands).hold_input().start();
        tool.await_stdout("ready status 0\n", 1);
        run.running.end_input();
        run.running.await_stderr("rank 0 exited with code 0");
        tool.end_input();
        tool.wait().code(0).says("ended status 0\n", 1);
        run.end().code(0);
    }
}

/// Tools that connect when jobs are over.
// Serves: Tools | `PMIX_EVENT_JOB_END` | served: of jobs that end while the tool has registered for it, and of those before,
// as far as they are [kept](#events), if the tool uses libpmix 4 or later
// Also: hydrant-core `tools_learn_of_jobs_that_ended_before`
#[test]
fn tools_learn_of_jobs_that_ended_before() {
    if !there() {
        return;
    }
    for (options, _) in shapes() {
        let run = waiting(&options);
        for (before, library) in [Library::Four, Library::Five].into_iter().enumerate() {
            debug(&run, library, "spawn - - 2 rank 3 , ended").code(0).says("ended status 0\n", 1);
            for late in [Library::Four, Library::Five] {
                let outcome = run.client("pmix_tool", late, &format!("await -145 {}", before + 1)).run();
                outcome.code(0).quiet().says("event -145 of rank 0 of kvs_", before + 1);
            }
        }
        run.end().code(3);
    }
}

// Serves: Tools | `PMIX_DEBUG_STOP_IN_INIT`, `PMIX_DEBUG_STOP_IN_APP` | served: of a job that a tool spawns, for all ranks, one, or those
// of an array. The tool gets `PMIX_READY_FOR_DEBUG` once all of them wait. They go on at `PMIX_DEBUGGER_RELEASE`, or when the tool
// leaves
// Also: libraries `interop::debuggers::some_ranks_wait_for_a_debugger`
// Serves: Tools | `PMIX_DEBUGGER_DAEMONS` with `PMIX_DEBUG_TARGET`, `PMIX_DEBUG_DAEMONS_PER_NODE`, `PMIX_DEBUG_DAEMONS_PER_PROC` |
// served: so many processes on each host of the job, or for each of its ranks on their host. They get `PMIX_DEBUG_TARGET`, or
// `PMIX_DEBUG_JOB`, and the table of the processes on their host
#[test]
fn ranks_wait_in_init_for_a_debugger() {
    if !there() {
        return;
    }
    for (options, map) in shapes() {
        let run = waiting(&options);
        let alone = options == "-n 1";
        for library in [Library::Four, Library::Five] {
            for (place, daemons) in [("node", if alone { 1 } else { 2 }), ("proc", 2)] {
                let commands = format!(
                    "spawn init {map} 0 rank 0 , ready , table , daemons {place} 1 daemon init , ended"
                );
                let outcome = debug(&run, library, &commands);
                outcome.code(0).quiet().says("daemons status 0\n", 1).says("ended status 0\n", 1);
                outcome.says("runs: rank 0\n", 1).says("runs: rank 1\n", 1);
                // Each daemon sees the ranks on its host, and the tool all of them.
                let seen = daemons * if alone { 2 } else { 1 };
                outcome.says("is in state ", 2 + seen);
            }
        }
        run.end().code(0);
    }
}

// Serves: Tools | `PMIX_DEBUG_STOP_ON_EXEC` | served: on Linux, as the other two. The system stops the processes at their first
// instruction (`SIGSTOP`), and `SIGCONT` continues them
#[test]
fn ranks_stop_at_their_first_instruction() {
    if !there() {
        return;
    }
    for (options, map) in shapes() {
        let run = waiting(&options);
        let commands = "spawn exec=1 - 2 rank 0 , ready , table , line";
        let mut tool = debugger(&run, Library::Five, commands).hold_input().start();
        tool.await_stdout("runs: rank 0\n", 1).await_stdout("tool: rank 1 is in state T\n", 1);
        tool.end_input();
        tool.wait().code(0);
        run.running.await_stdout("runs: rank 1\n", 1);
        let commands =
            format!("spawn exec {map} 0 rank 0 , ready , table , daemons node 1 daemon exec , ended");
        let outcome = debug(&run, Library::Five, &commands);
        outcome.code(0).quiet().says("tool: rank 0 is in state T\n", 1);
        outcome.says("runs: rank 0\n", 1).says("runs: rank 1\n", 1).says("ended status 0\n", 1);
        run.end().code(0);
    }
}

/// Ranks that an array names, and those of one of two programs.
#[test]
fn some_ranks_wait_for_a_debugger() {
    if !there() {
        return;
    }
    for options in ["-n 1".to_owned(), format!("-n 1 {}", nodes(2, 2, 2))] {
        let run = waiting(&options);
        for library in [Library::Four, Library::Five] {
            for (spawn, others, stopped) in [
                ("spawn init=1 - 2 rank 0", "runs: rank 0\n", 1),
                ("spawn init=0,2 - 3 rank 0", "runs: rank 1\n", 2),
                ("spawn init=@0,2 - 3 rank 0", "runs: rank 1\n", 2),
                ("cospawn app init", "daemon: rank 2\n", 2),
                ("cospawn job init", "daemon: rank 2\n", 2),
            ] {
                let commands = format!("{spawn} , ready , line , release , ended");
                let mut tool = debugger(&run, library, &commands).hold_input().start();
                tool.await_stdout("ready status 0\n", 1).await_stdout(others, 1);
                assert_eq!(tool.stdout().matches(": rank ").count(), 1, "{spawn}: {}", tool.stdout());
                tool.end_input();
                let outcome = tool.wait();
                outcome.code(0).quiet().says("ended status 0\n", 1).says(": rank ", 1 + stopped);
            }
        }
        debug(&run, Library::Five, "spawn init=2 - 2 rank 0").says("spawn status -27\n", 1);
        run.end().code(0).warns("rank 2 is to wait for a debugger, and the job has 2 ranks");
    }
}

// Fault: More ranks of a host report at once that they wait for a debugger than the server has places for requests
// Outcome: their debugger gets all of them
// Guarantee: The report of a rank that waits for a debugger is never refused
#[test]
fn many_ranks_of_a_host_wait_for_a_debugger() {
    if !there() {
        return;
    }
    for hosts in [String::new(), nodes(1, 1, 2)] {
        let run = waiting(&format!("-n 1 --limit spawns=1 {hosts}"));
        let commands = "spawn init - 100 rank 0 , ready , release , ended";
        let outcome = debug(&run, Library::Five, commands);
        outcome.code(0).quiet().says("ready status 0\n", 1).says("ended status 0\n", 1);
        outcome.says("runs: rank ", 100);
        run.end().code(0).says("runs: rank 99\n", 1);
    }
}

// Fault: A debugger dies while the ranks of its job wait for it
// Outcome: the ranks go on
// Guarantee: A wait for a debugger ends with the debugger
#[test]
fn ranks_go_on_when_their_debugger_dies() {
    if !there() {
        return;
    }
    for options in ["-n 1".to_owned(), format!("-n 1 {}", nodes(2, 1, 2))] {
        for stop in ["init", "exec", "init=1", "exec=0,1"] {
            let run = waiting(&options);
            let commands = format!("spawn {stop} - 2 rank 0 , ready , line");
            let tool = debugger(&run, Library::Five, &commands).hold_input().start();
            tool.await_stdout("ready status 0\n", 1);
            tool.signal(Signal::KILL);
            tool.wait().signaled(Signal::KILL);
            run.running.await_stdout("runs: rank 1\n", 1).await_stdout("runs: rank 0\n", 1);
            run.end().code(0);
        }
    }
}

/// Starts a debugger that starts a launcher, which connects to it.
fn debugger_of_launcher(folder: &Folder, library: Library, commands: &str) -> Job {
    let program = Peer::Libpmix.program("pmix_debugger");
    with_library(Job::new(program), library).arg("-").words(commands).env("TMPDIR", &folder.0)
}

// Serves: Tools | a debugger that starts the launcher (`PMIX_LAUNCHER_RNDZ_URI`) | served: `hydrant run` connects to it, and
// starts its job with the launch directives of the debugger when that releases the launcher; see [Debuggers](#debuggers)
#[test]
fn a_debugger_starts_the_launcher() {
    if !there() {
        return;
    }
    let (hydrant, program) = (hydrant_path(), Peer::Libpmix.program("pmix_debugger"));
    for hosts in [String::new(), nodes(2, 1, 2)] {
        for library in [Library::Four, Library::Five] {
            for (stop, state) in [("init", "S"), ("exec", "T")] {
                let folder = Folder::new("launched");
                let commands = format!(
                    "start {stop} {hydrant} run {hosts} -n 2 {} rank 0 , release , ready , table , \
                     daemons node 1 daemon {stop} , ended",
                    program.display(),
                );
                let outcome = debugger_of_launcher(&folder, library, &commands).run();
                outcome.code(0).says("start status 0\n", 1).says("ready status 0\n", 1);
                // libpmix 4.2.2 may complain about the end of its child while it finalizes.
                assert!(!outcome.stderr.contains("hydrant:"), "{outcome}");
                outcome.says("tool: rank ", 2).says(&format!(" is in state {state}\n"), 4);
                outcome.says("daemon: rank ", 2).says("daemons status 0\n", 1).says("ended status 0\n", 1);
                // The debugger writes the output, and the launcher does not write it again.
                outcome.says("runs: rank 0\n", 1).says("runs: rank 1\n", 1);
            }
        }
    }
}

/// Without a stop nobody waits. The exit code of the launcher is that of its job.
#[test]
fn a_launcher_may_be_started_without_a_stop() {
    if !there() {
        return;
    }
    let folder = Folder::new("launched");
    let launcher = script(&folder, "-n 2 -outfile-pattern $0.out");
    let program = Peer::Libpmix.program("pmix_debugger");
    let commands = format!("start - {launcher} {} rank 3 , release , line", program.display());
    let mut tool = debugger_of_launcher(&folder, Library::Five, &commands).hold_input().start();
    tool.await_stdout("runs: rank 0\n", 1).await_stdout("runs: rank 1\n", 1);
    let (code, errors) = exit_of(&folder);
    assert!(code == 3 && errors.contains("exited with code 3, and 1 more rank failed"), "{errors}");
    tool.end_input();
    tool.wait().code(0);
    let lines = folder.read("launcher.out");
    assert_eq!(lines.matches("runs: rank ").count(), 2, "{lines}");
}

// Fault: A debugger dies before it has released the launcher that it has started
// Outcome: nothing runs
// Guarantee: The job of a debugger does not start without it
#[test]
fn nothing_runs_when_the_debugger_dies_before_its_launcher_goes_on() {
    if !there() {
        return;
    }
    for hosts in [String::new(), nodes(2, 1, 2)] {
        let folder = Folder::new("launched");
        let launcher = script(&folder, &hosts);
        let commands = format!("start init {launcher} touch {launcher}.runs , line");
        let tool = debugger_of_launcher(&folder, Library::Five, &commands).hold_input().start();
        tool.await_stdout("start status 0\n", 1);
        tool.signal(Signal::KILL);
        tool.wait().signaled(Signal::KILL);
        let (code, errors) = exit_of(&folder);
        assert!(code == 1 && errors.contains("the debugger has left before it released the job"), "{errors}");
        assert!(!std::path::Path::new(&format!("{launcher}.runs")).exists());
    }
}

/// A launcher that leaves its messages and its exit code in files: `hydrant run OPTIONS` with the arguments.
fn script(folder: &Folder, options: &str) -> String {
    let hydrant = hydrant_path();
    let text = format!(
        "#!/bin/sh\n{hydrant} run {options} \"$@\" 2>$0.errors\necho $? >$0.part; mv $0.part $0.code\n"
    );
    folder.executable("launcher", &text)
}

/// Waits for such a launcher. Returns its exit code and its messages.
fn exit_of(folder: &Folder) -> (i32, String) {
    assert!(until(|| folder.0.join("launcher.code").exists()), "the launcher has not ended");
    (folder.read("launcher.code").trim().parse().unwrap(), folder.read("launcher.errors"))
}
