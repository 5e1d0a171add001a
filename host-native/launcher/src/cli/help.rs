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
  hydrant help probe               what the probe measures

Called mpiexec or mpirun (by a link of that name), hydrant is 'hydrant run'.";

pub(super) const RUN_ABOUT: &str = "\
Start a job and serve it until its last rank has ended.

Programs separated by a lone ':' form one job; ranks are numbered through it in the order of the command line. Everything \
behind a program's name, up to a lone ':', is handed to the program. A program without a slash in its name is looked up in \
PATH. Each long option may be written with one dash, as mpiexec does (-genv, -wdir), and a value may follow '='. Given \
twice, the later one of an option holds.";

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

pub(super) const SERVE_ABOUT: &str = "\
Keep the names that separate runs publish for each other: what one run publishes by MPI_Publish_name, another one finds by \
MPI_Lookup_name, when both are told by --universe where this daemon listens. A name is kept until it is withdrawn or the job \
that published it is over.

The daemon listens on a Unix socket in the file system, on this machine and for its own user alone: a process of another user \
is turned away. It runs in the foreground until an interrupt (Ctrl-C) or SIGTERM ends it, and then removes its socket. What a \
daemon left behind that was killed is replaced; where one is alive, a second one refuses to start.";

pub(super) const SERVE_AFTER: &str = "\
Examples:
  hydrant serve --universe ~/names &
  hydrant run --universe ~/names -n 1 ./server &
  hydrant run --universe ~/names --lookup-wait 10 -n 4 ./client

In the background:
  It says 'hydrant serve: listening at PATH' on standard output once it does; wait for that line before the first run starts.
  'setsid hydrant serve >serve.log 2>&1 &' outlives the terminal; 'systemd-run --user hydrant serve' has the system look after it.
  SIGTERM to its process, as by 'kill %1' in the shell that started it, ends it.

Exit codes:
  0  a signal ended it
  1  it could not begin, or not go on; it says why
  2  an option was wrong";

/// Behind the options of `run`.
pub(super) fn run_after(called: &str) -> String {
    let mut text = String::new();
    section(&mut text, "Examples", &examples(called));
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
        ("-n 4 -bind-to core ./a.out", "a core for each rank"),
        ("-n 4 --pmi-port ./a.out", "PMI over TCP, loopback, any free port"),
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

const STREAMS: &str = "\
Standard input goes to rank 0. Output is passed on line by line. HUP, INT, QUIT, TERM, USR1 and USR2 are handed to \
every rank of every job; a second interrupt (Ctrl-C) kills them.
";

const SPAWNS: &str = "\
What MPI_Comm_spawn asks for runs on this machine, with the options of the job that it came from, and ends by itself: hydrant \
stays until the last job is over. Either all of a spawn is started or nothing; what fails is said on standard error and the \
spawner gets an errno for each program (125 for one that was not started because of another). Info keys:
wdir     the directory to start in; otherwise the spawner's
path     directories, separated by ':', where the command is looked up before PATH
soft     how many will do, as 1:4,8 or 2:16:2; the most up to maxprocs are started
env      variables, NAME=VALUE, one to a line, beside those of the spawner's program
host     names of this machine only
file     a file of lines KEY=VALUE with these keys; those that are given directly hold over it
Others are ignored.
";

const EXIT_CODES: &str = "\
0      every rank of every job exited with 0
N      what the first rank that failed exited with; 128+S when signal S ended it
1      a job had to be ended, or hydrant itself could not go on; it says why
2      the command line was wrong; nothing was started
126    a program is there but cannot be run; nothing was started
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
        Limit::Owed => "replies owed to one connection",
    }
}
