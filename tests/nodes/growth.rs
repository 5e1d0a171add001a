//! Hosts that join and leave while the job runs (`hydrant grow`, `shrink`).

use hydrant_tests::peers::Peer;
use hydrant_tests::{Folder, Job, Outcome, Running};

use crate::RAW;
use crate::dynamic::spawn;

/// A command that starts daemons on this machine, for `--bootstrap exec`, and a file with the hosts of the daemons that it has
/// started. There is no host `bad`.
struct Agent {
    bootstrap: String,
    started: std::path::PathBuf,
}

impl Agent {
    fn new(folder: &Folder) -> Agent {
        let started = folder.path("started");
        let script = format!(
            "#!/bin/sh\n[ \"$1\" = bad ] && {{ echo no such host; exit 9; }}\necho \"$1\" >>'{started}'\nshift\nexec \"$@\"\n"
        );
        let agent = folder.executable("agent", &script);
        Agent { bootstrap: format!("exec:{agent} {{host}} {{args}}"), started: started.into() }
    }

    fn job(&self, options: &str) -> Job {
        Job::hydrant(options).arg("--bootstrap").arg(&self.bootstrap)
    }

    /// The hosts of the daemons that have been started since the last call.
    fn take_started(&self) -> Vec<String> {
        let text = std::fs::read_to_string(&self.started).unwrap_or_default();
        let _ = std::fs::remove_file(&self.started);
        let mut started: Vec<String> = text.lines().map(str::to_owned).collect();
        started.sort();
        started
    }
}

/// A job on one host, `n1`, which others may join up to so many.
fn job(most: u32, options: &str) -> Job {
    Job::hydrant(&format!("-hosts n1:2 --bootstrap local --elastic {most} -n 2")).words(options)
}

fn grow(job: &Running, hosts: &str) -> Job {
    Job::command("grow -hosts").arg(hosts).arg(job.pid().to_string())
}

fn shrink(job: &Running, hosts: &str) -> Job {
    Job::command("shrink -hosts").arg(hosts).arg(job.pid().to_string())
}

/// The first line of `hydrant status` has so many ranks and hosts.
fn counts(job: &Running, text: &str) {
    Job::command("status").arg(job.pid().to_string()).run().code(0).says(text, 1);
}

/// Ranks that are in a fence of their job when hosts join, and then spawn on them.
#[test]
fn a_spawn_uses_a_host_that_has_joined() {
    for fence in ["collect", "lazy"] {
        let child = format!(
            "exec {RAW} init2 only 1 frame 'cmd=kvs-put;key=k;value=v;' expect rc=0 all fence2 \
             frame 'cmd=kvs-get;key=k;srcid=1;' expect 'value=v;' end2 say child"
        );
        let [on_c, on_d] = ["c", "d"].map(|host| spawn(2, &child, host));
        let steps = format!(
            "init2\nframe cmd=kvs-put;key=a%r;value=b%r;\nexpect rc=0;\nfence2\nsay up\nonly 0\ncount\nall\nfence2\n\
             only 0\n{on_c}\nexpect cmd=spawn-response;rc=0;\n{on_d}\nexpect cmd=spawn-response;rc=0;\nall\nfence2\nend2"
        );
        let pattern = ["--prepend-pattern", "%h "];
        let job = job(3, &format!("--fence {fence}")).args(pattern).arg(RAW).steps(&steps);
        let mut job = job.hold_input().start();
        job.await_stdout("n1 up\n", 2);
        grow(&job, "c:2,d").run().code(0).quiet();
        counts(&job, "2 ranks on 3 hosts");
        job.end_input();
        let outcome = job.wait();
        outcome.code(0).quiet().says("c child\n", 2).says("d child\n", 2);
    }
}

// Fault: A host is named that is in the run, that cannot be started, or that is one too many; or no host may join
// Outcome: one line names it and says why, the job goes on, and its number is free again
// Guarantee: What `hydrant grow` is refused changes nothing
#[test]
fn hosts_that_cannot_join_are_named_and_the_job_goes_on() {
    let folder = Folder::new("growth");
    let agent = folder.executable(
        "agent",
        "#!/bin/sh\n[ \"$1\" = bad ] && { echo no such host; exit 9; }\nshift\nexec \"$@\"\n",
    );
    let bootstrap = format!("exec:{agent} {{host}} {{args}}");
    let steps = "init1\nfence1\nsay up\nonly 0\ncount\nall\nfence1\nend1\nsay done";
    let mut job = Job::command("run -hosts n1:2 --elastic 2 -n 2 --bootstrap")
        .arg(&bootstrap)
        .arg(RAW)
        .steps(steps)
        .hold_input()
        .start();
    job.await_stdout("up\n", 2);
    let pid = job.pid();
    let refused = |hosts: &str, why: &str| {
        let outcome = grow(&job, hosts).run();
        outcome.code(1).warns(&format!("hydrant: job {pid} refused: {why}"));
    };
    refused("n1", "host n1 is in the run already");
    // What the command has printed follows.
    refused("bad", &format!("host bad (node 2): {agent} ended with exit code 9"));
    refused("me@c", "host c has user me, which exec does not support; use --bootstrap ssh");
    grow(&job, "c").run().code(0).quiet();
    refused("c:4", "host c is in the run already");
    refused("d", "host d: the run may have 2 hosts, and has had them: start it with a higher --elastic");
    job.end_input();
    job.wait().code(0).quiet().says("done", 2);
}

/// Hosts leave, one of them with the ranks of a spawned job by force, and come back.
#[test]
fn hosts_leave_and_join_again() {
    let child = spawn(1, &format!("exec {RAW} init2 say child forever"), "c");
    let (_, child) = child.split_once(' ').expect("a step and its text");
    let asks = "read line; \"$0\" frame \"$1\" expect 'cmd=spawn-response;";
    let script = format!(
        "\"$0\" init2 say up; [ $PMI_RANK = 1 ] || {{ {asks}rc=0;'; {asks}' say refused; read line; }}; exec \"$0\" fence2 end2"
    );
    let job =
        job(6, "-disable-auto-cleanup --prepend-pattern").args(["%h ", "bash", "-c", &script, RAW, child]);
    let mut job = job.hold_input().start();
    job.await_stdout("n1 up\n", 2);
    grow(&job, "c,d").run().code(0).quiet();
    shrink(&job, "d").run().code(0).quiet();
    counts(&job, "2 ranks on 2 hosts");
    job.send(b"\n").expect("the rank reads");
    job.await_stdout("c child\n", 1);
    let pid = job.pid();
    let outcome = shrink(&job, "c").run();
    outcome.code(1).warns(&format!(
        "hydrant: job {pid} refused: host c has rank 0 of spawned job 1: end them, or use --force"
    ));
    shrink(&job, "c").words("--force").run().code(0).quiet();
    counts(&job, "2 ranks on 1 host");
    job.send(b"\n").expect("the rank reads");
    job.await_stdout("n1 refused\n", 1);
    grow(&job, "c").run().code(0).quiet();
    counts(&job, "2 ranks on 2 hosts");
    job.end_input();
    let outcome = job.wait();
    outcome.code(0).warns("host c leaves: its rank is ended").says("c child", 1);
    outcome.warns("host c is not in the run any more");
}

// Fault: Hosts are to leave that are not there, the last one, or of a job without `--elastic`
// Outcome: one line names each with the reason, and the job goes on
// Guarantee: What `hydrant shrink` is refused changes nothing
#[test]
fn hosts_that_cannot_leave_are_named_and_the_job_goes_on() {
    let steps = "init1\nfence1\nsay up\nonly 0\ncount\nall\nfence1\nend1\nsay done";
    for (options, hosts, why) in [
        ("--elastic 2", "x", "host x is not in the run"),
        ("--elastic 2", "n1 --force", "host n1 is the last one: end the run instead"),
        ("", "n1 --force", "host n1: hosts cannot leave this run: start it with --elastic HOSTS"),
    ] {
        let run = format!("-hosts n1:2 --bootstrap local -n 2 {options}");
        let mut job = Job::hydrant(&run).arg(RAW).steps(steps).hold_input().start();
        job.await_stdout("up\n", 2);
        let pid = job.pid();
        let outcome = Job::command("shrink -hosts").words(hosts).arg(pid.to_string()).run();
        outcome.code(1).warns(&format!("hydrant: job {pid} refused: {why}"));
        job.end_input();
        job.wait().code(0).quiet().says("done", 2);
    }
}

#[test]
fn a_run_takes_hosts_only_with_the_option() {
    let steps = "init1\nsay up\nonly 0\ncount\nall\nfence1\nend1";
    let job = Job::hydrant("-hosts n1:2,n2:2 --bootstrap local -n 2").arg(RAW).steps(steps);
    let mut job = job.hold_input().start();
    job.await_stdout("up\n", 2);
    grow(&job, "c").run().code(1).warns("host c: hosts cannot join this run: start it with --elastic HOSTS");
    // The run was given this one, and its ranks do not need it.
    counts(&job, "2 ranks on 1 host");
    grow(&job, "n2").run().code(0).quiet();
    counts(&job, "2 ranks on 2 hosts");
    job.end_input();
    job.wait().code(0).quiet();
    for (options, why) in [
        ("-hosts a,b --elastic 1", "--elastic 1, but the job has 2 hosts"),
        ("-hosts a --elastic 1040 --bootstrap local", "--elastic lets 1039 hosts join, and 1020 can at most"),
        ("-n 2 --elastic 2", "--elastic needs hosts: name them with --hosts or --hostfile"),
        ("-hosts a --elastic 2 --preload-binary", "hosts that join later get no program files"),
    ] {
        let outcome = Job::hydrant(options).arg("true").run();
        assert!(outcome.stderr.contains(why), "{options}: {outcome}");
    }
}

/// A job whose ranks spawn with these info keys, and the output of parents and children with their hosts in front.
fn spawn_with(peer: Peer, folder: &Folder, job: Job, keys: &str) -> Outcome {
    let job = job.args(["--prepend-pattern", "%h "]).assign(peer.variables(folder.path("").as_ref()));
    job.arg(peer.program("mpi_spawn")).words("keys").words(keys).run()
}

fn mpi_peers() -> impl Iterator<Item = Peer> {
    [Peer::Mpich5, Peer::OpenMpi5, Peer::OpenMpi4].into_iter().filter(|peer| peer.there())
}

/// Ranks go to free slots of all hosts, as under prterun 5.0.11, or where the spawn says.
#[test]
fn a_spawn_adds_hosts() {
    let folder = Folder::new("growth-add");
    folder.file("added", "# to join\nc slots=3\nd:1\n");
    folder.file("listed", "d slots=1\nn1 slots=1\n");
    let (added, listed) = (folder.path("added"), folder.path("listed"));
    for peer in mpi_peers() {
        for (keys, children) in [
            ("world 4 add-host=c:4", vec![("c", 4)]),
            ("world 2 add-host=n1", vec![("n1", 2)]),
            (&format!("world 4 add-hostfile={added}"), vec![("c", 3), ("d", 1)]),
            ("world 3 add-host=c:2,d:2 host=d,n1", vec![("d", 2), ("n1", 1)]),
            (&format!("world 2 add-hostfile={added} hostfile={listed}"), vec![("d", 1), ("n1", 1)]),
        ] {
            let outcome = spawn_with(peer, &folder, job(3, ""), keys);
            outcome.code(0).says(" of 2 done", 2);
            outcome.says(" child ", children.iter().map(|(_, count)| count).sum());
            for (host, count) in children {
                outcome.says(&format!("{host} child "), count);
            }
        }
    }
}

/// The host is started once, and each spawn waits for it.
#[test]
fn spawns_at_once_add_the_same_host() {
    let folder = Folder::new("growth-at-once");
    for peer in mpi_peers() {
        let job = Job::hydrant("-hosts n1:4 --bootstrap local --elastic 2 -n 4");
        let outcome = spawn_with(peer, &folder, job, "self 1 add-host=c:4");
        outcome.code(0).says("c child 0 of 1\n", 4).says(" of 4 done", 4);
    }
}

// Fault: A spawn adds a host that cannot be started or is one too many, in a run whose hosts are fixed, or with a file that
// cannot be read
// Outcome: the spawn is refused, one line names the host or the line of the file with the reason, and the job goes on
// Guarantee: A program of a spawn is not started without the hosts that it adds
#[test]
fn a_spawn_whose_hosts_cannot_join_is_refused_and_the_job_goes_on() {
    let folder = Folder::new("growth-refused");
    let agent = folder.executable(
        "agent",
        "#!/bin/sh\n[ \"$1\" = bad ] && { echo no route; exit 9; }\nshift\nexec \"$@\"\n",
    );
    folder.file("wrong", "c slots=1\nd slots=x\n");
    let wrong = folder.path("wrong");
    for peer in mpi_peers() {
        for (elastic, keys, why) in [
            ("--elastic 3", "add-host=c,bad", &format!("host bad (node 3): {agent} ended with exit code 9")),
            ("--elastic 1", "add-host=c", &"host c: the run may have 1 hosts, and has had them".to_owned()),
            (
                "",
                "add-host=c",
                &"host c: hosts cannot join this run: start it with --elastic HOSTS".to_owned(),
            ),
            ("--elastic 2", "add-host=c host=d", &"host d: this run's hosts are n1".to_owned()),
            (
                "--elastic 2",
                &format!("hostfile={wrong}"),
                &format!("hostfile {wrong} line 2: invalid number"),
            ),
            (
                "--elastic 2",
                &format!("add-hostfile={wrong}"),
                &format!("add-hostfile {wrong} line 2: invalid"),
            ),
        ] {
            // Open MPI does not survive a refused spawn of several ranks.
            let job = Job::hydrant(&format!("-hosts n1:2 {elastic} -n 1"));
            let job = job.arg("--bootstrap").arg(format!("exec:{agent} {{host}} {{args}}"));
            let outcome = spawn_with(peer, &folder, job, &format!("world 1 {keys}"));
            outcome.code(0).says(" of 1 done", 1).says("refused: ", 1);
            let program = peer.program("mpi_spawn");
            outcome.warns(&format!("hydrant: nothing is spawned for rank 0: {}: {why}", program.display()));
        }
    }
}

/// MPICH's and Open MPI's ranks spawn, and exchange messages with children on the new host.
#[test]
fn mpi_programs_spawn_on_a_host_that_has_joined() {
    for peer in [Peer::Mpich5, Peer::OpenMpi5].into_iter().filter(|peer| peer.there()) {
        let folder = Folder::new("growth-mpi");
        let script = "echo up; [ ${PMI_RANK:-$PMIX_RANK} != 0 ] || read line; exec \"$0\" world 4";
        let job = job(2, "")
            .args(["--prepend-pattern", "%h ", "bash", "-c", script])
            .arg(peer.program("mpi_spawn"));
        let job = peer
            .variables(folder.path("").as_ref())
            .into_iter()
            .fold(job, |job, (name, value)| job.env(name, value));
        let mut job = job.hold_input().start();
        job.await_stdout("n1 up\n", 2);
        grow(&job, "c:4").run().code(0).quiet();
        job.end_input();
        let outcome = job.wait();
        outcome.code(0).says("c child ", 4).says(" of 2 done", 2);
    }
}

/// 4 ranks become 8 with a host that a spawn brings, and 2, and the host is given back.
#[test]
fn mpi_programs_grow_from_4_to_8_ranks_and_shrink_to_2() {
    for peer in [Peer::Mpich5, Peer::OpenMpi5].into_iter().filter(|peer| peer.there()) {
        let folder = Folder::new("growth-elastic");
        let job = Job::hydrant("-hosts n1:4 --bootstrap local --elastic 2 -n 2 --prepend-pattern").arg("%h ");
        let job = job.assign(peer.variables(folder.path("").as_ref()));
        let mut job = job.arg(peer.program("mpi_elastic")).words("world c:4").hold_input().start();
        job.await_stdout("n1 2 ranks\n", 1);
        // The spawned ranks have disconnected, and end.
        let gives_back = || {
            let outcome = shrink(&job, "c").run();
            let has_left = outcome.status.success();
            assert!(has_left || outcome.stderr.contains("host c has rank"), "{outcome}");
            has_left
        };
        assert!((0..1000).any(|_| gives_back()));
        // Those that were spawned on n1 end as well, which nobody waits for.
        let status = || Job::command("status").arg(job.pid().to_string()).run();
        let has_two_ranks = || status().code(0).stdout.contains("2 ranks on 1 host");
        assert!((0..1000).any(|_| has_two_ranks()));
        job.send(b"\n").expect("rank 0 reads");
        job.end_input();
        let outcome = job.wait();
        outcome
            .code(0)
            .says("c rank ", 4)
            .says("n1 8 ranks\n", 1)
            .says("n1 4 ranks\n", 2)
            .says("n1 2 ranks\n", 1);
    }
}

/// Sessions find the set of the new host, and the parents that of both jobs. Open MPI 5.0 has sets of its own only.
#[test]
fn sessions_find_the_sets_of_new_hosts() {
    for (peer, of_host) in [(Peer::Mpich5, "hydrant://node/"), (Peer::OpenMpi5, "mpix://shared")] {
        if !peer.there() {
            continue;
        }
        let folder = Folder::new("growth-sessions");
        let job = job(2, "--mpi-psets --prepend-pattern").arg("%h ");
        let job = job.assign(peer.variables(folder.path("").as_ref()));
        let outcome = job.arg(peer.program("mpi_elastic")).words("sessions c:2").run();
        outcome.code(0).says("n1 4 ranks\n", 1);
        for host in ["n1", "c"] {
            outcome.says(&format!("{host} 2 ranks\n"), 1);
            for rank in 0..2 {
                let name = if peer == Peer::Mpich5 { host } else { "" };
                outcome.says(&format!("{host} rank {rank} of {of_host}{name}\n"), 1);
            }
        }
        let of_both = if peer == Peer::Mpich5 { 2 } else { 0 };
        outcome.says("/with-parent of 4\n", of_both);
    }
}

/// Those that are to stay have one from the start, and so have all where files are sent along.
#[test]
fn hosts_without_ranks_have_no_daemon() {
    let folder = Folder::new("growth-unused");
    let agent = Agent::new(&folder);
    for (options, started) in [
        ("-hosts a,b,c,d -n 2", "a b"),
        ("-hosts a,b,c,d -n 1 -host c", "c"),
        ("-hosts a,b,c,d -n 2 --elastic 3:5", "a b c"),
        ("-hosts a,b,c -n 1 --preload-binary", "a b c"),
    ] {
        let outcome = agent.job(options).args(["sh", "-c", "echo $PMI_HOSTNAME"]).run();
        outcome.code(0).quiet();
        assert_eq!(agent.take_started().join(" "), started, "{options}");
    }
}

/// Ranks go to the free slots of all hosts that were named, as if all had daemons, and the universe has these slots.
#[test]
fn a_spawn_starts_the_daemons_that_it_needs() {
    let folder = Folder::new("growth-on-demand");
    let agent = Agent::new(&folder);
    let hosts = "-hosts a:2,b:2,c:2,d:2 -n 2";
    for peer in [Peer::Mpich5, Peer::OpenMpi5].into_iter().filter(|peer| peer.there()) {
        for (keys, started, children) in [
            ("world 2 x=y", "a b", vec![("b", 2)]),
            ("world 5 x=y", "a b c d", vec![("b", 2), ("c", 2), ("d", 1)]),
            ("world 3 host=d,a", "a d", vec![("d", 2), ("a", 1)]),
            ("world 2 add-host=c host=c", "a c", vec![("c", 2)]),
            ("self 1 x=y", "a b", vec![("b", 2)]),
        ] {
            let outcome = spawn_with(peer, &folder, agent.job(hosts), keys);
            outcome.code(0).says(" of 2 done", 2);
            assert_eq!(agent.take_started().join(" "), started, "{peer:?} {keys}: {outcome}");
            for (host, count) in children {
                outcome.says(&format!("{host} child "), count);
            }
        }
        let hello = agent.job(hosts).assign(peer.variables(folder.path("").as_ref()));
        hello.arg(peer.program("mpi_hello")).run().code(0).says("universe 8", 2);
        assert_eq!(agent.take_started(), ["a"]);
    }
}

// Fault: A spawn needs a host of the run that has no daemon, and it cannot be started
// Outcome: the spawn is refused, one line names the host and says why, and the job goes on
// Guarantee: A spawn has all of its hosts or is refused
#[test]
fn a_spawn_on_an_unused_host_that_cannot_be_started_is_refused_and_the_job_goes_on() {
    let folder = Folder::new("growth-unused-refused");
    let agent = Agent::new(&folder);
    for peer in mpi_peers() {
        for keys in ["world 1 x=y", "world 1 host=bad"] {
            let outcome = spawn_with(peer, &folder, agent.job("-hosts a:1,bad:1,c:1 -n 1"), keys);
            outcome.code(0).says(" of 1 done", 1).says("refused: ", 1);
            outcome.warns("hydrant: nothing is spawned for rank 0: host bad (node 2): ");
            assert_eq!(agent.take_started(), ["a"], "{peer:?} {keys}");
        }
        let outcome = spawn_with(peer, &folder, agent.job("-hosts a:1,bad:1,c:1 -n 1"), "world 1 host=c");
        outcome.code(0).says("c child ", 1);
        assert_eq!(agent.take_started(), ["a", "c"]);
    }
}
