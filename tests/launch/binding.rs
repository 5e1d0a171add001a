//! Processors, memory and GPUs of ranks.

use std::collections::HashSet;
use std::fs;

use hydrant_tests::{Job, first_processor, nodes};

use crate::{ASK, shell};

/// The processors in a status file of /proc.
fn allowed(status: &str) -> String {
    let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    line.map(|list| list.trim().to_owned()).unwrap_or_default()
}

/// The processors of this test.
fn mine() -> String {
    allowed(&fs::read_to_string("/proc/self/status").expect("Linux has /proc"))
}

#[test]
fn ranks_are_bound_to_the_processors_that_were_named() {
    let mine = mine();
    let last = mine.rsplit([',', '-']).next().unwrap_or_default();
    let outcome = Job::hydrant(&format!("-bind-to user:{last} -n 2 cat /proc/self/status")).run();
    outcome.code(0).says(&format!("Cpus_allowed_list:\t{last}\n"), 2);
    outcome.warns(&format!("hydrant: note: ranks 0-1 share processor {last} (1 core, "));
    for how in ["hwthread", "rr", "core -cpus-per-rank 1 -map-by socket"] {
        let outcome = Job::hydrant(&format!("-bind-to {how} -n 1 cat /proc/self/status")).run();
        assert!(outcome.code(0).quiet().stdout.contains("Cpus_allowed_list:"), "{outcome}");
        let bound = allowed(&outcome.stdout);
        assert!(!how.starts_with(['h', 'r']) || bound.parse::<u32>().is_ok(), "one processor: {outcome}");
    }
    for options in ["", "-bind-to machine", "-bind-to none -map-by slot:PE=2"] {
        let outcome = Job::hydrant(&format!("{options} -n 1 cat /proc/self/status")).run();
        assert_eq!(allowed(&outcome.code(0).quiet().stdout), mine);
    }
    Job::hydrant("-bind-to user:9999 -n 1 true").run().code(1).warns("9999");
    Job::hydrant("-bind-to user:1023 -n 1 true").run().code(1).warns("cannot bind to processor 1023");
    let few = Job::hydrant("-cpus-per-task 60000 -n 1 true").run();
    few.code(1).warns("cannot bind a rank to core:60000: this process may use ");
}

#[test]
fn bindings_are_reported() {
    let one = Job::hydrant("-bind-to hwthread -report-bindings -n 1 true").run();
    one.code(0).warns(" is bound to processor ");
    Job::hydrant("--report-bindings -n 1 true").run().code(0).warns(" is not bound: processor");
    let hosts =
        Job::hydrant(&format!("{} -bind-to machine -report-bindings -n 2 true", nodes(2, 1, 2))).run();
    hosts.code(0).warns("rank 0 on n1 is bound to processor").warns("rank 1 on n2 is bound to processor");
    let plan = Job::command("run --dry-run -bind-to hwthread -membind local -n 2 true").run();
    plan.code(0).says("binding: hwthread, memory local\n", 1).says("  rank 1: bound to processor ", 1);
    plan.says(", memory of NUMA node ", 2);
}

#[test]
fn memory_is_bound() {
    let outcome = Job::hydrant("-membind local -n 1 head -n 1 /proc/self/numa_maps").run();
    // A kernel without NUMA, or a container that forbids it.
    if outcome.status.code() == Some(0) {
        assert!(outcome.stdout.contains(" bind:"), "{outcome}");
        let own = Job::hydrant("-n 1 head -n 1 /proc/self/numa_maps").run();
        assert!(!own.code(0).stdout.contains(" bind:"), "{own}");
        Job::hydrant("-membind bind:1023 -n 1 true")
            .run()
            .code(1)
            .warns("cannot take memory from NUMA node 1023");
    } else {
        assert!(outcome.stderr.contains("memory") || outcome.stderr.contains("numa_maps"), "{outcome}");
    }
}

/// Prints whether Open MPI 4 is told that it shares processors. Open MPI 5 is told by PMIx, by the same decision.
const YIELDS: &str = "echo $PMI_RANK of $PMI_JOBID yields: ${OMPI_MCA_mpi_oversubscribe-no}";

// Fault: Open MPI has more ranks than processors
// Outcome: its ranks yield while they wait
// Guarantee: All ranks of a host are compared with the processors that they may use
// Also: launch `binding::an_affinity_mask_and_spawned_jobs_count`, libraries
// `interop::libpmix::ranks_know_that_they_exceed_their_processors`
#[test]
fn ranks_that_exceed_their_processors_yield() {
    let cpu = first_processor();
    let yields = |options: &str| shell(options, YIELDS).run().code(0).stdout.matches(" yields: 1\n").count();
    let processors = std::thread::available_parallelism().expect("Linux counts them").get();
    let more = processors + 1;
    assert_eq!(yields(&format!("-n {processors}")), 0);
    assert_eq!(yields(&format!("-n {more}")), more);
    assert_eq!(yields(&format!("-bind-to user:{cpu} -n 1")), 0);
    assert_eq!(yields(&format!("-bind-to user:{cpu} -n 2")), 2);
    assert_eq!(yields(&format!("-bind-to user:{cpu} -env OMPI_MCA_mpi_oversubscribe 0 -n 2")), 0);
    let hosts = |b: usize| format!("--bootstrap local -hosts a:{more},b:{b} -n {}", more + b);
    assert_eq!(yields(&hosts(1)), more, "host a alone");
    assert_eq!(yields(&hosts(more)), 2 * more);
}

/// A session is what Linux's scheduler counts as one (`sched(7)`, autogroups).
#[test]
fn ranks_that_exceed_their_processors_are_scheduled_apart() {
    const SESSION_AND_POLICY: &str = "cut -d ' ' -f 6,41 /proc/$$/stat";
    let is_on = fs::read("/proc/sys/kernel/sched_autogroup_enabled").is_ok_and(|text| text == b"1\n");
    let distinct = |job: Job| {
        let outcome = job.run();
        let pairs = outcome.code(0).quiet().stdout.lines().filter_map(|line| line.split_once(' '));
        let (sessions, policies): (HashSet<_>, HashSet<_>) = pairs.unzip();
        (sessions.len(), policies.into_iter().map(str::to_owned).collect::<Vec<_>>())
    };
    let processors = std::thread::available_parallelism().expect("Linux counts them").get();
    let more = processors + 1;
    let apart = if is_on { more } else { 1 };
    let [other, batch, idle] = ["0", "3", "5"].map(|policy| vec![policy.to_owned()]);
    let job = |options: &str| shell(options, SESSION_AND_POLICY);
    assert_eq!(distinct(job(&format!("-n {processors}"))), (1, other));
    let alone = job(&format!("-n {more}"));
    let chosen = Job::new("chrt").words("--idle 0").args(alone.command_line());
    assert_eq!(distinct(alone), (apart, batch.clone()));
    assert_eq!(distinct(job(&format!("--bootstrap local -hosts a:{more} -n {more}"))), (apart, batch));
    assert_eq!(distinct(chosen), (apart, idle));
}

#[test]
fn an_affinity_mask_and_spawned_jobs_count() {
    const MASKED: &str =
        "import os, sys; os.sched_setaffinity(0, [int(sys.argv[1])]); os.execvp(sys.argv[2], sys.argv[2:])";
    let masked =
        |run: Job| Job::new("python3").args(["-c", MASKED, &first_processor()]).args(run.command_line());
    let alone = masked(Job::command("run -n 1 sh -c").arg(YIELDS)).run();
    alone.code(0).quiet().says(" yields: no\n", 1);
    let two = masked(Job::command("run -n 2 sh -c").arg(YIELDS)).run();
    two.code(0).quiet().says(" yields: 1\n", 2);
    let child = format!("{YIELDS}; sleep 0");
    let spawn = format!(
        "{ASK} init; {YIELDS}; printf 'mcmd=spawn\\nnprocs=1\\nexecname=sh\\ntotspawns=1\\nspawnssofar=1\\narg1=-c\\narg2={child}\\n\
         argcnt=2\\ninfo_num=0\\nendcmd\\n' >&$PMI_FD; read -r reply <&$PMI_FD; ask cmd=finalize"
    );
    let spawned = masked(Job::command("run -n 1 bash -c").arg(spawn)).run();
    spawned.code(0).quiet().says("0 yields", 0);
    spawned.says(" yields: no\n", 1).says(" yields: 1\n", 1);
}

#[test]
fn ranks_get_the_gpus_of_their_host_in_turn() {
    let script = "echo $PMI_RANK $CUDA_VISIBLE_DEVICES $HIP_VISIBLE_DEVICES";
    let gpus = |job: Job| {
        job.env("CUDA_VISIBLE_DEVICES", "GPU-a,GPU-b,GPU-c")
            .env_remove("HIP_VISIBLE_DEVICES")
            .env_remove("ROCR_VISIBLE_DEVICES")
    };
    gpus(shell("-gpus-per-rank 1 -n 2", script))
        .run()
        .code(0)
        .quiet()
        .says("0 GPU-a 0\n", 1)
        .says("1 GPU-b 1\n", 1);
    let refused = gpus(shell("-gpus-per-rank 2 -n 2", script)).run();
    refused
        .code(1)
        .warns("2 ranks with 2 GPUs each need 4 GPUs, and CUDA_VISIBLE_DEVICES has 3 on this machine");
    let hosts =
        gpus(Job::hydrant(&format!("{} -gpus-per-proc 2 -n 2 sh -c", nodes(2, 1, 2))).arg(script)).run();
    hosts.code(0).says("0 GPU-a,GPU-b 0,1\n", 1).says("1 GPU-a,GPU-b 0,1\n", 1);
}
