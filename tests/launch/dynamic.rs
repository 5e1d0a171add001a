//! Requests beyond put and get, step by step: group barriers, failed ranks, spawned jobs, connections, names, rings and
//! process sets.

use hydrant_tests::{Folder, Job, nodes};
use rustix::process::{Pid, Signal, kill_process};

use crate::{ASK, RAW, raw, shell};

/// The block by which PMI-1 spawns one program, whose arguments are steps of a raw client. What stands in them as
/// `\\n` is the child's to undo.
fn spawn1(procs: u32, program: &str, steps: &[&str]) -> String {
    let words = steps.iter().flat_map(|step| match step.split_once(' ') {
        Some((step, text)) => vec![step, text],
        None => vec![*step],
    });
    let args: Vec<String> = words.zip(1..).map(|(word, n)| format!(r"arg{n}={word}\n")).collect();
    format!(
        r"send mcmd=spawn\nnprocs={procs}\nexecname={program}\ntotspawns=1\nspawnssofar=1\nargcnt={}\n{}preput_num=1\npreput_key_0=parent\npreput_val_0=%j\ninfo_num=0\nendcmd\n",
        args.len(),
        args.concat(),
    )
}

/// The same in PMI-2.
fn spawn2(procs: u32, program: &str, steps: &[&str]) -> String {
    let words = steps.iter().flat_map(|step| match step.split_once(' ') {
        Some((step, text)) => vec![step, text],
        None => vec![*step],
    });
    let args: Vec<String> =
        words.enumerate().map(|(n, word)| format!("argv{n}={};", word.replace(';', ";;"))).collect();
    format!(
        "frame cmd=spawn;ncmds=1;preputcount=1;ppkey0=parent;ppval0=%j;subcmd={program};maxprocs={procs};argc={};{}infokeycount=0;",
        args.len(),
        args.concat(),
    )
}

#[test]
fn barriers_of_groups() {
    let steps = r"init1
        send cmd=barrier_in group=WORLD:3\n
        expect cmd=barrier_out rc=0 tag=3
        send cmd=barrier_in group=NODE:4\n
        expect cmd=barrier_out rc=0 tag=4
        send cmd=barrier_in group=%r:5\n
        expect cmd=barrier_out rc=0 tag=5
        only 0,1
        send cmd=barrier_in group=0,1:6\n
        expect cmd=barrier_out rc=0 tag=6
        only 1,2
        send cmd=barrier_in group=1,2:6\n
        expect cmd=barrier_out rc=0 tag=6
        only 0,2,3
        send cmd=barrier_in group=3,0,2:7\n
        expect cmd=barrier_out rc=0 tag=7
        all
        send cmd=barrier_in group=0,1,2,3:8\n
        expect cmd=barrier_out rc=0 tag=8
        fence1
        end1
        say done";
    for way in ["", "--pmi-port"] {
        let steps = if way.is_empty() { steps.to_owned() } else { format!("ack1\n{steps}") };
        raw(&format!("{way} -n 4"), &steps).run().code(0).quiet().says("done", 4);
    }
}

/// What stands before a barrier is seen behind it by the whole group, and by those alone who waited.
#[test]
fn a_group_sees_what_was_put_before_its_barrier() {
    let steps = r"init1
        only 0
        count
        only 0,2
        send cmd=put kvsname=%j key=k%r value=v%r\n
        expect cmd=put_result rc=0
        send cmd=barrier_in group=0,2:1\n
        expect cmd=barrier_out rc=0 tag=1
        send cmd=get kvsname=%j key=k0\n
        expect cmd=get_result rc=0 value=v0
        send cmd=get kvsname=%j key=k2\n
        expect cmd=get_result rc=0 value=v2
        only 1
        say free
        all
        fence1
        end1";
    let mut job = raw("-n 3", steps).hold_input().start();
    job.await_stdout("free", 1);
    job.end_input();
    job.wait().code(0).quiet();
}

#[test]
fn groups_that_cannot_be_are_refused() {
    let steps = r"init1
        send cmd=barrier_in group=0,7:1\n
        refused malformed or this rank is not in it
        send cmd=barrier_in group=:1\n
        refused malformed
        send cmd=barrier_in group=EVERYBODY:1\n
        refused malformed
        send cmd=barrier_in group=0,,1:1\n
        refused malformed
        only 0
        send cmd=barrier_in group=1:1\n
        refused malformed or this rank is not in it
        all
        fence1
        end1";
    raw("-n 2", steps).run().code(0).quiet();
}

#[test]
fn a_group_barrier_counts_the_living() {
    let steps = r"only 1
        kill 9
        all
        init1
        fence1
        send cmd=barrier_in group=0,1,2:1\n
        expect cmd=barrier_out rc=0 tag=1
        end1
        say done";
    raw("-disable-auto-cleanup -n 3", steps).run().code(137).says("done", 2);
}

/// After a fence without them, dead ranks are known to all ranks, in both protocols.
#[test]
fn the_dead_are_listed() {
    let steps = r"only 1,3,4
        kill 9
        only 0
        init1
        send cmd=get kvsname=%j key=PMI_process_mapping\n
        expect cmd=get_result rc=0 value=(vector,(0,1,7))
        fence1
        send cmd=get kvsname=%j key=PMI_dead_processes\n
        expect cmd=get_result rc=0 value=1,3-4
        end1
        only 2,5,6
        init2
        fence2
        frame cmd=info-getjobattr;key=PMI_dead_processes;
        expect cmd=info-getjobattr-response;rc=0;found=TRUE;value=1,3-4;
        end2
        all
        say done";
    raw("-disable-auto-cleanup -n 7", steps).run().code(137).says("done", 4);
}

/// MPICH's Sessions and a second `PMI2_Init` do so, without a finalize in between.
#[test]
fn a_repeated_handshake_changes_nothing() {
    let put = r"send cmd=put kvsname=%j key=k%r value=v%r\n
        expect cmd=put_result rc=0";
    let get = r"send cmd=get kvsname=%j key=k0\n
        expect cmd=get_result rc=0 value=v0";
    let steps = format!("init1\n{put}\ninit1\nfence1\ninit1\n{get}\nfence1\nend1\nsay done");
    raw("-n 3", &steps).run().code(0).quiet().says("done", 3);
    let steps = r"init2
        frame cmd=kvs-put;key=k%r;value=v%r;
        expect cmd=kvs-put-response;rc=0;
        init2
        fence2
        init2
        frame cmd=kvs-get;key=k0;
        expect cmd=kvs-get-response;rc=0;found=TRUE;value=v0;
        end2
        say done";
    raw("-n 3", steps).run().code(0).quiet().says("done", 3);
}

/// Rank 0 is held back until the others wait; what it puts then must be there behind the fence.
// Shows: pmi2.h, Key-value space | `PMI2_KVS_Fence` | may be lazy, and wait at the first get | free: waits for all
// processes; data travel with the fence, and with `--fence lazy` at the first get
// Also: nodes `lazy::only_what_is_asked_for_moves`
#[test]
fn a_fence_waits_for_all_ranks() {
    let steps = r"init2
        only 0
        count
        frame cmd=kvs-put;key=late;value=yes;
        expect cmd=kvs-put-response;rc=0;
        all
        only 1,2,3
        say waiting
        all
        fence2
        frame cmd=kvs-get;key=late;
        expect cmd=kvs-get-response;rc=0;found=TRUE;value=yes;
        end2";
    let mut job = raw("-n 4", steps).hold_input().start();
    job.await_stdout("waiting", 3);
    job.end_input();
    job.wait().code(0).quiet();
}

/// A node attribute that a rank waits for may be put by a later rank.
#[test]
fn a_node_attribute_is_waited_for() {
    let steps = r"init2
        only 0
        count
        frame cmd=info-putnodeattr;key=shared;value=segment;;1;
        expect cmd=info-putnodeattr-response;rc=0;
        only 1,2
        frame cmd=info-getnodeattr;key=shared;wait=FALSE;
        expect cmd=info-getnodeattr-response;rc=0;found=FALSE;
        frame cmd=info-getnodeattr;key=shared;wait=TRUE;
        say waiting
        expect cmd=info-getnodeattr-response;rc=0;found=TRUE;value=segment;;1;
        all
        end2";
    let mut job = raw("-n 3", steps).hold_input().start();
    job.await_stdout("waiting", 2);
    job.end_input();
    job.wait().code(0).quiet();
}

/// More than 64 KiB in one message: its sender's connection is closed. Other ranks are not affected.
#[test]
fn an_oversize_message_costs_only_its_sender() {
    let huge = "x".repeat(70_000);
    for message in [
        format!("init1\nsend cmd=put kvsname=%j key=k value={huge}\\n"),
        format!("init2\nframe cmd=kvs-put;key=k;value={huge};"),
    ] {
        let steps = format!(
            "only 0\n{message}\neof\nexit 97\nonly 1,2\ninit1\nsend cmd=barrier_in group=1,2:1\\n\n\
             expect cmd=barrier_out rc=0 tag=1\nend1\nsay done"
        );
        let outcome = raw("-disable-auto-cleanup -n 3", &steps).run();
        // Whether the sender finds out by writing or by reading is a matter of luck.
        outcome.code(97).says("done", 2).warns("a message over 65536 bytes");
    }
}

// Shows: pmi2.h, Messages | `spawner-jobid` | the job that spawned this one | done
#[test]
fn a_child_knows_its_parent_through_both_protocols() {
    let child1 = ["init1", r"send cmd=get kvsname=%%j key=parent\\n", "expect cmd=get_result rc=0 value=%j"];
    let child1 = [&child1[..], &["fence1", "end1", "say child %%r of %%s"]].concat();
    let child2 = [
        r"send cmd=init pmi_version=2 pmi_subversion=0\\n",
        "expect cmd=response_to_init rc=0",
        "frame cmd=fullinit;pmirank=%%r;",
        "expect cmd=fullinit-response;rc=0;rank=%%r;size=3;appnum=0;spawner-jobid=%j;",
        "frame cmd=kvs-get;key=parent;",
        "expect cmd=kvs-get-response;rc=0;found=TRUE;value=%j;",
        "fence2",
        "end2",
        "say child %%r of %%s",
    ];
    for child in [&child1[..], &child2[..]] {
        // One code a process, or MPICH's client gives up.
        let one =
            format!("init1\n{}\nexpect cmd=spawn_result rc=0 errcodes=0,0,0\nend1", spawn1(3, RAW, child));
        let two = format!("init2\n{}\nexpect cmd=spawn-response;rc=0;\nend2", spawn2(3, RAW, child));
        for parent in [one, two] {
            let outcome = raw("-n 1", &parent).run();
            outcome.code(0).quiet();
            for rank in 0..3 {
                outcome.says(&format!("child {rank} of 3\n"), 1);
            }
        }
    }
}

#[test]
fn a_program_that_cannot_be_started_is_its_spawners_error() {
    let steps = format!(
        "init1\n{}\nrefused nothing was started\nfence1\nend1\nsay one",
        spawn1(2, "/no/such/program", &[])
    );
    raw("-n 2", &steps).run().code(0).says("one", 2);
    let steps = format!(
        "init2\n{}\nrefused nothing was started\nfence2\nend2\nsay two",
        spawn2(2, "/no/such/program", &[])
    );
    raw("-n 2", &steps).run().code(0).says("two", 2);
    // A file that is there but no program.
    let steps =
        format!("init2\n{}\nrefused nothing was started\nend2\nsay two", spawn2(1, "/etc/passwd", &[]));
    raw("-n 1", &steps).run().code(0).says("two", 1);
}

/// A rank that spawns a job of two, whose rank 0 ends so, and waits for ever.
fn family(options: &str, ending: &[&str]) -> Job {
    let child = [&["init2", "fence2", "only 0"], ending, &["all", "forever"]].concat();
    raw(options, &format!("init2\n{}\nexpect cmd=spawn-response;rc=0;\nforever", spawn2(2, RAW, &child)))
}

// Fault: A rank of a spawned job fails while its parent waits for it, or before it initializes
// Outcome: all jobs of the run end with its code; without cleanup the parent goes on
// Guarantee: The failure of a rank ends every job that is connected to its own
// Also: launch `dynamic::the_parent_ends_with_a_child_that_does_not_join`, `dynamic::grandparents_end_too`, libraries
// `interop::dynamic::a_parent_ends_with_its_child`
#[test]
fn the_parent_ends_with_a_child_that_fails() {
    for (ending, code, what) in [
        (&["frame cmd=abort;exitcode=9;message=too much;"][..], 9, "aborted the job with code 9: too much"),
        (&["exit 3"], 3, "exited with code 3 without finalizing"),
        (&["exit 0"], 1, "exited with code 0 without finalizing"),
        (&["kill 9"], 137, "died by SIGKILL"),
    ] {
        for nodes in [String::new(), nodes(2, 2, 2)] {
            let outcome = family(&format!("{nodes} -n 1"), ending).run();
            outcome.code(code).warns(&format!("hydrant: rank 0 of spawned job 1 {what}\n"));
            outcome
                .warns(&format!("hydrant: the first job was ended because rank 0 of spawned job 1 {what}\n"));
        }
    }
}

/// A program without MPI, or one that fails before it initializes.
#[test]
fn the_parent_ends_with_a_child_that_does_not_join() {
    for nodes in [String::new(), nodes(2, 2, 2)] {
        let steps = format!("init2\n{}\nforever", spawn2(1, "sh", &["-c exit 3"]));
        let outcome = raw(&format!("{nodes} -n 1"), &steps).run();
        outcome.code(3).warns("rank 0 of spawned job 1 exited with code 3\n");
    }
}

#[test]
fn grandparents_end_too() {
    let grandchild = spawn2(1, RAW, &["init2", "kill 9"]);
    let child = ["init2", &grandchild, "expect cmd=spawn-response;rc=0;", "forever"];
    let steps = format!("init2\n{}\nexpect cmd=spawn-response;rc=0;\nforever", spawn2(1, RAW, &child));
    for nodes in [String::new(), nodes(3, 1, 2)] {
        let outcome = raw(&format!("{nodes} -n 1"), &steps).run();
        outcome.code(137).warns("rank 0 of spawned job 2 died by SIGKILL\n");
        let why = "was ended because rank 0 of spawned job 2 died by SIGKILL\n";
        outcome.warns(&format!("the first job {why}")).warns(&format!("spawned job 1 {why}"));
    }
}

#[test]
fn without_cleanup_the_parent_goes_on() {
    let child = ["init2", "kill 9"];
    for nodes in [String::new(), nodes(2, 2, 2)] {
        let steps = format!(
            "init2\n{}\nexpect cmd=spawn-response;rc=0;\ncount\nend2\nsay parent",
            spawn2(1, RAW, &child)
        );
        let mut job = raw(&format!("{nodes} -disable-auto-cleanup -n 1"), &steps).hold_input().start();
        job.await_stderr("rank 0 of spawned job 1 ");
        job.end_input();
        job.wait().code(137).says("parent", 1);
    }
}

/// An exit code after finalize is that of a program, and not a failure of MPI.
#[test]
fn a_child_that_has_finalized_ends_alone() {
    let child = ["init2", "end2", "exit 5"];
    let steps = format!(
        "init2\n{}\nexpect cmd=spawn-response;rc=0;\ncount\nend2\nsay parent",
        spawn2(1, RAW, &child)
    );
    let mut job = raw("-n 1", &steps).hold_input().start();
    job.await_stderr("exited with code 5");
    job.end_input();
    job.wait().code(5).says("parent", 1);
}

#[test]
fn children_end_with_a_parent_that_aborts() {
    let steps = format!(
        "init2\n{}\nexpect cmd=spawn-response;rc=0;\ncount\nframe cmd=abort;exitcode=4;message=leaving;\nforever",
        spawn2(1, RAW, &["init2", "say child up", "forever"])
    );
    for nodes in [String::new(), nodes(2, 2, 2)] {
        let mut job = raw(&format!("{nodes} -n 1"), &steps).hold_input().start();
        job.await_stdout("child up", 1);
        job.end_input();
        let outcome = job.wait();
        outcome
            .code(4)
            .warns("leaving")
            .warns("spawned job 1 was ended because rank 0 of the first job aborted");
    }
}

/// The state of a process in the system's table.
fn state(pid: i32) -> char {
    let stat =
        std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("the process has not been collected");
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    state.expect("a state follows the name")
}

/// Open MPI's ranks abort when a connection to a rank of another job breaks.
// Fault: A rank aborts because one of another job has died, and the launcher sees the abort first
// Outcome: the exit code and the report are those of the rank that died
// Guarantee: Of several jobs, ended processes are collected before an abort is handled
#[test]
fn the_rank_that_failed_first_is_named() {
    let folder = Folder::new("failed-first");
    let (pipe, sent) = (folder.fifo("pipe"), folder.path("sent"));
    let spawn = r"mcmd=spawn\nnprocs=1\nexecname=sh\ntotspawns=1\nspawnssofar=1\nargcnt=2\narg1=-c\n";
    let child = r"arg2=echo child $$; exec sleep 1000\npreput_num=0\ninfo_num=0\nendcmd\n";
    let abort = format!(r"printf 'cmd=abort exitcode=4\n' >&$PMI_FD; echo >{sent}; exec sleep 1000");
    let script = format!(
        "{ASK} init; printf '{spawn}{child}' >&$PMI_FD; read -r reply <&$PMI_FD; read -r line <{pipe}; {abort}"
    );
    let job = shell("-n 1", &script).start();
    job.await_stdout("\n", 1);
    let stdout = job.stdout();
    let child =
        stdout.trim().strip_prefix("child ").and_then(|pid| pid.parse().ok()).expect("it says its pid");
    let launcher = job.pid().as_raw_nonzero().get();
    job.signal(Signal::STOP);
    while state(launcher) != 'T' {
        std::thread::yield_now();
    }
    kill_process(Pid::from_raw(child).expect("a process has a number"), Signal::KILL).expect("it runs");
    while state(child) != 'Z' {
        std::thread::yield_now();
    }
    std::fs::write(&pipe, "now\n").expect("the rank reads the pipe");
    while !std::path::Path::new(&sent).exists() {
        std::thread::yield_now();
    }
    job.signal(Signal::CONT);
    job.wait().code(137).warns("the first job was ended because rank 0 of spawned job 1 died by SIGKILL\n");
}

/// The steps of a child that disconnects from its parent.
const PART: [&str; 3] =
    ["init2", "frame cmd=job-disconnect;jobid=%j;", "expect cmd=job-disconnect-response;rc=0;"];

#[test]
fn jobs_that_have_disconnected_fail_alone() {
    for nodes in [String::new(), "--pmi-port".to_owned(), nodes(2, 1, 2)] {
        let options = format!("{nodes} -n 1");
        let child = [&PART[..], &["kill 9"]].concat();
        let spawn = spawn2(1, RAW, &child);
        let steps =
            format!("init2\n{spawn}\nexpect cmd=spawn-response;rc=0;\ncount\nfence2\nend2\nsay parent");
        let mut job = raw(&options, &steps).hold_input().start();
        job.await_stderr("rank 0 of spawned job 1 died by SIGKILL\n");
        job.end_input();
        job.wait().code(137).says("parent", 1);

        let folder = Folder::new("parted");
        let pipe = folder.fifo("pipe");
        let words = PART.map(|step| format!("'{}'", step.replacen(' ', "' '", 1))).join(" ");
        let script =
            format!("-c {RAW} {words} end2 && echo parted && read line < {pipe} && echo child $line");
        let spawn = spawn2(1, "sh", &[&script]);
        let steps = format!("init2\n{spawn}\nexpect cmd=spawn-response;rc=0;\ncount\nkill 9");
        let mut job = raw(&options, &steps).hold_input().start();
        job.await_stdout("parted", 1);
        job.end_input();
        job.await_stderr("rank 0 died by SIGKILL\n");
        std::fs::write(&pipe, "goes on\n").expect("the child reads the pipe");
        job.wait().code(137).says("child goes on\n", 1);
    }
}

#[test]
fn a_spawn_beyond_a_limit_is_refused_by_name() {
    let steps =
        format!("init2\n{}\nrefused limit jobs\nfence2\nend2\nsay done", spawn2(1, RAW, &["init2", "end2"]));
    raw("--limit jobs=1 -n 1", &steps).run().code(0).says("done", 1);
    let steps =
        format!("init2\n{}\nrefused limit ranks\nfence2\nend2\nsay done", spawn2(9, RAW, &["init2", "end2"]));
    raw("--limit ranks=4 -n 1", &steps).run().code(0).says("done", 1);
}

#[test]
fn connections_that_cannot_be_are_refused() {
    let steps = r"init2
        frame cmd=job-connect;jobid=nobodys;
        refused no such job
        frame cmd=job-disconnect;jobid=nobodys;
        refused no such job
        frame cmd=job-disconnect;jobid=%j;
        refused not connected
        frame cmd=kvs-get;jobid=nobodys;key=k;
        refused no such key-value space
        fence2
        end2";
    raw("-n 2", steps).run().code(0).quiet();
}

// Shows: pmi2.h, Messages | `name`, `port` | the name service | done
#[test]
fn names_are_published_once_and_end_with_their_job() {
    let steps = r"init2
        only 0
        frame cmd=name-publish;name=svc;port=p;;1;
        expect cmd=name-publish-response;rc=0;
        frame cmd=name-publish;name=svc;port=other;
        refused published already
        all
        fence2
        frame cmd=name-lookup;name=svc;
        expect cmd=name-lookup-response;rc=0;port=p;;1;value=p;;1;
        fence2
        only 1
        frame cmd=name-unpublish;name=svc;
        expect cmd=name-unpublish-response;rc=0;
        frame cmd=name-unpublish;name=svc;
        refused nobody has published
        all
        fence2
        frame cmd=name-lookup;name=svc;
        refused nobody has published
        end2";
    raw("-n 2", steps).run().code(0).quiet();
}

#[test]
fn a_lookup_may_wait() {
    let steps = r"init2
        only 0
        count
        frame cmd=name-publish;name=svc;port=here;
        expect cmd=name-publish-response;rc=0;
        only 1,2
        frame cmd=name-lookup;name=svc;
        say waiting
        expect cmd=name-lookup-response;rc=0;port=here;
        all
        fence2
        end2";
    let mut job = raw("--lookup-wait 60 -n 3", steps).hold_input().start();
    job.await_stdout("waiting", 2);
    job.end_input();
    job.wait().code(0).quiet();
    let steps = "init2\nframe cmd=name-lookup;name=none;\nrefused nobody has published\nend2";
    raw("--lookup-wait 0.1 -n 1", steps).run().code(0).quiet();
}

// Shows: pmi2.h, Messages | `ring-count`, `ring-left`, `ring-right` | the ring | done
#[test]
fn a_ring_hands_on_what_its_ranks_hold() {
    let steps = r"init2
        only 0
        frame cmd=ring;ring-count=1;ring-left=l0;ring-right=r0;
        expect cmd=ring-response;rc=0;ring-count=0;ring-left=r2;ring-right=l1;
        only 1
        frame cmd=ring;ring-count=2;ring-left=l1;ring-right=r1;
        expect cmd=ring-response;rc=0;ring-count=1;ring-left=r0;ring-right=l2;
        only 2
        frame cmd=ring;ring-count=1;ring-left=l2;ring-right=r2;
        expect cmd=ring-response;rc=0;ring-count=3;ring-left=r1;ring-right=l0;
        all
        end2";
    raw("-n 3", steps).run().code(0).quiet();
}

#[test]
fn rings_that_cannot_be_are_refused() {
    let long = "x".repeat(1025);
    let steps = format!(
        "init2\nframe cmd=ring;ring-count=1;ring-left={long};ring-right=r;\nrefused longer than\n\
         frame cmd=ring;ring-left=l;ring-right=r;\nrefused missing\n\
         frame cmd=ring;ring-count=1;ring-left=l;ring-right=l;\nexpect cmd=ring-response;rc=0;\nend2"
    );
    raw("-n 2", &steps).run().code(0).quiet();
}

/// A rank counts the sets that it is in. Sets come at the end and stay; one with a dead member says so.
#[test]
fn process_sets_are_those_one_is_in() {
    let steps = r"init2
        frame cmd=pset-name;index=0;
        expect cmd=pset-name-response;rc=0;name=mpi://WORLD;
        frame cmd=pset-name;index=1;
        expect cmd=pset-name-response;rc=0;name=mpi://SELF;
        frame cmd=pset-info;name=mpi://WORLD;
        expect cmd=pset-info-response;rc=0;size=3;
        frame cmd=pset-info;name=mpi://SELF;
        expect cmd=pset-info-response;rc=0;size=1;
        frame cmd=pset-info;name=nobodys;
        refused no such process set
        frame cmd=pset-define;name=mpi://MINE;members=0;
        refused is not mpi://
        frame cmd=pset-define;name=late;members=0-7;
        refused malformed
        fence2
        only 1
        frame cmd=pset-define;name=late;members=1-2;
        expect cmd=pset-define-response;rc=0;
        frame cmd=pset-define;name=late;members=0-1;
        refused has other members
        all
        fence2
        only 0
        frame cmd=pset-info;name=late;
        refused no such process set
        only 2
        frame cmd=pset-members;name=late;
        expect cmd=pset-members-response;rc=0;members=1-2;
        all
        end2";
    raw("-n 3", steps).run().code(0).quiet();
}

#[test]
fn programs_have_process_sets_that_the_user_names() {
    let steps = |size: u32| {
        format!(
            "init2\nframe cmd=pset-info;name=app://ocean;\n{}\nfence2\nend2",
            match size {
                0 => "refused no such process set".to_owned(),
                size => format!("expect cmd=pset-info-response;rc=0;size={size};"),
            }
        )
    };
    let job = raw("--pset app://ocean -n 2", &steps(2)).words(": -n 1").arg(RAW);
    job.steps(&steps(0)).run().code(0).quiet();
}

#[test]
fn a_set_with_a_dead_member_says_so() {
    let steps = r"only 1
        kill 9
        all
        init2
        only 0
        frame cmd=pset-define;name=pair;members=0,2;
        expect cmd=pset-define-response;rc=0;
        all
        fence2
        frame cmd=pset-info;name=mpi://WORLD;
        refused has died
        frame cmd=pset-name;index=0;
        expect cmd=pset-name-response;rc=0;name=mpi://WORLD;
        frame cmd=pset-info;name=pair;
        expect cmd=pset-info-response;rc=0;size=2;
        end2
        say done";
    raw("-disable-auto-cleanup -n 3", steps).run().code(137).says("done", 2);
}
