//! Many jobs and many spawns: descriptors, processes, memory and files before and after.
//!
//! `HYDRANT_SOAK` is the number of runs, `HYDRANT_SOAK_SPAWNS` that of spawns of one job, and `HYDRANT_SOAK_SERVED` that
//! of jobs of one server; each is 40 if it is not set. By hand, with the numbers of each: `HYDRANT_SOAK=10000
//! HYDRANT_SOAK_SPAWNS=1000 HYDRANT_SOAK_SERVED=5000 tests/run launch -- --nocapture soak::`.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, TcpStream};
use std::path::Path;

use hydrant_tests::{Folder, Job, PATIENCE, Running};
use rustix::process::Signal;

use crate::{ASK, shell};

/// Most KiB by which memory may grow once twenty rounds are over.
const GROWTH_MAX: u64 = 2048;

fn rounds(variable: &str) -> u32 {
    let rounds = std::env::var(variable).ok();
    rounds.map_or(40, |rounds| rounds.parse().unwrap_or_else(|_| panic!("{variable} is a number")))
}

/// Files of hydrant in a folder.
fn files(folder: &Path) -> BTreeSet<String> {
    let entries = folder.read_dir().into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// A job that spawns again and again, one job after the other.
///
/// The launcher is the rank's parent. Descriptors and children are counted when the last spawned process has ended, which
/// the rank waits for by asking the server: each answer gives the launcher a turn.
#[test]
fn spawns_leave_nothing_in_the_launcher() {
    let rounds = rounds("HYDRANT_SOAK_SPAWNS");
    let script = format!(
        r#"{ASK}
        files() {{ set -- /proc/$PPID/fd/*; files=$#; }}
        children() {{ read -r children < /proc/$PPID/task/$PPID/children; set -- $children; children=$#; }}
        memory() {{ while read -r name kib unit; do test "$name" != VmRSS: || memory=$kib; done < /proc/$PPID/status; }}
        settle() {{
            while files; children; test $files -gt $files_before || test $children -gt $children_before; do ask cmd=get_maxes; done
        }}
        spawn() {{
            ask "mcmd=spawn
nprocs=2
execname=true
totspawns=1
spawnssofar=1
argcnt=0
preput_num=0
info_num=0
endcmd"
            case $reply in *rc=0*) done=$((done + 1)) ;; *) ask cmd=get_maxes ;; esac
        }}
        init; files; children; files_before=$files; children_before=$children; done=0
        while test $done -lt 20; do spawn; done
        settle; memory; memory_before=$memory
        while test $done -lt $((20 + {rounds})); do spawn; done
        settle; memory
        ask cmd=finalize
        echo "spawned $done files $((files - files_before)) children $((children - children_before))"
        echo counts $files_before $files $children_before $children $memory_before $memory"#,
    );
    // With the option, the port of tools is open when the rank starts.
    let outcome = shell("--report-uri /dev/null -n 1", &script).run();
    outcome.code(0).quiet().says(&format!("spawned {} files 0 children 0\n", 20 + rounds), 1);
    let counts = outcome.lines().iter().find_map(|line| line.strip_prefix("counts ").map(str::to_owned));
    let counts = counts.expect("the script prints its counts");
    let counts: Vec<u64> = counts.split(' ').map(|count| count.parse().expect("a number")).collect();
    println!(
        "{rounds} spawns: descriptors {} and {}, children {} and {}, KiB {} and {}",
        counts[0], counts[1], counts[2], counts[3], counts[4], counts[5]
    );
    assert!(counts[5] < counts[4] + GROWTH_MAX, "memory has grown from {} to {} KiB", counts[4], counts[5]);
}

/// Descriptors, child processes and KiB of memory of a process.
fn used(process: &Running) -> (usize, usize, u64) {
    let folder = format!("/proc/{}", process.pid().as_raw_nonzero());
    let descriptors = fs::read_dir(format!("{folder}/fd")).expect("the process runs").count();
    let children = fs::read_to_string(format!("{folder}/task/{}/children", process.pid().as_raw_nonzero()));
    let children = children.expect("the process runs").split_whitespace().count();
    let status = fs::read_to_string(format!("{folder}/status")).expect("the process runs");
    let memory = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.strip_suffix("kB"));
    (descriptors, children, memory.expect("a process has memory").trim().parse().expect("it is a number"))
}

/// Goes through a job of two ranks with a fence.
fn serve_two(address: &str) {
    let mut ranks = [0, 1].map(|rank| {
        let mut connection = TcpStream::connect(address).expect("the port is open");
        let requests =
            format!("cmd=initack pmiid={rank}\ncmd=init pmi_version=1 pmi_subversion=1\ncmd=barrier_in\n");
        connection.set_read_timeout(Some(PATIENCE)).expect("the time is not zero");
        connection.write_all(requests.as_bytes()).expect("the server reads");
        BufReader::new(connection)
    });
    let mut line = String::new();
    for (end, request) in [("cmd=barrier_out", "cmd=finalize\n"), ("cmd=finalize_ack", "")] {
        for rank in &mut ranks {
            while !line.starts_with(end) {
                line.clear();
                assert_ne!(
                    rank.read_line(&mut line).expect("the server answers"),
                    0,
                    "it ends in the middle"
                );
            }
            line.clear();
            rank.get_mut().write_all(request.as_bytes()).expect("the server reads");
        }
    }
    // The job is over when the server has closed both connections.
    for rank in &mut ranks {
        rank.get_mut().shutdown(Shutdown::Write).expect("the connection is open");
        assert_eq!(rank.read_line(&mut line).expect("the server closes the connection"), 0, "{line}");
    }
}

/// Serves so many jobs, and one more until the connections of the last ones are closed. Each gives the server a turn.
fn serve_many(server: &Running, address: &str, jobs: u32, descriptors: usize) -> (usize, usize, u64) {
    (0..jobs).for_each(|_| serve_two(address));
    let mut after = used(server);
    for _ in 0..100 {
        if after.0 <= descriptors {
            break;
        }
        serve_two(address);
        after = used(server);
    }
    after
}

/// One server and many jobs of it, one after the other.
#[test]
fn served_jobs_leave_nothing_in_the_server() {
    let folder = Folder::new("soak-serve");
    let temporary = Path::new(&folder.path("")).to_owned();
    let job = Job::command("serve --size 2 --jobs 0").env("TMPDIR", &temporary);
    let mut server = job.start();
    let line = server.line();
    let address = line.strip_prefix("PMI_PORT=").expect("the server prints its address");
    let (idle, ..) = used(&server);
    // The connections of the last job may still be open.
    let before = serve_many(&server, address, 20, idle + 2);
    let rounds = rounds("HYDRANT_SOAK_SERVED");
    let after = serve_many(&server, address, rounds, before.0);
    println!("{rounds} jobs of one server: descriptors, children and KiB {before:?} and {after:?}");
    assert!(after.0 <= before.0, "descriptors: {} and {}", before.0, after.0);
    assert_eq!(after.1, before.1, "children");
    assert!(after.2 < before.2 + GROWTH_MAX, "memory has grown from {} to {} KiB", before.2, after.2);
    server.signal(Signal::TERM);
    server.wait().code(0);
    assert_eq!(files(&temporary), BTreeSet::new(), "files in TMPDIR");
}

/// Jobs one after the other, with a port, a shared segment and a name, leave no file. The harness checks their processes.
#[test]
fn jobs_leave_no_files() {
    let folder = Folder::new("soak");
    let temporary = Path::new(&folder.path("")).to_owned();
    let shared = Path::new("/dev/shm");
    let before = files(shared);
    for round in 0..rounds("HYDRANT_SOAK") {
        let options = if round % 2 == 0 { "-n 2" } else { "-n 2 --pmi-port" };
        let job = Job::command("run").words(options).env("TMPDIR", &temporary).arg("true");
        job.run().code(0).quiet().stdout_is("");
    }
    assert_eq!(files(&temporary), BTreeSet::new(), "files in TMPDIR");
    let left: Vec<_> =
        files(shared).difference(&before).filter(|name| name.contains("hydrant")).cloned().collect();
    assert_eq!(left, Vec::<String>::new(), "segments in /dev/shm");
}
