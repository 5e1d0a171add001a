//! Jobs of `hydrant offload` at any server: the same for a board, for this machine's processor, and for a DPU's.

use std::fs;
use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};

use crate::hydrant_bin;
use crate::patience::until;
use crate::peers::Peer;
use crate::{Folder, Job, Outcome};

/// Steps of the raw client: a spawn, which a server that starts no processes refuses.
pub const SPAWN: &str = r"ack1
    init1
    only 0
    send mcmd=spawn\nnprocs=1\nexecname=true\ntotspawns=1\nspawnssofar=1\nargcnt=0\npreput_num=0\ninfo_num=0\nendcmd\n
    refused this host starts no processes
    all
    fence1
    end1";

/// A request for `count` ranks of a shell script, without its reply.
pub fn spawn_request(script: &str, count: u32) -> String {
    format!(
        "frame cmd=spawn;ncmds=1;preputcount=0;subcmd=sh;maxprocs={count};argc=1;argv0={script};infokeycount=0;"
    )
}

/// A script in `folder` in which the raw client takes these steps.
pub fn script(folder: &Folder, raw: &str, name: &str, steps: &str) -> String {
    let words = steps.lines().flat_map(|step| step.trim().splitn(2, ' '));
    let words: String = words.map(|word| format!(" '{word}'")).collect();
    folder.file(name, &format!("exec {raw}{words}\n"))
}

/// Jobs of MPICH that spawn, twice, with a failure, and without a program. `run` gives a job with these options.
pub fn mpich_spawns(run: impl Fn(&str) -> Job) {
    let run = |options: &str| run(options).arg(Peer::Mpich5.program("mpi_spawn"));
    for _ in 0..2 {
        let world = run("-usize 4 -n 2").words("world 2").run();
        world.code(0).quiet().says("child 0 of 2\n", 1).says("child 1 of 2\n", 1);
        world.says(" of 2 done, universe 4\n", 2);
    }
    let fails = run("-n 2").words("fails 5").run();
    fails.code(5).says("child 0 of 1\n", 1).says(" of 2 done", 2).warns("5");
    run("-n 2").words("missing").run().code(0).says("refused: class other codes other other\n", 2);
}

/// Makes a job of two ranks one of Open MPI that spawns two.
pub fn open_mpi_spawns(job: Job) {
    let peer = Peer::OpenMpi5;
    let folder = Folder::new("spawn-pmix");
    let job = job.assign(peer.variables(&folder.0)).arg(peer.program("mpi_spawn"));
    job.words("world 2").run().code(0).says("child 1 of 2\n", 1).says(" of 2 done", 2);
}

/// Makes a job of two ranks one that spawns a rank. `hydrant status` shows what a rank of each job waits for.
pub fn status_shows_what_ranks_of_both_jobs_wait_for(raw: &str, job: Job) {
    let folder = Folder::new("spawn-status");
    let wait = "frame cmd=info-getnodeattr;key=late;wait=TRUE;\nexpect rc=0";
    let spawn = spawn_request(&script(&folder, raw, "child", &format!("init2\nsay up\n{wait}")), 1);
    let steps = format!("init2\nonly 1\nfence2\nonly 0\n{spawn}\nexpect cmd=spawn-response;rc=0;\nforever");
    let job = job.arg(raw).steps(&steps).start();
    job.await_stdout("up\n", 1);
    let watch = Job::command("status --watch=0.1").arg(job.pid().to_string()).start();
    watch.await_stdout("fence 1, ", 1).await_stdout("node attribute late", 1);
    job.signal(Signal::TERM);
    job.wait().code(143);
    watch.wait().code(0);
}

/// Something that serves jobs for hosts.
#[derive(Clone, Debug)]
pub struct Target {
    /// Its management port, as `--target` takes it.
    pub address: String,
    /// The ports that ranks connect to, as `--pmi-ports` takes them; those that it names itself where empty.
    pub ports: String,
    /// The raw client.
    pub raw: &'static str,
}

impl Target {
    /// `hydrant offload ARGS`, the arguments separated by blanks.
    pub fn offload(&self, args: &str) -> Job {
        let job = Job::new(hydrant_bin()).args(["offload", "--target", &self.address]);
        let job = if self.ports.is_empty() { job } else { job.args(["--pmi-ports", &self.ports]) };
        job.words(args)
    }

    /// A job of raw clients.
    pub fn raw(&self, args: &str, steps: &str) -> Job {
        self.offload(args).arg(self.raw).steps(steps)
    }

    /// Jobs of `peer`'s program `name`, of these sizes.
    fn programs(&self, sizes: &[u32], peer: Peer, name: &str, check: impl Fn(&Outcome, u32)) {
        if !peer.there() {
            return;
        }
        let program = peer.program(name);
        for &size in sizes {
            let outcome = self.offload(&format!("-n {size}")).arg(&program).run();
            outcome.code(0).quiet();
            check(&outcome, size);
        }
    }

    /// Real MPI libraries, one job after the other.
    pub fn real_clients(&self, sizes: &[u32]) {
        self.programs(sizes, Peer::Mpich5, "mpi_hello", |outcome, size| {
            outcome.says(&format!(" of {size}, program 0, universe -1, MPICH 5.0.2\n"), size as usize);
        });
        self.programs(sizes, Peer::Mpich5, "mpi_allreduce", |outcome, size| {
            outcome.says(&format!("allreduce of {size}: 0 wrong\n"), 1);
        });
        self.programs(sizes, Peer::SlurmPmi2, "pmi2_kvs", |outcome, size| {
            outcome.says(&format!("pmi2 size={size} "), 1).says(" errs=0 ", 1);
        });
    }

    /// Jobs of `size` ranks of Open MPI, a PMIx client, with more options of `hydrant offload`.
    pub fn open_mpi(&self, peer: Peer, size: usize, options: &str) {
        if !peer.there() {
            return;
        }
        let folder = Folder::new("offload");
        // Its segments have the name of the host.
        let host = folder.0.file_name().expect("the folder has a name").to_string_lossy().into_owned();
        let variables = [peer.variables(&folder.0), vec![("PMIX_HOSTNAME", host.clone().into())]].concat();
        let hello = format!(" of {size}, program 0, universe {size}, Open ");
        let sum = format!("allreduce of {size}: 0 wrong\n");
        for (program, said, times) in [("mpi_hello", hello, size), ("mpi_allreduce", sum, 1)] {
            // On few processors so many ranks may take longer than the warning to start.
            let job = self.offload(&format!("--fence-warning 0 {options} -n {size}"));
            let job = job.assign(variables.clone());
            job.arg(peer.program(program)).run().code(0).quiet().says(&said, times);
            let segments = fs::read_dir("/dev/shm").expect("the system has shared memory").flatten();
            let left = segments.filter(|file| file.file_name().to_string_lossy().contains(&host));
            assert_eq!(left.count(), 0, "segments of {host} are left");
        }
    }

    /// What this machine does with the ranks: as under `hydrant run`.
    pub fn ranks_of_this_machine(&self) {
        let script = r#"read line; echo "$PMI_RANK/$PMI_SIZE $PMI_ID $line"; exit $((PMI_RANK * 3))"#;
        let job = self.offload("-l -n 2").args(["sh", "-c", script]).input("to rank 0\n");
        let outcome = job.run();
        outcome.code(3).warns("program sh exited with code 3");
        assert_eq!(outcome.lines(), ["[0] 0/2 0 to rank 0", "[1] 1/2 1 "], "{outcome}");
        let steps = r"init2
            only 0
            frame cmd=info-getjobattr;key=universeSize;
            expect cmd=info-getjobattr-response;rc=0;found=TRUE;value=7;
            frame cmd=pset-info;name=ocean;
            expect cmd=pset-info-response;rc=0;size=1;
            frame cmd=job-getid;
            expect cmd=job-getid-response;rc=0;jobid=%j;
            all
            fence2
            end2";
        let job = self.raw("-usize 7 -n 1 --pset ocean", steps).words(": -n 2").arg(self.raw);
        job.steps("init2\nfence2\nend2").run().code(0).quiet();
        self.offload("-n 2 ./nosuchprogram").run().code(127).warns("cannot start ./nosuchprogram");
    }

    /// What `hydrant run` says of failures is said here.
    pub fn failures(&self) {
        let fence = "\nall\nfence1\nend1";
        let outcome = self.raw("-n 3", &format!("ack1\ninit1\nonly 1\nkill 9{fence}")).run();
        outcome.code(137).warns("rank 1 died by SIGKILL\n").warns("2 other ranks were ended");
        let outcome = self.raw("-n 3", &format!("ack1\ninit1\nonly 1\nexit 0{fence}")).run();
        outcome.code(1).warns("rank 1 exited with code 0 without finalizing\n");
        let outcome = self.raw("-n 3", "only 1\nexit 0\nall\nack1\ninit1\nfence1\nend1").run();
        outcome.code(1).warns("rank 1 exited with code 0 while others wait for it");
        let steps = "init2\nonly 2\nframe cmd=abort;isworld=TRUE;msg=no more;\nall\neof";
        let outcome = self.raw("-n 3", steps).run();
        outcome.code(1).warns("rank 2 aborted the job").warns("no more");
        // And it goes on.
        self.raw("-n 3", "ack1\ninit1\nfence1\nend1").run().code(0).quiet();
    }

    /// A fence that hangs is reported, with how the board sees the job, and what it counted when all is over.
    pub fn status(&self) {
        // Both are connected behind the first fence.
        let steps = "ack1\ninit1\nfence1\nonly 0\ncat\nall\nfence1\nend1";
        let mut job = self.raw("-v --summary -fence-warning 0.1 -n 2", steps).hold_input().start();
        job.await_stderr("ranks have been waiting for 0.1 s: 1 of 2 have come, missing: rank 0 (pid ");
        job.await_stderr("the board's job of 2 ranks: 2 connected, 1 in the fence, 0 finalized, 0 ended\n");
        job.end_input();
        let outcome = job.wait();
        outcome.code(0).warns("hydrant: board ").warns("rank 0 has joined").warns("rank 1 has joined");
        // The last of its connections may still be on its way to being closed.
        outcome.warns(" connected, 0 in the fence, 2 finalized, 2 ended; the board since its start: ");
    }

    /// A board that answers no more while ranks wait in a fence. `freeze` stops it.
    pub fn frozen(&self, freeze: impl FnOnce()) {
        let steps = "ack1\ninit1\nonly 0\nsend cmd=barrier_in\\n\nall\nforever";
        let job = self.raw("--heartbeat 4 -fence-warning 0.1 -n 2", steps).start();
        job.await_stderr(" connected, 1 in the fence");
        freeze();
        let outcome = job.wait();
        let fence = "; at its last report 1 of 2 ranks waited in a fence\n";
        outcome.code(1).warns(&format!(" has not answered for 2 s{fence}"));
        outcome.warns(&format!(" has not answered for 4 s{fence}"));
    }

    /// A board without room for spawned jobs.
    pub fn refuses_spawns(&self) {
        let outcome = self.raw("-n 2", SPAWN).run();
        outcome.code(0).warns("is too small for spawns: use a board with ");
    }

    /// Jobs that ranks of MPICH spawn. This machine starts the processes, and the board serves them.
    pub fn spawns(&self) {
        if !Peer::Mpich5.there() {
            return;
        }
        mpich_spawns(|options| self.offload(options));
    }

    /// Jobs that ranks of MPICH spawn one after the other, and from each other. A job may open before the last one is over.
    pub fn repeated_spawns(&self) {
        if !Peer::Mpich5.there() {
            return;
        }
        let run = |options: &str| self.offload(options).arg(Peer::Mpich5.program("mpi_spawn"));
        run("-n 2").words("again 3").run().code(0).quiet().says("child 0 of 1\n", 3).says(" of 2 done", 2);
        run("-n 1").words("nested 2").run().code(0).quiet().says("child 0 of 1\n", 3).says(" of 1 done", 1);
    }

    /// Jobs of two ranks of Open MPI that spawn two.
    pub fn open_mpi_spawns(&self) {
        if Peer::OpenMpi5.there() {
            open_mpi_spawns(self.offload("-n 2"));
        }
    }

    /// Recordings of runs with and without spawns, which the server sends to this machine, replay here.
    pub fn recordings(&self) {
        let folder = Folder::new("offload-recordings");
        let file = folder.path("run.rec");
        let recorded = |options: &str| self.offload(&format!("{options} --record {file}"));
        let replays = |jobs: &[(u32, usize)], spawns: usize| {
            let replay = Job::new(hydrant_bin()).args(["replay", &file]).run();
            replay.code(0).says(" outputs, all the same", 1).says("! start spawn", spawns);
            for &(ranks, times) in jobs {
                replay.says(&format!("of {ranks} ranks"), times);
            }
        };
        let child = script(&folder, self.raw, "child", "init2\nfence2\nend2\nsay met");
        let spawn = spawn_request(&child, 3);
        let steps = format!("init2\nonly 0\n{spawn}\nexpect cmd=spawn-response;rc=0;\nall\nfence2\nend2");
        let raw = recorded("-n 2").arg(self.raw).steps(&steps).run();
        raw.code(0).quiet().says("met\n", 3);
        replays(&[(2, 1), (3, 1)], 1);
        if !Peer::Mpich5.there() {
            return;
        }
        let sum = recorded("-n 4").arg(Peer::Mpich5.program("mpi_allreduce")).run();
        sum.code(0).quiet().says("allreduce of 4: 0 wrong\n", 1);
        replays(&[(4, 1)], 0);
        let world = recorded("-usize 4 -n 2").arg(Peer::Mpich5.program("mpi_spawn")).words("world 2").run();
        world.code(0).quiet().says("child 1 of 2\n", 1).says(" of 2 done, universe 4\n", 2);
        replays(&[(2, 2)], 1);
    }

    /// The same of ranks of Open MPI, which spawn.
    pub fn open_mpi_recordings(&self) {
        if !Peer::OpenMpi5.there() {
            return;
        }
        let folder = Folder::new("offload-recordings-pmix");
        let file = folder.path("run.rec");
        open_mpi_spawns(self.offload(&format!("-n 2 --record {file}")));
        let replay = Job::new(hydrant_bin()).args(["replay", &file]).run();
        replay.code(0).says(" outputs, all the same", 1).says("! start spawn", 1).says("of 2 ranks", 2);
    }

    /// A spawned job that fails ends its parent, and its exit code is that of the run.
    pub fn spawned_failures(&self) {
        let folder = Folder::new("offload-spawn-fails");
        for (ending, code, says) in [
            ("frame cmd=abort;isworld=TRUE;msg=enough;\nforever", 1, "aborted the job: enough\n"),
            ("kill 9", 137, "died by SIGKILL\n"),
            ("hangup\nforever", 1, "closed its PMI connection without finalizing"),
            ("exit 0", 1, "exited with code 0 without finalizing"),
        ] {
            let steps = format!("init2\nfence2\nonly 0\n{ending}\nonly 1\nfence2");
            let spawn = spawn_request(&script(&folder, self.raw, "child", &steps), 2);
            let steps =
                format!("init2\nonly 0\n{spawn}\nexpect cmd=spawn-response;rc=0;\nall\nfence2\nforever");
            let outcome = self.raw("-n 2", &steps).run();
            outcome
                .code(code)
                .warns("the first job was ended")
                .warns(&format!("rank 0 of spawned job 1 {says}"));
        }
    }

    /// What a board has no room for, it refuses.
    pub fn refusals(&self, ranks: u32) {
        let outcome = self.offload(&format!("-n {} true", ranks + 1)).run();
        outcome.code(1).warns(&format!("refuses the job: limit ranks ({ranks}) is used up"));
    }
}

/// Processes that this one has started and that are called so, with those that they have started.
fn called_below(pid: u32, name: &str) -> Vec<u32> {
    let children = format!("/proc/{pid}/task/{pid}/children");
    let children = fs::read_to_string(children).unwrap_or_default();
    let children = children.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok());
    let is_called =
        |pid: &u32| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|it| it.trim() == name);
    children.filter(is_called).flat_map(|pid| [vec![pid], called_below(pid, name)].concat()).collect()
}

/// Runs a job of that many hosts and ranks, which is given without a program. The launcher and all daemons are stopped while the
/// ranks pass fences.
pub fn passes_fences_without_hosts(raw: &str, job: Job, daemons: usize, ranks: usize) {
    let folder = Folder::new("stopped");
    let file = |name: &str| folder.path(name);
    let script = format!(
        "echo up; until [ -e {} ]; do sleep 0.05; done; {} \"$@\" && : > {}$PMI_ID",
        file("go"),
        raw,
        file("done")
    );
    let steps = ["init2", "fence2", "fence2", "fence2", "end2"];
    let job = job.args(["sh", "-c", &script, "sh"]).args(steps).start();
    job.await_stdout("up\n", ranks);
    let head = job.pid().as_raw_nonzero().get() as u32;
    let hosts = [vec![head], called_below(head, "hydrant")].concat();
    assert!(hosts.len() > daemons, "{hosts:?}");
    let signal = |signal| {
        for &host in &hosts {
            let pid = i32::try_from(host).ok().and_then(Pid::from_raw).expect("it is a process");
            kill_process(pid, signal).expect("it runs");
        }
    };
    signal(Signal::STOP);
    folder.file("go", "");
    let are_done = || (0..ranks).all(|rank| Path::new(&file(&format!("done{rank}"))).exists());
    let is_over = until(are_done);
    signal(Signal::CONT);
    let outcome = job.wait();
    assert!(is_over, "the ranks have waited for a host: {outcome}");
    outcome.code(0).quiet();
}
