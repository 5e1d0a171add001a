//! What help says beside the options.

use std::fmt::Write;

use hydrant_core::{Limit, Limits};

use super::environment::{FOREIGN, TUNABLES};
use super::value;

/// Help is no wider than this many columns.
pub(super) const WIDTH: usize = 100;

pub(super) const ABOUT: &str = "\
A process manager for parallel (MPI) jobs: it starts the ranks of a job and wires them up. Programs that were linked with \
MPICH, Intel MPI or Slurm's libpmi2 run unchanged; hydrant answers their PMI-1 and PMI-2.";

pub(super) const AFTER: &str = "\
Examples:
  hydrant run -n 4 ./a.out         four ranks of an MPI program
  hydrant run -n 4 hydrant probe   four ranks that check and time the exchange itself
  hydrant run --help               every option of a job, with examples
  hydrant serve &                  names that separate runs publish for each other
  hydrant serve --size 4           a job of four ranks that somebody else starts
  hydrant offload --target BOARD -n 4 ./a.out   four ranks here, served by a board
  hydrant replay FILE              what a run recorded, for bug reports
  hydrant help probe               what the probe measures

Called mpiexec or mpirun (by a link of that name), hydrant is 'hydrant run'.";

pub(super) const RUN_ABOUT: &str = "\
Start a job and serve it until its last rank has ended.

Programs separated by a lone ':' form one job; ranks are numbered through it in the order of the command line. Everything \
behind a program's name, up to a lone ':', is handed to the program. A program without a slash in its name is looked up in \
PATH. Each long option may be written with one dash, as mpiexec does (-genv, -wdir), and a value may follow '='. Given \
twice, the later one of an option holds.";

pub(super) const OFFLOAD_ABOUT: &str = "\
Start a job here, as 'hydrant run' does, and have a board serve it: a microcontroller with hydrant's firmware, or the cores of \
a DPU. Ranks find PMI_PORT and PMI_ID in their environment and talk to the board; this machine's processor only starts them, \
passes on their output, signals and standard input, and tells the board how each of them has ended. The exit code and the \
report of a failure are those of 'hydrant run'.

A board starts no processes, so MPI_Comm_spawn is refused. What it has room for, it says with -v.";

pub(super) const OFFLOAD_AFTER: &str = "\
Examples:
  hydrant offload --target 192.0.2.7 -n 4 ./a.out                       a board in the network
  hydrant offload --target 192.0.2.7:4100 --summary -v -n 16 ./a.out    with what it has room for, and what it counted
  hydrant offload --target localhost:5000 --pmi-ports 5001-5016 -n 16 ./a.out    a board behind forwarded ports

Exit codes:
  those of 'hydrant run', and 1 where the board cannot be reached, does not answer, or refuses the job";

pub(super) const PROBE_ABOUT: &str = "\
A rank that checks and times the exchange. Each rank joins by PMI, puts its card (host, process id) and some values, waits in \
a fence for the others, gets what everyone has put and compares it byte by byte. Rank 0 then prints a table of the ranks with \
the times of each step, in microseconds.

It finds its process manager as any rank does: by PMI_FD, or by PMI_PORT and PMI_ID. Started without one it is the only rank \
of its own job, says so, and exchanges nothing.";

pub(super) const PROBE_AFTER: &str = "\
Examples:
  hydrant run -n 4 hydrant probe
  hydrant run -n 64 hydrant probe --keys 8 --bytes 900 --rounds 10
  mpiexec.hydra -n 4 hydrant probe --pmi 1

Exit codes:
  0  every value was right
  1  a value was wrong or missing (the rank and the key are named), or the process manager failed
  2  an option was wrong";

pub(super) const REPLAY_ABOUT: &str = "\
Show what 'hydrant run --record FILE' wrote, a line a step, and check that this hydrant does the same again.

A line has the time since hydrant began, the number of the input that it belongs to, connection, job and rank as far as there are \
any, a mark, and what was said. Behind '>' stands what a client said and behind '<' what it was told, each message with its line \
feeds and unusual bytes escaped; behind '.' bytes that were left until more of the message came or a reply was taken; behind '+' \
what hydrant told its core, and behind '!' what the core wanted done.

To check, the inputs are given to a core of this build, and each of its answers is compared with the one that was recorded. The \
last line says what came of it. No process is started and no connection is made.

The file holds what the ranks exchanged, as it was: read it before you pass it on.";

pub(super) const REPLAY_AFTER: &str = "\
Examples:
  hydrant run --record job.rec -n 4 ./a.out
  hydrant replay job.rec
  hydrant replay --rank 2 job.rec
  hydrant replay --quiet job.rec      12 inputs, 34 outputs, all the same

Exit codes:
  0  the core said all that was recorded; with --no-check, the recording is whole
  1  it said something else, and the input and both answers are named; or the file is no recording, or is damaged or cut off, \
and the place is named
  2  an option was wrong";

pub(super) const SERVE_ABOUT: &str = "\
Serve without starting anything: a job whose ranks somebody else starts (--size), the jobs of hosts that run 'hydrant offload' \
(--manage), or, without either, the names that separate runs publish for each other.

With --size N it listens at a port, says 'PMI_PORT=HOST:PORT' on standard output, and serves the N processes that connect with \
this PMI_PORT and with PMI_ID, their rank from 0, in their environment: on a DPU those of its host, in a pod those of a \
Kubernetes job. It ends with 0 when every rank has finalized and left. Of a rank that others started it knows its connection \
only: where that closes before the rank has finalized, the rank is lost, and the job with it. Each rank is let in once. A rank \
that aborts, or is lost, is named on standard error, the connections of all others are closed, and whoever started them has to \
end them. It starts no processes for anybody: MPI_Comm_spawn is refused.

With --manage it is what 'hydrant offload' calls a board: it says 'hydrant serve: managed at HOST:PORT' and waits for hosts to \
say which jobs to serve. Several may do so at the same time; a job goes with its host's connection. It runs until a signal ends \
it.

Otherwise it keeps names: what one run publishes by MPI_Publish_name, another one finds by MPI_Lookup_name, when both are \
told by --universe where this daemon listens. A name is kept until it is withdrawn or the job that published it is over. The \
daemon listens on a Unix socket in the file system, on this machine and for its own user alone: a process of another user is \
turned away. It runs in the foreground until an interrupt (Ctrl-C) or SIGTERM ends it, and then removes its socket. What a \
daemon left behind that was killed is replaced; where one is alive, a second one refuses to start.";

pub(super) const SERVE_AFTER: &str = "\
Examples:
  hydrant serve --size 4 --pmi-port 192.0.2.7:4000 --allow 192.0.2.0/24
  PMI_PORT=192.0.2.7:4000 PMI_ID=0 ./a.out                  rank 0 of it, on any machine
  hydrant serve --size 8 --map 4 --join-timeout 60          four ranks on each of two nodes

  hydrant serve --manage=192.0.2.7:4100 --pmi-port 192.0.2.7:4000 --allow 192.0.2.0/24
  hydrant offload --target 192.0.2.7 -n 4 ./a.out           on any machine of that network

  hydrant serve --universe ~/names &
  hydrant run --universe ~/names -n 1 ./server &
  hydrant run --universe ~/names --lookup-wait 10 -n 4 ./client

In the background:
  It says on standard output that it listens, once it does: 'hydrant serve: listening at PATH' where it keeps names, otherwise \
as above. Wait for that line before anything connects.
  'setsid hydrant serve >serve.log 2>&1 &' outlives the terminal; 'systemd-run --user hydrant serve' has the system look after it.
  SIGTERM to its process, as by 'kill %1' in the shell that started it, ends it.

Exit codes:
  0      every job has ended well; for names, and otherwise where no job was being served, a signal ended it
  N      with --size, what the first job that failed was aborted with
  1      with --size, a rank was lost or has not come within --join-timeout; or it could not begin or not go on
  2      an option was wrong
  128+S  signal S ended it while a job was being served, or with --size while one was waited for";

/// Behind the options of `run`.
pub(super) fn run_after(called: &str) -> String {
    let mut text = String::new();
    section(&mut text, "Examples", &examples(called));
    section(&mut text, "Where ranks run", WHERE);
    section(&mut text, "Environment of a rank", &environment());
    section(&mut text, "Input, output, signals", STREAMS);
    section(&mut text, "Jobs that ranks spawn", SPAWNS);
    section(&mut text, "Exit codes", EXIT_CODES);
    section(&mut text, "Limits", &limits());
    text.truncate(text.trim_end().len());
    text
}

fn section(text: &mut String, title: &str, body: &str) {
    let _ = writeln!(text, "{title}:");
    for line in body.trim_end().lines() {
        let _ = if line.is_empty() { writeln!(text) } else { writeln!(text, "  {line}") };
    }
    let _ = writeln!(text);
}

fn examples(called: &str) -> String {
    let examples = [
        ("-n 4 ./a.out -x 1", "four ranks; '-x 1' is the program's"),
        ("-n 1 ./server : -n 8 ./worker", "one job of two programs, nine ranks"),
        ("-l -n 2 -env OMP_NUM_THREADS 4 ./a.out", "labelled output, a variable for the ranks"),
        ("-n 16 -outfile-pattern out.%r ./a.out", "a file for each rank"),
        ("-hosts a:4,b:4 -n 8 ./a.out", "ranks 0 to 3 on host a, 4 to 7 on b"),
        ("-f hosts.txt -n 8 --dry-run ./a.out", "what would run where"),
        ("-n 4 -bind-to core ./a.out", "a core for each rank"),
        ("-n 4 --pmi-port ./a.out", "PMI over TCP, loopback, any free port"),
        ("--record job.rec -n 4 ./a.out", "for 'hydrant replay job.rec'"),
        ("-configfile job.txt", "a line of job.txt: -n 8 ./worker 'two words'"),
    ];
    let width = examples.iter().map(|(line, _)| line.len()).max().unwrap_or_default();
    let mut text = String::new();
    for (line, what) in examples {
        let _ = writeln!(text, "{called} {line:width$}   {what}");
    }
    text
}

fn environment() -> String {
    let mut text = String::from(
        "Inherited from hydrant, as far as --genvlist, --genvnone and their like let it pass, but for the names that \
         another launcher gives its own ranks:\n",
    );
    let names: Vec<String> = FOREIGN
        .iter()
        .map(|name| if name.ends_with('_') { format!("{name}*") } else { (*name).to_owned() })
        .collect();
    list(&mut text, &names);
    text.push_str("Of these, the switches of the client libraries are inherited all the same:\n");
    list(&mut text, &TUNABLES.map(str::to_owned));
    text.push_str(
        "A variable that is named with --env or --genv passes whatever it is called, but for those that hydrant sets:\n  \
         PMI_RANK, PMI_SIZE, PMI_JOBID               who the rank is\n  \
         PMI_SPAWNED                                 1 where another job asked for it\n  \
         PMI_FD                                      where it is served\n  \
         PMI_PORT, PMI_ID                            the same with --pmi-port\n  \
         MPI_LOCALRANKID, MPI_LOCALNRANKS            its number here, and how many\n  \
         PMI_HOSTNAME                                the name of this machine\n  \
         HYDRANT_KVS                                 where libpmi2 reads values, not with --pmi-port\n  \
         HYDRANT_QUERY                               with --mpi-psets, where process sets are asked for\n\
         and LD_PRELOAD, which with --mpi-psets names libhydrant_mpi.so before whatever stands there. HYDRANT_MPI_LIB in \
         hydrant's own environment says where that library is; otherwise it is beside hydrant, or in the ../lib from there.\n",
    );
    text
}

/// Names, a few to a line.
fn list(text: &mut String, names: &[String]) {
    for line in names.chunks(5) {
        let _ = writeln!(text, "  {}", line.join(", "));
    }
}

const WHERE: &str = "\
Hosts are those of --hosts or --hostfile; otherwise, in a job of Slurm, PBS, LSF or SGE, those that the batch system has set \
aside, with a slot for each task; otherwise there is this machine. A single host that is this machine needs no bootstrap and \
no daemon. Every host that is named gets a daemon, also where no rank of the job comes to run there, and nothing is \
started before all daemons are there. Programs are looked up on each host, in the directory of the same name as here.
Hosts take turns in their order, and in a turn a host takes as many ranks as it has slots, or as --ppn says:
  --map-by slot   it takes them at once (the default); --hosts a:2,b:1 -n 6 gives   a a b a a b
  --map-by node   it takes one each time it comes round;                  it gives   a b a a b a
When every host has had its turn, the next begins, with a note on standard error where a host gets more ranks than slots. \
A host never takes more than its max_slots; where that leaves ranks over, nothing is started.
A program without -n gets as many ranks as all hosts take in one turn: --hosts a:2,b:1 runs 3, with --ppn 1 it runs 2.
Programs follow each other without a break. The ranks of each are numbered in the order in which they were dealt out, or:
  --rank-by slot   host by host: in both cases above       a is 0 1 2 3, b is 4 5
  --rank-by node   one of each host in turn: in both       a is 0 2 4 5, b is 1 3

A file of hosts, with hydra's words and Open MPI's:
  # slots as hydra writes them, and as Open MPI does
  n1:4
  n2    slots=4 max_slots=8
  n[03-16]:4
  login.example.org  user=joe
A host that is named again has the slots of both. A host that has max_slots only has that many slots.
";

const STREAMS: &str = "\
Standard input goes to rank 0. Output is passed on line by line. HUP, INT, QUIT, TERM, USR1 and USR2 are handed to \
every rank of every job, on whichever host; a second interrupt (Ctrl-C) kills them. Files for output are written here.
";

const SPAWNS: &str = "\
What MPI_Comm_spawn asks for runs on this machine, or on the hosts of the run, with the options of the job that it came from, and ends by itself: hydrant \
stays until the last job is over. Either all of a spawn is started or nothing; what fails is said on standard error and the \
spawner gets an errno for each program (125 for one that was not started because of another). Info keys:
wdir     the directory to start in; otherwise the spawner's
path     directories, separated by ':', where the command is looked up before PATH
soft     how many will do, as 1:4,8 or 2:16:2; the most up to maxprocs are started
env      variables, NAME=VALUE, one to a line, beside those of the spawner's program
host     names of the run's hosts, a,b, which take turns as above; without it, free slots are filled in the order of \
the hosts, from where the last rank went, and when there are too few all hosts take turns
file     a file of lines KEY=VALUE with these keys; those that are given directly hold over it
Others are ignored.
";

const EXIT_CODES: &str = "\
0      every rank of every job exited with 0
N      what the first rank that failed exited with; 128+S when signal S ended it
1      a job had to be ended, or hydrant itself could not go on; it says why
2      the command line was wrong, or the hosts that it names; nothing was started
126    a program is there but cannot be run; whatever had been started was ended
127    a program was not found; nothing was started
";

fn limits() -> String {
    let sizes = Limits::for_ranks(4);
    let mut text =
        String::from("--limit NAME=N changes one. What it is otherwise follows from the number of ranks:\n");
    let _ = writeln!(text, "{:<11}{:>10}  what is counted", "NAME", "4 ranks");
    for limit in value::limits() {
        let _ = writeln!(text, "{:<11}{:>10}  {}", limit.name(), sizes.of(limit), counted(limit));
    }
    text
}

fn counted(limit: Limit) -> &'static str {
    match limit {
        Limit::Names => "published names, and names that look-ups wait for",
        Limit::Spawns => "spawns, and with --universe requests about names, at the same time",
        Limit::SpawnBytes => "bytes of one spawn's request",
        Limit::Psets => "process sets beside mpi://WORLD and mpi://SELF",
        Limit::Jobs => "jobs at the same time",
        Limit::Ranks => "ranks of all jobs",
        Limit::Conns => "connections of clients, those included that have not said who they are",
        Limit::Keys => "key-value pairs and attributes of all jobs",
        Limit::KvsBytes => "bytes of key-value pairs of all jobs, each with a header, in steps of four",
        Limit::Groups => "barriers of groups of ranks at the same time",
        Limit::Links => "links to other nodes",
        Limit::Owed => "replies owed to one connection",
    }
}
