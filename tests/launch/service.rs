//! Requests of both protocols, by a raw client.

use hydrant_tests::Job;

use crate::raw;

#[test]
fn who_a_rank_is() {
    let ask = r"init1
        send cmd=get_appnum\n
        expect cmd=appnum rc=0 appnum=0
        send cmd=get_universe_size\n
        expect cmd=universe_size rc=0 size=-1
        send cmd=get_my_kvsname\n
        expect cmd=my_kvsname rc=0 kvsname=%j
        end1";
    let other = ask.replace("appnum=0", "appnum=1");
    let job = raw("-n 1", ask).words(": -n 2").arg(crate::RAW);
    job.steps(&other).run().code(0).quiet();
}

/// As hydra: -1 unless the user, an allocation or the hosts say more. PMI-2 clients find no attribute then.
// Shows: pmi2.h, Attributes of the job | `universeSize` | `MPI_UNIVERSE_SIZE` | done: `-usize`, slots of hosts
// Also: libraries `interop::slurm::a_missing_key_and_the_attributes`, `interop::dynamic::all_ranks_spawn_together`
#[test]
fn the_universe_has_the_slots_of_the_hosts() {
    const HOSTS: &str = "--bootstrap local -hosts a:4,b:4";
    let of_slurm = |job: Job| {
        let job = job.env("SLURM_JOB_NODELIST", hydrant_tests::this_machine());
        job.env("SLURM_TASKS_PER_NODE", "6").env("SLURM_JOB_ID", "1")
    };
    let alone: fn(Job) -> Job = |job| job;
    let processors = std::thread::available_parallelism().expect("Linux counts them").get().to_string();
    for (options, size, environment) in [
        ("", "-1", alone),
        ("-usize INFINITE", "-1", alone),
        ("-usize 7", "7", alone),
        ("-usize SYSTEM", &processors, alone),
        (HOSTS, "8", alone),
        (&format!("{HOSTS} -usize SYSTEM"), "8", alone),
        (&format!("{HOSTS} -usize INFINITE"), "-1", alone),
        (&format!("{HOSTS} -usize 3"), "3", alone),
        ("--bootstrap local -hosts a,b", "2", alone),
        ("--bootstrap local -hosts a:1 -n 2", "2", alone),
        (&format!("-hosts {}:3", hydrant_tests::this_machine()), "3", alone),
        ("", "6", of_slurm),
        ("-usize SYSTEM", "6", of_slurm),
        ("-usize INFINITE", "-1", of_slurm),
    ] {
        let found =
            if size == "-1" { "found=FALSE;".to_owned() } else { format!("found=TRUE;value={size};") };
        let one =
            format!("init1\nsend cmd=get_universe_size\\n\nexpect cmd=universe_size rc=0 size={size}\nend1");
        let two = format!(
            "init2\nframe cmd=info-getjobattr;key=universeSize;\nexpect cmd=info-getjobattr-response;rc=0;{found}\nend2"
        );
        for steps in [one, two] {
            environment(raw(options, &steps)).run().code(0);
        }
    }
}

#[test]
fn oversize_keys_and_values_get_an_rc_and_cost_nothing_else() {
    let (key, value) = ("k".repeat(65), "v".repeat(1025));
    let steps = format!(
        r"init1
        send cmd=put kvsname=%j key={key} value=v\n
        refused key is longer than 64
        send cmd=put kvsname=%j key=k value={value}\n
        refused value is longer than 1024
        send cmd=put kvsname=%j key=%r value=fine\n
        expect cmd=put_result rc=0
        fence1
        send cmd=get kvsname=%j key=0\n
        expect cmd=get_result rc=0 value=fine
        end1"
    );
    raw("-n 2", &steps).run().code(0).quiet();
    let steps = format!(
        r"init2
        frame cmd=kvs-put;key={key};value=v;
        refused key is longer than 64
        frame cmd=kvs-put;key=k;value={value};
        refused value is longer than 1024
        fence2
        end2"
    );
    raw("-n 2", &steps).run().code(0).quiet();
}

#[test]
fn an_unknown_kvsname_gets_an_rc() {
    let steps = r"init1
        send cmd=get kvsname=nobodys key=k\n
        refused no such key-value space
        send cmd=put kvsname=nobodys key=k value=v\n
        refused no such key-value space
        fence1
        end1";
    raw("-n 2", steps).run().code(0).quiet();
}

#[test]
fn get_before_any_fence_and_of_nothing() {
    let steps = r"init2
        frame cmd=kvs-get;key=nothing;
        expect cmd=kvs-get-response;rc=0;found=FALSE;
        frame cmd=info-getjobattr;key=no-such-attribute;
        expect cmd=info-getjobattr-response;rc=0;found=FALSE;
        frame cmd=kvs-put;key=mine%r;value=v%r;
        expect cmd=kvs-put-response;rc=0;
        frame cmd=kvs-get;key=mine%r;
        expect cmd=kvs-get-response;rc=0;found=TRUE;value=v%r;
        fence2
        end2";
    raw("-n 2", steps).run().code(0).quiet();
}

#[test]
fn a_value_with_semicolons_survives() {
    let steps = r"init2
        frame cmd=kvs-put;key=k%r;value=a;;b=c;;;;d;
        expect cmd=kvs-put-response;rc=0;
        fence2
        frame cmd=kvs-get;key=k1;
        expect cmd=kvs-get-response;rc=0;found=TRUE;value=a;;b=c;;;;d;
        end2";
    raw("-n 2", steps).run().code(0).quiet();
}

#[test]
fn commands_that_are_not_offered_get_an_rc() {
    let steps = r"init2
        frame cmd=no-such-command;a=b;
        refused not supported
        fence2
        end2";
    raw("-n 2", steps).run().code(0).quiet();
}

#[test]
fn half_a_message_costs_only_its_sender() {
    let steps = r"init1
        only 0
        send cmd=put kvsname=%j ke
        say half
        forever
        only 1,2
        send cmd=put kvsname=%j key=k%r value=v%r\n
        expect cmd=put_result rc=0
        send cmd=barrier_in group=1,2:5\n
        expect cmd=barrier_out rc=0 tag=5
        send cmd=get kvsname=%j key=k1\n
        expect cmd=get_result rc=0 value=v1
        end1
        say done";
    let job = raw("-n 3", steps).start();
    job.await_stdout("half", 1).await_stdout("done", 2).signal(rustix::process::Signal::TERM);
    job.wait().code(143);
}

#[test]
fn rubbish_ends_its_senders_connection() {
    let steps = r"init1
        only 0
        send this is no message\n
        eof
        say closed
        exit 3
        all
        fence1
        say never";
    raw("-n 2", steps).run().code(3).says("closed", 1).says("never", 0);
}

#[test]
fn bytes_in_any_split_and_several_messages_at_once() {
    let steps = r"send cmd=init pmi_ver
        send sion=1 pmi_subversion=1\ncmd=get_maxes\ncmd=get_app
        expect cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=2
        expect cmd=maxes rc=0 kvsname_max=256 keylen_max=64 vallen_max=1024
        send num\n
        expect cmd=appnum rc=0 appnum=0
        fence1
        end1";
    raw("-n 3", steps).run().code(0).quiet();
}

#[test]
fn a_late_fence_names_who_is_missing() {
    // The first fence ends when all ranks run.
    let steps = r"init1
        fence1
        only 0
        count
        all
        fence1
        end1
        say done";
    let mut job = raw("--fence-warning 1 -n 4", steps).hold_input().start();
    job.await_stderr("\n");
    job.end_input();
    let outcome = job.wait();
    outcome.code(0).says("done", 4);
    let line = "hydrant: ranks have been waiting for 1 s: 3 of 4 have come, missing: rank 0 (pid ";
    outcome.stderr_starts(line).stderr_ends(")");
}

/// Sizes at which other servers hang.
#[test]
fn hundreds_of_ranks_meet_in_a_fence() {
    for size in [280, 320] {
        let outcome = raw(&format!("-n {size}"), "init2\nfence2\nfence2\nend2\nsay done").run();
        outcome.code(0).says("done", size).quiet();
    }
}

#[test]
fn a_limit_that_is_used_up_is_named_and_nothing_is_lost() {
    let steps = format!(
        "init1
        send cmd=put kvsname=%j key=small value=v\\n
        expect cmd=put_result rc=0
        send cmd=put kvsname=%j key=large value={}\\n
        refused limit kvs-bytes
        send cmd=get kvsname=%j key=small\\n
        expect cmd=get_result rc=0 value=v
        end1",
        "x".repeat(900)
    );
    raw("--limit kvs-bytes=800 -n 1", &steps).run().code(0).quiet();
}
