//! Hosts, links, daemons and ranks that are lost at random moments of jobs that go on: the others finish, no process hangs, and
//! none is left on any host.
//!
//! `HYDRANT_LOSSES` is the number of jobs, 20 if it is not set, and `HYDRANT_LOSSES_SEED` the seed of the first one, 0 if it is not
//! set. A failure names the seed of its job. By hand: `HYDRANT_LOSSES=1000 tests/run sites -- --nocapture losses::`.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::thread::{self, sleep};
use std::time::Duration;

use hydrant_core::peer::Tree;
use hydrant_tests::peers::Peer;
use hydrant_tests::{Folder, Job, Outcome, Running, hydrant_bin, tell};
use rustix::process::{Pid, Signal, kill_process};

use crate::RAW;
use crate::join::{ALL, folder, host};
use crate::namespaces::{HOSTS, LOGIN, Site};
use crate::ssh::parent;

/// Ranks on each host.
const SLOTS: u32 = 4;
/// Sites at the same time.
const SITES: usize = 2;
/// Options of a job that goes on. The machine is busy, so that a shorter silence would be no sign of a loss.
const GOES_ON: &str = "-heartbeat 4 -l";
/// Fences of a rank, which take about a second.
const FENCES: u32 = 400;
/// Sums of an MPI rank, which take about as long.
const SUMS: u32 = 1500;

/// Random numbers from a seed (SplitMix64).
#[derive(Debug)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    fn choose<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}

/// Program of a job.
#[derive(Clone, Debug)]
enum Client {
    /// Fences of raw clients of this version of PMI.
    Raw(u32),
    /// An MPI program that shrinks its communicator when ranks are dead. MPICH 5 lacks `MPIX_Comm_agree`.
    OpenMpi(PathBuf),
}

impl Client {
    /// What its ranks say at the end.
    fn done(&self, rank: u32) -> String {
        match self {
            Client::Raw(_) => format!("[{rank}] done\n"),
            Client::OpenMpi(_) => format!("[{rank}] rank {rank}: "),
        }
    }

    /// How the command lines of its ranks begin.
    fn program(&self) -> String {
        match self {
            Client::Raw(_) => RAW.to_owned(),
            Client::OpenMpi(program) => program.display().to_string(),
        }
    }

    /// Adds its options, itself and its arguments to a job.
    fn start(&self, job: Job, folder: &Folder) -> Running {
        match self {
            Client::Raw(version) => {
                let steps = format!(
                    "init{version}\nfence{version}\nsay up\nfences{version} {FENCES}\nend{version}\nsay done"
                );
                job.arg("-disable-auto-cleanup").arg(RAW).steps(&steps).start()
            }
            Client::OpenMpi(program) => {
                let job = job.words("--with-ft ulfm").assign(Peer::OpenMpi5.variables(&folder.0));
                job.arg(program).arg(SUMS.to_string()).start()
            }
        }
    }
}

/// What happens to a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loss {
    /// Its daemon is killed.
    Daemon,
    /// Its daemon is stopped.
    FrozenDaemon,
    /// All of its processes are stopped.
    Frozen,
    /// Its links are cut, and both ends go on.
    Link,
    /// Its links are cut, and all of its processes end.
    Power,
    /// One of its ranks is killed. It is no loss of the host.
    Rank,
}

impl Loss {
    const ALL: [Loss; 6] =
        [Loss::Daemon, Loss::FrozenDaemon, Loss::Frozen, Loss::Link, Loss::Power, Loss::Rank];
}

/// Sends processes a signal. Those that have ended are as good as hit.
fn signal(pids: impl IntoIterator<Item = u32>, signal: Signal) {
    for pid in pids {
        let pid = Pid::from_raw(pid as i32).expect("a process has a number");
        let _ = kill_process(pid, signal);
    }
}

/// A job in which hosts and ranks are lost.
struct Play<'s> {
    site: &'s Site,
    client: Client,
    hosts: &'s [&'static str],
    radix: u32,
    /// The losses begin before all ranks are there.
    is_early: bool,
    /// Losses with the index of their host.
    losses: Vec<(usize, Loss)>,
}

impl Play<'_> {
    /// The processes of the job on a host, without the launcher.
    fn guests(&self, host: &str) -> Vec<(u32, String)> {
        let (hydrant, program) = (hydrant_bin().display().to_string(), self.client.program());
        let (all, daemon) = match host {
            LOGIN => (self.site.login_processes(), format!("{hydrant} join ")),
            _ => (self.site.guests(host), hydrant),
        };
        let ours = |line: &str| line.starts_with(&daemon) || line.starts_with(&program);
        all.into_iter().filter(|(_, line)| ours(line)).collect()
    }

    fn all(&self, host: &str) -> Vec<u32> {
        self.guests(host).into_iter().map(|(pid, _)| pid).collect()
    }

    fn ranks(&self, host: &str) -> Vec<u32> {
        let program = self.client.program();
        self.guests(host)
            .into_iter()
            .filter(|(_, line)| line.starts_with(&program))
            .map(|(pid, _)| pid)
            .collect()
    }

    /// The daemon on a host, if one is there.
    fn daemon(&self, host: &str) -> Option<u32> {
        let ranks = self.ranks(host);
        let mut daemons = self.all(host);
        daemons.retain(|pid| !ranks.contains(pid));
        // The guardian is a child of the daemon's, with the same arguments.
        daemons.iter().copied().find(|&pid| !daemons.contains(&parent(pid)))
    }

    /// Has a loss happen to a host.
    fn lose(&mut self, at: usize, loss: Loss, random: &mut Random) {
        let host = self.hosts[at];
        match loss {
            Loss::Daemon => signal(self.daemon(host), Signal::KILL),
            Loss::FrozenDaemon => signal(self.daemon(host), Signal::STOP),
            Loss::Frozen => signal(self.all(host), Signal::STOP),
            Loss::Link => self.site.cut(host),
            Loss::Power => {
                self.site.cut(host);
                signal(self.all(host), Signal::KILL);
            }
            Loss::Rank => {
                let ranks = self.ranks(host);
                if !ranks.is_empty() {
                    signal([random.choose(&ranks)], Signal::KILL);
                }
            }
        }
        self.losses.push((at, loss));
    }

    /// Lets all that is left on a host go on. The `nsenter` of a daemon that is stopped has stopped itself.
    fn heal(&self, host: &str) {
        match host {
            LOGIN => signal(self.all(host), Signal::CONT),
            _ => {
                signal(self.site.guests(host).into_iter().map(|(pid, _)| pid), Signal::CONT);
                self.site.mend(host);
            }
        }
    }

    /// Checks what the launcher has said.
    fn check(&self, outcome: &Outcome) {
        assert!(!outcome.stderr.contains("panicked"), "{outcome}");
        let tree = Tree::new(self.hosts.len() as u32 + 1, self.radix);
        let is_done = |rank: u32| outcome.stdout.contains(&self.client.done(rank));
        let ranks_of = |host: usize| host as u32 * SLOTS..(host as u32 + 1) * SLOTS;
        let lost = || self.losses.iter().filter(|(_, loss)| *loss != Loss::Rank).map(|&(at, _)| at);
        let is_lost = |host: usize| lost().any(|at| tree.subtree(at as u32 + 1).contains(&(host as u32 + 1)));
        let undone = lost().any(|at| !ranks_of(at).all(is_done));
        // Of a job whose ranks shrink their communicator the survivors count.
        let counts = matches!(self.client, Client::Raw(_)) || outcome.stdout.is_empty();
        assert!(!undone || !counts || !outcome.status.success(), "{outcome}");
        // A job whose ranks have not all been started ends.
        let says = |what: &str| outcome.stderr.contains(what);
        if self.is_early && (!says("the other ranks go on") || says("were ended")) {
            return;
        }
        let is_named =
            |at: usize| outcome.stderr.contains(&format!("host {} (node {})", self.hosts[at], at + 1));
        assert!(!undone || lost().any(is_named), "{outcome}");
        for host in (0..self.hosts.len()).filter(|&host| !is_lost(host)) {
            let killed = self.losses.iter().filter(|&&loss| loss == (host, Loss::Rank)).count();
            let done = ranks_of(host).filter(|&rank| is_done(rank)).count();
            assert!(done + killed >= SLOTS as usize, "{done} of {SLOTS} on {}\n{outcome}", self.hosts[host]);
        }
    }
}

/// A job with losses at random moments.
fn play(site: &Site, folder: &Folder, seed: u64) {
    let mut random = Random(seed);
    let joins = random.below(2) == 0;
    let radix = random.choose(&[2, 32]);
    let client = match random.below(4) {
        0 if Peer::OpenMpi5.there() => Client::OpenMpi(Peer::OpenMpi5.program("mpi_survive")),
        version => Client::Raw(version as u32 % 2 + 1),
    };
    // MPI_Init survives no loss.
    let is_early = random.below(4) == 0 && matches!(client, Client::Raw(_));
    let patience = if is_early { 6 } else { 60 };
    let lazy = random.choose(&["", "-fence lazy"]);
    let hosts: &[_] = if joins { &ALL } else { &HOSTS };
    let ranks = hosts.len() as u32 * SLOTS;
    let options = format!("{GOES_ON} -bootstrap-timeout {patience} -radix {radix} {lazy} -n {ranks}");
    let (job, joined): (Job, Vec<Running>) = if joins {
        let head = crate::join::head(site, folder, &format!("--expect 4 {options}"));
        (head, (0..4).map(|number| host(site, folder, number).start()).collect())
    } else {
        (site.hydrant(&format!("-hosts a:4,b:4,c:4 {options}")), Vec::new())
    };
    let job = client.start(job, folder);
    if !is_early {
        job.await_stdout("up\n", ranks as usize);
    }
    let mut play = Play { site, client, hosts, radix, is_early, losses: Vec::new() };
    let more = match play.client {
        Client::Raw(_) => random.below(3),
        // Open MPI 5.0.11 crashes if ranks die while it shrinks a communicator (`ompi_comm_activate`), or hangs.
        Client::OpenMpi(_) => 0,
    };
    for _ in 0..=more {
        // No wait for anything: a moment of the job.
        sleep(Duration::from_millis(random.below(700) as u64));
        let at = random.below(hosts.len());
        let loss = match hosts[at] {
            // The launcher runs there.
            LOGIN => random.choose(&[Loss::Daemon, Loss::FrozenDaemon, Loss::Rank]),
            _ => random.choose(&Loss::ALL),
        };
        play.lose(at, loss, &mut random);
    }
    let what: Vec<_> = play.losses.iter().map(|&(at, loss)| (hosts[at], loss)).collect();
    tell(&format!(
        "seed {seed}: {:?}, {lazy} radix {radix}, joins {joins}, early {is_early}, {what:?}",
        play.client
    ));
    job.await_end();
    play.losses.iter().for_each(|&(at, _)| play.heal(hosts[at]));
    joined.into_iter().for_each(|host| drop(host.wait()));
    site.is_idle();
    play.check(&job.wait());
}

fn number(variable: &str, or: u64) -> u64 {
    let number = std::env::var(variable).ok();
    number.map_or(or, |number| number.parse().unwrap_or_else(|_| panic!("{variable} is a number")))
}

// Fault: At random moments of a job that goes on, daemons and ranks are killed, links cut, and hosts frozen or without power
// Outcome: the ranks that are left finish, a lost host is named, and no process is left on any host
// Guarantee: A lost host is a change of membership
#[test]
fn hosts_links_and_ranks_are_lost_at_random_moments() {
    let first = number("HYDRANT_LOSSES_SEED", 0);
    let seeds = Mutex::new(first..first + number("HYDRANT_LOSSES", 20));
    let play_some = || {
        // A site of its own, because hosts are cut off.
        let Some(site) = Site::start() else { return };
        let folder = folder();
        let next = || seeds.lock().unwrap_or_else(PoisonError::into_inner).next();
        while let Some(seed) = next() {
            if let Err(why) = catch_unwind(AssertUnwindSafe(|| play(&site, &folder, seed))) {
                tell(&format!("HYDRANT_LOSSES=1 HYDRANT_LOSSES_SEED={seed} plays it alone"));
                resume_unwind(why);
            }
        }
    };
    // Most of the time is a wait for a heartbeat that does not come.
    thread::scope(|scope| (0..SITES).for_each(|_| drop(scope.spawn(play_some))));
}
