//! C programs on Debian's libpmix 4.2.2, without MPI.

use std::fs;

use hydrant_tests::peers::{Peer, peers_dir};
use hydrant_tests::{Fleet, Folder, Job, Outcome, first_processor, in_sandbox, nodes, this_machine};
use rustix::process::Signal;

use super::openmpi::relocated;
use super::tools::{Library, with_library};

/// Runs one sub-command of `tests/clients/pmix_calls.c` on three ranks, in sets "left" (two) and "right".
fn run(options: &str, name: &str) -> Option<Outcome> {
    if !Peer::Libpmix.there() {
        return None;
    }
    let program = Peer::Libpmix.program("pmix_calls");
    let job = relocated(Job::hydrant(&format!("{options} --pset left -n 2"))).arg(&program).arg(name);
    let job = relocated(job.args([":", "--pset", "right", "-n", "1"])).arg(&program).arg(name);
    Some(job.run())
}

macro_rules! calls {
    ($($test:ident $name:literal)*) => {
        $(
            #[test]
            fn $test() {
                let Some(outcome) = run("", $name) else { return };
                outcome.code(0).quiet().says(concat!(": ", $name, " done\n"), 3);
            }
        )*
    };
}

calls! {
    values_of_each_type_arrive "types"
    a_second_commit_adds_keys "twice"
    some_ranks_have_fences_of_their_own "subset"
    a_get_without_a_rank_finds_it "any"
    a_get_waits_for_the_commit "late"
    the_first_look_up_removes_data "once"
    a_look_up_waits_for_the_publication "waits"
    several_keys_are_looked_up_at_once "several"
    events_reach_those_who_registered "events"
    events_reach_those_who_register_later "late-events"
    groups_have_context_ids "group"
    a_time_out_ends_collectives "expires"
    members_of_a_group_give_each_other_values "gives"
    process_sets_are_listed "query"
    commits_are_longer_than_messages_of_pmi "long"
    a_commit_has_the_length_of_its_limit "longest"
    a_refresh_brings_the_newest_value "refresh"
    a_key_that_a_fence_has_not_brought_is_missing "missing"
}

/// Each rank commits 800,000 bytes, half of them for other hosts.
#[test]
fn commits_without_end_have_room() {
    let limit = "--limit kvs-bytes=600000";
    for options in [String::new(), nodes(2, 2, 2), format!("--fence lazy {}", nodes(2, 2, 2))] {
        let Some(outcome) = run(&format!("{limit} {options}"), "endless") else { return };
        outcome.code(0).quiet().says(": endless done\n", 3);
    }
}

// Serves: Requests | finalize (5), and another handshake after it | served: as often as the client likes
#[test]
fn a_process_initializes_again() {
    let Some(outcome) = run("", "again") else { return };
    outcome.code(0).quiet().says(": again done\n", 3);
}

#[test]
fn data_cross_hosts() {
    for fence in ["", "--fence lazy"] {
        for name in ["long", "longest", "refresh", "missing", "expires", "gives"] {
            let Some(outcome) = run(&format!("{fence} {}", nodes(2, 2, 2)), name) else { return };
            outcome.code(0).quiet().says(&format!(": {name} done\n"), 3);
        }
    }
}

/// libpmix 5 has a request of its own for its copy, and names the members at the end of a group.
#[test]
fn the_library_of_open_mpi_5_makes_the_same_calls() {
    if !Peer::Libpmix.there() || !Peer::OpenMpi5.there() {
        return;
    }
    let both = ["refresh", "expires", "gives", "late-events"]
        .into_iter()
        .flat_map(|name| [(String::new(), name), (nodes(2, 2, 2), name)]);
    for (hosts, name) in both.chain([(nodes(2, 2, 2), "missing")]) {
        let outcome = with_libpmix_5(&hosts, "pmix_calls", name);
        outcome.code(0).quiet().says(&format!(": {name} done\n"), 3);
    }
}

/// Runs one sub-command of a program in `tests/clients` on three ranks, with the libpmix of Open MPI 5.
pub(super) fn with_libpmix_5(options: &str, program: &str, name: &str) -> Outcome {
    let lib = peers_dir().join("openmpi/lib");
    let path = [lib.join("openmpi"), lib].map(|folder| folder.display().to_string()).join(":");
    let job = Job::hydrant(&format!("{options} -n 3")).env("LD_LIBRARY_PATH", path);
    job.arg(Peer::Libpmix.program(program)).arg(name).run()
}

/// libpmix 5 keeps the answers of queries that succeed in part. It asks for the attributes of all functions, whichever the program
/// names.
#[test]
fn the_library_of_open_mpi_5_gets_answers_in_part() {
    if !Peer::Libpmix.there() || !Peer::OpenMpi5.there() {
        return;
    }
    for hosts in [String::new(), nodes(2, 2, 2)] {
        for name in ["jobs", "tables", "support", "mixed"] {
            let outcome = with_libpmix_5(&hosts, "pmix_queries", name);
            outcome.code(0).quiet().says(&format!(": {name} done\n"), 3);
            if name == "mixed" {
                outcome.says(": 2 answers\n", 3);
            }
        }
    }
}

#[test]
fn a_commit_that_is_too_long_names_its_limit() {
    for hosts in [String::new(), nodes(2, 2, 2)] {
        for (limit, name) in [("", "too-long"), ("--limit commit-bytes=2000", "long"), ("", "far-too-long")] {
            let Some(outcome) = run(&format!("{limit} {hosts}"), name) else { return };
            outcome.warns("limit commit-bytes (").warns("--limit commit-bytes=N");
            assert!(!outcome.stderr.contains("a message over"), "{outcome}");
        }
    }
}

#[test]
fn the_end_of_a_spawned_job_is_an_event() {
    for hosts in [String::new(), nodes(2, 2, 2)] {
        for name in ["ends", "fails"] {
            let Some(outcome) = run_jobs(&hosts, name) else { return };
            outcome.says(&format!(": {name} done\n"), 3).code(if name == "fails" { 3 } else { 0 });
        }
    }
}

/// What is known of a connected job is there when that is over, and its hosts and processes are found by name.
#[test]
fn those_who_connect_know_each_others_hosts() {
    for hosts in [String::new(), nodes(2, 3, 3)] {
        let Some(outcome) = run_jobs(&hosts, "connects") else { return };
        outcome.code(0).quiet().says(": connects done\n", 3).says(": connected done\n", 2);
        if Peer::OpenMpi5.there() {
            let outcome = with_libpmix_5(&hosts, "pmix_jobs", "connects");
            outcome.code(0).quiet().says(": connects done\n", 3).says(": connected done\n", 2);
        }
    }
}

/// Runs one sub-command of `tests/clients/pmix_jobs.c` on three ranks.
fn run_jobs(options: &str, name: &str) -> Option<Outcome> {
    if !Peer::Libpmix.there() {
        return None;
    }
    let job = relocated(Job::hydrant(&format!("{options} -n 3")));
    Some(job.arg(Peer::Libpmix.program("pmix_jobs")).arg(name).run())
}

// Serves: Attributes | `PMIX_JOB_SIZE`, `PMIX_MAX_PROCS`, `PMIX_JOB_NUM_APPS`, `PMIX_APP_SIZE`, `PMIX_NUM_NODES`,
// `PMIX_LOCAL_SIZE`, `PMIX_LOCALLDR` | served: `PMIX_APP_SIZE` of several programs in the data of the client's own
// Serves: Attributes | `PMIX_HOSTNAME`, `PMIX_NODEID` | served: of each rank
#[test]
fn ranks_know_the_host_of_each_rank() {
    let Some(outcome) = run_jobs("", "attributes") else { return };
    let host = this_machine();
    outcome.code(0).quiet().says(&format!(" is on {host}\n"), 9).says(": attributes done\n", 3);
    let Some(outcome) = run_jobs(&nodes(2, 2, 2), "attributes") else { return };
    outcome.code(0).quiet().says(": rank 0 is on n1\n", 3).says(": rank 1 is on n1\n", 3);
    outcome.says(": rank 2 is on n2\n", 3);
}

#[test]
fn ranks_know_that_they_exceed_their_processors() {
    let cpu = first_processor();
    for nodes in ["", "--bootstrap local -hosts a:3"] {
        let Some(outcome) = run_jobs(&format!("{nodes} -bind-to user:{cpu}"), "attributes") else { return };
        outcome.code(0).says(": oversubscribed: yes\n", 3);
    }
    let Some(outcome) = run_jobs(&nodes(3, 1, 2), "attributes") else { return };
    outcome.code(0).quiet().says(": oversubscribed: no\n", 3);
}

#[test]
fn a_parent_reads_data_of_its_children() {
    for nodes in [String::new(), nodes(2, 2, 2)] {
        let Some(outcome) = run_jobs(&nodes, "children") else { return };
        outcome.code(0).quiet().says(": children done\n", 3).says(": child done\n", 2);
    }
}

#[test]
fn a_process_withdraws_all_of_its_data() {
    if !Peer::Libpmix.there() {
        return;
    }
    let folder = Folder::new("pmix-withdrawn");
    let path = folder.path("names");
    let server = Job::command("serve --name-server").arg(&path).start();
    server.await_stdout("listening at", 1);
    let shared = format!("--name-server {path}");
    for options in [String::new(), nodes(2, 2, 2), shared.clone(), format!("{shared} {}", nodes(2, 2, 2))] {
        for library in libraries() {
            let job = with_library(Job::hydrant(&format!("{options} -n 3")), library);
            let outcome = job.arg(Peer::Libpmix.program("pmix_jobs")).arg("withdraws").run();
            outcome.code(0).quiet().says(": withdraws done\n", 3);
        }
    }
    server.signal(Signal::TERM);
    server.wait().code(0);
}

/// A name server that is gone.
#[test]
fn a_lost_name_server_is_not_available() {
    for library in libraries() {
        let folder = Folder::new("pmix-lost");
        let path = folder.path("names");
        let server = Job::command("serve --name-server").arg(&path).start();
        server.await_stdout("listening at", 1);
        let options = format!("--name-server {path} -n 1");
        let mut job = published(library, &options, "lost").hold_input().start();
        job.await_stdout("published\n", 1);
        server.signal(Signal::KILL);
        server.wait().signaled(Signal::KILL);
        job.end_input();
        job.wait().code(0).says(": lost done\n", 1).warns("is lost: it has closed");
    }
}

// Serves: Requests | credentials (20, 21) | refused
#[test]
fn requests_that_are_not_served_are_refused() {
    let Some(outcome) = run_jobs("", "refused") else { return };
    outcome.code(0).quiet().says(": refused done\n", 3);
    if in_sandbox().is_some() {
        // The launcher cannot look into a plugin.
        return;
    }
    let Some(outcome) = run_jobs("-v", "refused") else { return };
    outcome.warns("a request of a PMIx client for hosts is refused: start the run with --elastic HOSTS");
    for name in ["PMIx_Job_control (command 18)", "PMIx_Validate_credential (command 21)"] {
        let line = format!("hydrant: a request of a PMIx client is not supported: {name} or its options\n");
        assert_eq!(outcome.code(0).stderr.matches(&line).count(), 1, "{outcome}");
    }
}

/// A client takes the latest format whose variable it finds.
#[test]
fn older_formats_are_served() {
    if !Peer::Libpmix.there() {
        return;
    }
    let later = ["PMIX_SERVER_URI41", "PMIX_SERVER_URI4", "PMIX_SERVER_URI3"];
    for removed in 1..=later.len() {
        let calls = ["types", "several", "group", "events"].map(|name| ("pmix_calls", name));
        let queries = ["jobs", "mixed"].map(|name| ("pmix_queries", name));
        for (program, name) in calls.into_iter().chain(queries) {
            let without = later[..removed].iter().flat_map(|variable| ["-u", variable]);
            let program = Peer::Libpmix.program(program);
            let job = relocated(Job::hydrant("-n 3")).arg("env").args(without).arg(&program).arg(name);
            job.run().code(0).quiet().says(&format!(": {name} done\n"), 3);
        }
    }
}

// Serves: Requests | log (16) | served: texts for standard output and standard error, each at most `spawn-bytes` long. They pass
// through `-l`, `-outfile` and the other options for output like every line of a rank, and are dropped while the output is
// blocked. One text of a request may be for the log of the system (`PMIX_LOG_SYSLOG`, `PMIX_LOG_LOCAL_SYSLOG`: of the rank's
// host, `PMIX_LOG_GLOBAL_SYSLOG`: of the launcher's). `PMIX_LOG_ONCE` and `PMIX_LOG_SYSLOG_PRI` are heeded. A help text, which has
// a file and a topic (`PMIX_LOG_KEY`, `PMIX_LOG_VAL`), is printed once in a run, and then the number of the others, unless
// `PMIX_LOG_AGG` is false. PMIx has no channel for files: `-outfile` has texts too. Refused:
// `PMIX_LOG_EMAIL`, `PMIX_LOG_GLOBAL_DATASTORE`, `PMIX_LOG_JOB_RECORD`, and `PMIX_LOG_MSG` of Open MPI 4, which prints its text
// itself Also: hydrant-core `texts_go_to_their_channels`
#[test]
fn texts_are_printed_as_output_of_their_rank() {
    for hosts in [String::new(), nodes(2, 2, 2)] {
        let Some(outcome) = run(&format!("-l {hosts}"), "log") else { return };
        outcome.code(0).warns("hydrant: 2 more processes have sent help message help-test.txt / a topic\n");
        assert_eq!(outcome.stderr.matches("] a help text\n").count(), 1, "{outcome}");
        for rank in 0..3 {
            outcome
                .says(&format!("[{rank}] a result\n"), 1)
                .warns(&format!("[{rank}] a text for the user\n"));
        }
    }
}

/// Each user of a fleet gets the text, and the number of the others.
#[test]
fn help_texts_are_printed_once_in_a_job_of_a_fleet() {
    if !Peer::Libpmix.there() {
        return;
    }
    for hosts in ["-n 4".to_owned(), nodes(2, 2, 2)] {
        let fleet = Fleet::new(&hosts);
        for _ in 0..2 {
            let job = relocated(fleet.job("-n 3")).arg(Peer::Libpmix.program("pmix_calls")).arg("log");
            let outcome = job.run();
            outcome
                .code(0)
                .warns("hydrant: 2 more processes have sent help message help-test.txt / a topic\n");
            assert_eq!(outcome.stderr.matches("a help text\n").count(), 1, "{outcome}");
        }
        Job::command("down").arg(&fleet.name).run().code(0).quiet();
        fleet.running.wait().code(0).quiet();
    }
}

#[test]
fn a_death_is_reported() {
    let Some(outcome) = run("-disable-auto-cleanup", "death") else { return };
    outcome.code(137).says(": death done\n", 2);
}

// Serves: Requests | abort (1) | served: ends the job with the requested code, or the requesting rank alone if it names only
// itself. An abort of the job has no reply: the client waits until it is killed
#[test]
fn an_abort_has_its_code_and_its_text() {
    let Some(outcome) = run("", "abort") else { return };
    outcome.code(19).warns("rank 1 aborted the job with code 19: as the test wants\n");
}

// Serves: Requests | publish, look up, unpublish (6, 7, 8) | served: typed data under a key, see
// [Published data](#published-data). Look-ups may wait, those of several keys until all are there. After their time-out they get
// those that are. Several keys are published at once, or none of them. Several are withdrawn at once, and without keys all data
// of the process
// Also: libraries `interop::libpmix::several_keys_are_published_and_looked_up_at_once`,
// `interop::libpmix::a_process_withdraws_all_of_its_data`, `interop::libpmix::a_name_server_heeds_ranges`,
// `interop::libpmix::a_lost_name_server_is_not_available`, hydrant-core `the_host_keeps_published_data`
#[test]
fn runs_share_data_by_a_name_server() {
    if !Peer::Libpmix.there() {
        return;
    }
    let folder = Folder::new("pmix-names");
    let path = folder.path("names");
    let server = Job::command("serve --name-server").arg(&path).start();
    server.await_stdout("listening at", 1);
    let run = |name: &str| {
        let job = relocated(Job::hydrant("--name-server").arg(&path).words("-n 2"));
        job.arg(Peer::Libpmix.program("pmix_calls")).arg(name)
    };
    let mut offer = run("offer").hold_input().start();
    run("take").run().code(0).quiet().says(": take done\n", 2);
    offer.end_input();
    offer.wait().code(0).quiet().says(": offer done\n", 2);
    server.signal(Signal::TERM);
    server.wait().code(0);
}

/// Versions of libpmix that are there.
fn libraries() -> impl Iterator<Item = Library> {
    let four = Peer::Libpmix.there().then_some(Library::Four);
    four.into_iter().chain((Peer::Libpmix.there() && Peer::OpenMpi5.there()).then_some(Library::Five))
}

/// One sub-command of `tests/clients/pmix_published.c`.
fn published(library: Library, options: &str, name: &str) -> Job {
    let job = with_library(Job::hydrant(options), library);
    job.arg(Peer::Libpmix.program("pmix_published")).arg(name)
}

#[test]
fn published_data_end_with_their_process_or_job_or_stay() {
    for library in libraries() {
        for hosts in [String::new(), nodes(2, 2, 2)] {
            let outcome = published(library, &format!("-n 2 {hosts}"), "lifetimes").run();
            let all = "process of 1 application of 1 session of 1 indefinite of 1";
            outcome.code(0).quiet().says(&format!("while it runs: {all}\n"), 1);
            outcome.says("after the process: application of 1 session of 1 indefinite of 1\n", 1);
            outcome.says("after the job: session of 1 indefinite of 1\n", 1);
        }
    }
}

#[test]
fn published_data_have_a_range() {
    // The last rank and the job that finds what strangers do are on the second host.
    for library in libraries() {
        for (hosts, node) in [(String::new(), " node"), (nodes(2, 2, 2), "")] {
            let outcome = published(library, &format!("-n 3 {hosts}"), "reach").run();
            outcome.code(0).quiet().says("rank 0 of 3 finds: itself job node run all listed\n", 1);
            outcome.says("rank 1 of 3 finds: job node run all listed\n", 1);
            outcome.says(&format!("rank 2 of 3 finds: job{node} run all listed\n"), 1);
            outcome.says(&format!("rank 0 of 1 finds:{node} run all listed\n"), 1);
        }
    }
}

#[test]
fn a_name_server_heeds_ranges() {
    for library in libraries() {
        let folder = Folder::new("pmix-ranges");
        let path = folder.path("names");
        let server = Job::command("serve --name-server").arg(&path).start();
        server.await_stdout("listening at", 1);
        let run =
            |options: &str, name: &str| published(library, &format!("--name-server {path} {options}"), name);
        for hosts in ["".to_owned(), nodes(2, 1, 2)] {
            let mut first = run(&format!("-n 1 {hosts}"), "stay").hold_input().start();
            first.await_stdout("published\n", 1);
            let seen = |hosts: &str, node: &str| {
                let found = format!("rank 0 of 1 finds:{node} run all listed\n");
                run(&format!("-n 1 {hosts}"), "stranger").run().code(0).quiet().says(&found, 1);
            };
            seen(&hosts, " node");
            seen("-hosts n2 --bootstrap local", "");
            first.end_input();
            first.wait().code(0).quiet();
            // The data have ended with their job.
            run(&format!("-n 1 {hosts}"), "stranger").run().code(0).quiet().says("finds:\n", 1);
            run(&format!("-n 3 {}", nodes(2, 2, 2)), "reach").run().code(0).quiet();
        }
        server.signal(Signal::TERM);
        server.wait().code(0);
    }
}

/// On one host, by the launcher for several, and by a name server.
#[test]
fn several_keys_are_published_and_looked_up_at_once() {
    let folder = Folder::new("pmix-several");
    let path = folder.path("names");
    let server = Job::command("serve --name-server").arg(&path).start();
    server.await_stdout("listening at", 1);
    let shared = format!("--name-server {path}");
    for library in libraries() {
        for options in [String::new(), nodes(2, 2, 2), shared.clone(), format!("{shared} {}", nodes(2, 2, 2))]
        {
            let outcome = published(library, &format!("-n 3 {options}"), "several").run();
            outcome.code(0).quiet().says(": several done\n", 3);
        }
    }
    server.signal(Signal::TERM);
    server.wait().code(0);
}

/// The run that published them is over.
#[test]
fn a_name_server_keeps_indefinite_data() {
    for library in libraries() {
        let folder = Folder::new("pmix-kept");
        let path = folder.path("names");
        let server = Job::command("serve --name-server").arg(&path).start();
        server.await_stdout("listening at", 1);
        for hosts in [String::new(), nodes(2, 1, 2)] {
            let options = format!("--name-server {path} -n 1 {hosts}");
            let run = |name: &str| published(library, &options, name).run();
            let all = "process of 0 application of 0 session of 0 indefinite of 0";
            run("leave").code(0).quiet().says(&format!("left: {all}\n"), 1);
            run("withdraw").code(0).quiet().says("found: indefinite of 0\n", 1).says("withdrawn:\n", 1);
        }
        server.signal(Signal::TERM);
        server.wait().code(0);
    }
}

#[test]
fn hosts_and_their_ranks_are_known() {
    let Some(outcome) = run("", "hosts") else { return };
    let host = this_machine();
    outcome.code(0).quiet().says(&format!(" is on {host} with 3\n"), 3);
    let Some(outcome) = run(&nodes(2, 2, 2), "hosts") else { return };
    outcome.code(0).quiet().says("rank 0 is on n1 with 2\n", 1).says("rank 1 is on n1 with 2\n", 1);
    outcome.says("rank 2 is on n2 with 1\n", 1);
}

#[test]
fn changes_of_process_sets_are_reported() {
    for nodes in [String::new(), nodes(2, 2, 2)] {
        let options = format!("--mpi-psets {nodes}");
        let Some(outcome) = run(&options, "sets") else { return };
        outcome.code(0).quiet().says(": sets done\n", 3);
    }
}

#[test]
fn events_cross_hosts() {
    for name in ["events", "late-events"] {
        let Some(outcome) = run(&nodes(2, 2, 2), name) else { return };
        outcome.code(0).quiet().says(&format!(": {name} done\n"), 3);
    }
}

/// Runs one sub-command of `tests/clients/pmix_monitors.c` on three ranks, with libpmix 4.2 and with that of Open MPI 5.
fn run_monitors(options: &str, name: &str) -> Vec<Outcome> {
    if !Peer::Libpmix.there() {
        return Vec::new();
    }
    let job = relocated(Job::hydrant(&format!("{options} -n 3")));
    let mut outcomes = vec![job.arg(Peer::Libpmix.program("pmix_monitors")).arg(name).run()];
    if Peer::OpenMpi5.there() {
        outcomes.push(with_libpmix_5(options, "pmix_monitors", name));
    }
    outcomes
}

// Serves: Requests | monitor processes (19) | served: heartbeats of the process (`PMIX_MONITOR_HEARTBEAT`), changes of a file
// (`PMIX_MONITOR_FILE`), and on Linux reports of what processes (`PMIX_MONITOR_PROC_RESOURCE_USAGE`), hosts
// (`PMIX_MONITOR_NODE_RESOURCE_USAGE`), disks and networks (`PMIX_MONITOR_DISK_RESOURCE_USAGE`,
// `PMIX_MONITOR_NET_RESOURCE_USAGE`) use, once or at regular times (`PMIX_MONITOR_RESOURCE_RATE`), see [Monitors](#monitors).
// Alerts go to the other processes of the job or of `PMIX_RANGE`
// Also: hydrant-core `missing_heartbeats_are_reported_once`, `a_file_that_stays_as_it_is_is_reported`,
// `what_is_used_is_reported_at_regular_times`
#[test]
fn processes_and_files_are_monitored() {
    // Times are whole seconds.
    let one = ["heartbeats", "canceled", "file", "reports"].map(|name| (String::new(), name));
    let several = ["file", "reports"].map(|name| (nodes(2, 2, 2), name));
    for (hosts, name) in one.into_iter().chain(several) {
        for outcome in run_monitors(&hosts, name) {
            outcome.code(0).quiet().says(&format!(": {name} done\n"), 3);
        }
    }
}

// Serves: Queries | `PMIX_QUERY_MEMORY_USAGE` | served: on Linux, for each host with a rank that the qualifiers name its name, the
// memory of its daemon (`PMIX_DAEMON_MEMORY`), and the average of these ranks (`PMIX_CLIENT_AVG_MEMORY`)
#[test]
fn processes_and_hosts_tell_what_they_use() {
    for (hosts, name) in [(String::new(), this_machine()), (nodes(2, 2, 2), "n2".to_owned())] {
        for outcome in run_monitors(&hosts, "usage") {
            outcome.code(0).quiet().says(": usage done\n", 3).says(&format!(": host {name}\n"), 3);
        }
    }
}

#[test]
fn monitors_that_are_not_served_are_refused() {
    for outcome in run_monitors("-v", "refused") {
        outcome.code(0).says(": refused done\n", 3);
        let line =
            "a request of a PMIx client is not supported: PMIx_Process_monitor (command 19) or its options\n";
        if in_sandbox().is_none() {
            assert_eq!(outcome.stderr.matches(line).count(), 1, "{outcome}");
        }
    }
}

/// Runs one sub-command of `tests/clients/pmix_queries.c` on three ranks.
fn run_queries(options: &str, name: &str) -> Option<Outcome> {
    if !Peer::Libpmix.there() {
        return None;
    }
    let job = relocated(Job::hydrant(&format!("{options} -n 3")));
    Some(job.arg(Peer::Libpmix.program("pmix_queries")).arg(name).run())
}

// Serves: Requests | query (15) | served: see [Queries](#queries), which name the keys that are not answered
// Serves: Queries | `PMIX_QUERY_NAMESPACES`, `PMIX_QUERY_NAMESPACE_INFO` | served: the jobs of the run, the latter with command
// line, size, and rank, host and local rank of each process; of one job with `PMIX_NSPACE`
// Serves: Queries | `PMIX_QUERY_PROC_TABLE`, `PMIX_QUERY_LOCAL_PROC_TABLE` | served: host, program, pid and state of the
// processes of the client's job or of that in the qualifier, all or those on the client's host; of one process with
// `PMIX_RANK`. Processes that have initialized are `PMIX_PROC_STATE_CONNECTED`
// Serves: Queries | `PMIX_QUERY_SUPPORTED_KEYS`, `PMIX_QUERY_SUPPORTED_QUALIFIERS` | served: the latter is a qualifier
// Serves: Queries | `PMIX_QUERY_ATTRIBUTE_SUPPORT` | served: functions of servers and hosts, which are the same here, and the
// [attributes](#attributes-of-requests) of those that are named, or of all. libpmix answers for clients and tools itself. From 5 on
// it sends no names, and gets all. Formats v3 and v21 have no type for attributes
// Serves: Queries | `PMIX_QUERY_SPAWN_SUPPORT`, `PMIX_QUERY_DEBUG_SUPPORT` | served: the attributes of spawns, and those of
// [debuggers](#debuggers), which only tools may give
// Serves: Queries | `PMIX_SERVER_URI` | served: of the client's own server. Those of other hosts listen on loopback
// Serves: Queries | `PMIX_QUERY_NUM_PSETS`, `PMIX_QUERY_PSET_NAMES`, `PMIX_QUERY_PSET_MEMBERSHIP` | served: sets with ranks of
// the client's job or of that in `PMIX_NSPACE`, and for a tool of all jobs, but for those of every job (`hydrant://…`), which are
// found by name
// Also: libraries `interop::tools::processes_become_a_set`
#[test]
fn queries_about_jobs_processes_and_support_are_answered() {
    for hosts in [String::new(), nodes(2, 2, 2)] {
        for name in ["jobs", "tables", "support", "mixed"] {
            let Some(outcome) = run_queries(&hosts, name) else { return };
            outcome.code(0).quiet().says(&format!(": {name} done\n"), 3);
        }
    }
}

// Serves: Queries | `PMIX_JOB_SIZE`, `PMIX_UNIV_SIZE` | served: the latter if it is known
// Serves: Queries | `PMIX_NUM_SLOTS`, `PMIX_QUERY_AVAILABLE_SLOTS` | served: slots of all hosts or of one (`PMIX_HOSTNAME`),
// and those without a process, if the hosts have numbers of slots or all ranks are on this machine
// Serves: Queries | `PMIX_QUERY_RESOLVE_NODE`, `PMIX_QUERY_RESOLVE_PEERS` | served: hosts of a job, and its processes on a host
#[test]
fn queries_about_sizes_and_slots_are_answered() {
    let Some(outcome) = run_queries(&nodes(2, 2, 2), "sizes") else { return };
    // The library itself reports keys that it does not find in its copy of the job's data.
    outcome.code(0).says(": sizes done\n", 3).says(": universe of 4\n", 3);
    outcome.says(": 4 slots\n", 3).says(": 1 free slots\n", 3).says(": hosts n1,n2\n", 3);
}

/// A query without an answer is named once.
// Serves: Queries | `PMIX_QUERY_JOB_STATUS`, `PMIX_QUERY_NUM_GROUPS`, `PMIX_QUERY_GROUP_NAMES`,
// `PMIX_QUERY_GROUP_MEMBERSHIP`, `PMIX_QUERY_ALLOCATION`, `PMIX_QUERY_QUEUE_LIST`, `PMIX_QUERY_AUTHORIZATIONS`, others |
// refused
#[test]
fn queries_that_are_not_supported_are_named() {
    for hosts in [String::new(), nodes(2, 2, 2)] {
        let Some(outcome) = run_queries(&format!("-v {hosts}"), "support") else { return };
        let line = "hydrant: a PMIx query of pmix.unknown is not supported\n";
        assert_eq!(outcome.code(0).stderr.matches(line).count(), 1, "{outcome}");
    }
}

// Serves: Attributes | `PMIX_CPUSET`, `PMIX_LOCALITY_STRING` | served: of ranks on the same host that hydrant binds.
// `MPI_Comm_split_type` with `MPI_COMM_TYPE_HW_GUIDED` then gives under Open MPI what `prterun` gives for the same binding
// Also: libraries `interop::openmpi::communicators_are_split_by_parts_of_the_machine`
// Serves: Attributes | `PMIX_PACKAGE_RANK`, `PMIX_NUMA_RANK`, `PMIX_NODE_MAP`, `PMIX_PROC_MAP` | refused: not found, as under
// `prterun` 5.0.11
// Serves: Attributes | `PMIX_MAPBY`, `PMIX_RANKBY`, `PMIX_BINDTO`, `PMIX_HOSTNAME_ALIASES`, `PMIX_HOSTNAME_KEEP_FQDN`,
// `PMIX_AVAIL_PHYS_MEMORY` | refused: not found. `prterun` 5.0.11 answers with its own words for policies; the places of ranks tell
// what came of them. hydrant knows a host by the name in its list, and `PMIx_Process_monitor` tells the memory of hosts
// Serves: Attributes | `PMIX_TMPDIR`, `PMIX_NSDIR` | refused: not found. Open MPI 4 would remove the files in such folders
#[test]
fn bound_ranks_know_their_place() {
    let cpu = first_processor();
    for nodes in [String::new(), nodes(1, 3, 2)] {
        let Some(outcome) = run_queries(&format!("{nodes} -bind-to user:{cpu}"), "places") else { return };
        outcome.code(0).says(": places done\n", 3);
        for rank in 0..3 {
            outcome.says(&format!(": pmix.cpuset of {rank}: {cpu}\n"), 3);
            outcome.says(&format!(": pmix.locstr of {rank}: SK0:"), 3);
        }
    }
    let Some(outcome) = run_queries("", "places") else { return };
    outcome.code(0).quiet().says(": none\n", 18);
}

// Serves: Attributes | `PMIX_JOBID`, `PMIX_NPROC_OFFSET`, `PMIX_REINCARNATION` | served: by a get: the name of the job, and 0
// Serves: Attributes | `PMIX_PROC_PID` | served: by a get, of ranks of all hosts. `--limit spawns` of them are answered at the same
// time, others are refused (`PMIX_ERR_OUT_OF_RESOURCE`)
// Serves: Attributes | `PMIX_WDIR` | served: by a get, of each program, up to 1,024 bytes. libpmix 4 finds it, and the other
// attributes of a program that is not the client's own, with `PMIX_APP_INFO` and `PMIX_APPNUM`
// Serves: Attributes | `PMIX_NODE_SIZE` | served: by a get. It counts the processes of all jobs of the run. With `PMIX_NODE_INFO`
// and a host, a get finds that of other hosts, their `PMIX_LOCAL_SIZE` and `PMIX_LOCALLDR`
#[test]
fn ranks_ask_for_what_they_are_not_told_at_once() {
    for library in libraries() {
        for nodes in [String::new(), nodes(2, 2, 2)] {
            let program = Peer::Libpmix.program("pmix_queries");
            let job =
                with_library(Job::hydrant(&format!("{nodes} -n 2")), library).arg(&program).arg("asked");
            let outcome = job.words(": -n 1 -wdir /").arg(&program).arg("asked").run();
            outcome.code(0).says(": asked done\n", 3);
            let wdir = std::env::current_dir().unwrap();
            outcome.says(&format!(": program 0 of 2 from rank 0 in {}: asked\n", wdir.display()), 3);
            outcome.says(": program 1 of 1 from rank 2 in /: asked\n", 3);
            if nodes.is_empty() {
                outcome.says(": host 0: 3 of 3 from rank 0\n", 3);
            } else {
                outcome.says(": host 0: 2 of 2 from rank 0\n", 3).says(": host 1: 1 of 1 from rank 2\n", 3);
            }
        }
    }
}

// Serves: Attributes | `PMIX_HWLOC_XML_V2` | served: to the ranks of a job with at least eight on the host, [written by
// hwloc](binding.md#topology-for-mpi-libraries), up to 512 KiB. It is no part of the job info, where libpmix 3 alone looks for it
// Also: libraries `interop::openmpi::ranks_share_one_scan`
#[test]
fn many_ranks_get_the_topology_of_their_host() {
    if !Peer::Libpmix.there() {
        return;
    }
    let folder = Folder::new("pmix-topology");
    let log = folder.path("log");
    let run = |options: &str, len: usize| {
        let script = format!(
            "#!/bin/sh\necho >>{log}\nprintf '<topology>'; head -c {} /dev/zero | tr '\\0' x; echo '</topology>'\n",
            len - 22
        );
        folder.executable("lstopo-no-graphics", &script);
        let path = format!("{}:{}", folder.0.display(), std::env::var("PATH").unwrap_or_default());
        let job = relocated(Job::hydrant(options)).env("PATH", &path);
        let outcome = job.arg(Peer::Libpmix.program("pmix_queries")).arg("topology").run();
        outcome.code(0).quiet();
        outcome
    };
    let daemons = "-hosts n[1-2]:8 --bootstrap local -n 16";
    for (options, ranks, hosts) in [("-n 8", 8, 1), (daemons, 16, 2)] {
        run(options, 200_000).says(": a topology of 200000 bytes\n", ranks);
        assert_eq!(folder.read("log").len(), hosts, "one scan a host");
        fs::remove_file(&log).expect("the program has run");
    }
    let longest = 512 << 10;
    run("-n 8", longest).says(&format!(": a topology of {longest} bytes\n"), 8);
    // One byte more than a client gets, and more than small tables have room for.
    for (options, len) in [("-n 8", longest + 1), ("--limit kvs-bytes=2000000 -n 8", 50_000)] {
        run(options, len).says(": no topology\n", 8);
    }
    fs::remove_file(&log).expect("the program has run");
    run("-n 7", 100).says(": no topology\n", 7);
    run("-n 8 --job-attr PMI_hwloc_xmlfile=/mine", 100).says(": no topology\n", 8);
    assert!(!folder.0.join("log").exists());
}

#[test]
fn an_answer_that_is_too_long_names_its_limit() {
    for hosts in [String::new(), nodes(2, 2, 2)] {
        let Some(outcome) = run_queries(&format!("--limit spawn-bytes=300 {hosts}"), "long") else { return };
        let line = "hydrant: a PMIx query is refused: limit spawn-bytes (300) is used up";
        assert_eq!(outcome.code(0).stderr.matches(line).count(), 1, "{outcome}");
    }
}
