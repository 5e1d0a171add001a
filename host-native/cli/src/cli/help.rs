//! Help text beyond the options: descriptions, examples, reference sections.

use std::fmt::Write;

use hydrant_core::{Limit, Limits};
use hydrant_driver::{FOREIGN_VARIABLES, TUNABLE_VARIABLES};

use crate::value;

/// Width limit of the help in columns.
pub(super) const WIDTH: usize = 100;

pub(super) const ABOUT: &str = "\
Process manager for parallel (MPI) jobs. hydrant starts the ranks of a job and exchanges their connection data. It serves \
PMI-1, PMI-2 and PMIx, so programs linked with MPICH, Open MPI, Intel MPI or Slurm's libpmi2 run unmodified.";

pub(super) const AFTER: &str = "\
Examples:
  hydrant run -n 4 ./a.out         run four ranks of an MPI program
  hydrant run -n 4 hydrant probe   check and time the PMI exchange of four ranks
  hydrant run --help               list all options of a job
  hydrant serve &                  run a name server for MPI_Publish_name
  hydrant serve --size 4           serve four ranks that another launcher starts
  hydrant offload --target BOARD -n 4 ./a.out   start four ranks here, served by a board
  hydrant replay FILE              show a recording
  hydrant ps                       list running jobs
  hydrant status PID               show what the ranks of a running job do
  hydrant doctor ./a.out           look for what keeps jobs from running
  hydrant help probe               describe the probe

Without a command, hydrant is 'hydrant run': hydrant -n 4 ./a.out. The same holds for the program names mpiexec and mpirun (links).";

pub(super) const PS_ABOUT: &str = "\
List the running jobs of this user on this machine: those of 'hydrant run' and 'hydrant offload', \
and of 'hydrant serve' with --size or --manage. PID is the process id of that \
command, by which the other commands name the job. TIME is the time since its start. RANKS counts all ranks of all jobs, and the running \
ones if some have ended, or the connected ones of a server; JOBS is more than 1 if ranks have spawned jobs.";

pub(super) const PS_AFTER: &str = "\
Exit codes:
  0  the list was printed, also an empty one
  1  the list of sockets cannot be read
  2  invalid option";

pub(super) const STATUS_ABOUT: &str = "\
Show each rank of a running job: its host, process id, state, and what it waits for. Ranks that others wait for are named first.

States: 'not connected' is a rank of 'hydrant serve' that another launcher has yet to start, 'started' is a process that has not initialized PMI or PMIx, 'initialized' is between init and finalize, 'finalized' is after \
it. 'exited N' and the name of a signal are the end of the process. 'running' means that no more is known: the PMI server is in a \
sandbox or on a board, or a host did not answer within 2 s.

WAITS FOR is what the PMI server has not answered yet: a fence with its number in the job and the time since the first rank of the \
same host arrived, data of another rank, a name, a spawn. A rank that waits inside the MPI library, for a message for example, does \
not appear as waiting.";

pub(super) const STATUS_AFTER: &str = "\
Examples:
  hydrant status 4711
  hydrant status 47             a unique beginning is enough
  hydrant status --watch=5 4711
  hydrant status --json 4711

Exit codes:
  0  the job was shown; with --watch, it has ended
  1  there is no such job, or it does not answer
  2  invalid option";

pub(super) const KILL_ABOUT: &str = "\
Send a signal to running jobs, as if it were sent to their 'hydrant run'. HUP, INT, QUIT, TERM, USR1 and USR2 go to all ranks on all \
hosts. TSTP stops all ranks and CONT lets them go on. KILL kills hydrant, and with it all ranks. \
'hydrant serve' ends on HUP, INT, QUIT, TERM and KILL.";

pub(super) const KILL_AFTER: &str = "\
Examples:
  hydrant kill 4711
  hydrant kill -s USR1 4711 4822

Exit codes:
  0  all jobs have got the signal
  1  a job was not found, or does not answer
  2  invalid option";

pub(super) const ATTACH_ABOUT: &str = "\
Follow the output of a running job from now on, each line with its rank in front. Output still goes where it went before. Ctrl-C ends \
this command, not the job. If the reader of this command is slow, output is left out here, with a notice; the job does not wait. \
At most four commands follow a job at the same time.";

pub(super) const ATTACH_AFTER: &str = "\
Exit codes:
  N  exit code of the job
  0  the end of the connection told no exit code
  1  there is no such job, or it does not answer
  2  invalid option";

pub(super) const DEBUG_ABOUT: &str = "\
Run a command with the process id of a rank, by default gdb. If the rank runs on another host, the command runs \
there, with a terminal if this command has one: by ssh, srun or the command of '--bootstrap exec', as the run started its daemons. \
With qrsh there is no such way, and the host, the process id and the command are printed.

Debuggers that know MPI attach to 'hydrant run' itself: it has the table of processes of the MPIR interface.";

pub(super) const DEBUG_AFTER: &str = "\
Examples:
  hydrant debug --rank 2 4711
  hydrant debug --rank 2 4711 -- gdb -batch -ex bt -p {}
  hydrant debug --rank 0 --spawned 1 4711 -- strace -p {}

Exit codes:
  those of the command
  1  there is no such job or rank, there is no way to its host, or the command cannot be run
  2  invalid option";

pub(super) const REPLACE_ABOUT: &str = "\
Put another PMI server in the place of a running job's, on all its hosts: one in a plugin, or the one built into hydrant. The new one goes on \
with the state of the old one, so ranks notice only that a reply takes longer. If the new one cannot be loaded, or refuses \
the state, the old one goes on, and this command tells why. Recordings go on. Ranks that have read values from shared memory (HYDRANT_KVS) \
ask for them from then on. Servers on boards without --spare, and those of 'hydrant serve' and 'hydrant offload', cannot be replaced.";

pub(super) const REPLACE_AFTER: &str = "\
Examples:
  hydrant replace --sandbox 4711
  hydrant replace --sandbox=./new.wasm 4711
  hydrant replace --built-in 4711

Exit codes:
  0  the servers of all hosts were replaced
  1  there is no such job, it does not answer, or a host has kept its server
  2  invalid option";

pub(super) const GROW_ABOUT: &str = "\
Have hosts join a running job that was started with --elastic. Their daemons are started as those of the job's other hosts. When this \
command ends, all of them have joined: programs that ranks spawn run there at once. Hosts that cannot join are named, the others stay.";

pub(super) const GROW_AFTER: &str = "\
Examples:
  hydrant run --hosts a:4,b:4 --elastic 4 ./a.out
  hydrant grow --hosts c:4,d:4 4711

Exit codes:
  0  all hosts have joined
  1  there is no such job, it does not answer, or a host has not joined
  2  invalid option";

pub(super) const SHRINK_ABOUT: &str = "\
Have hosts leave a running job that was started with --elastic. When this command ends, their daemons have ended, and nothing of the job \
is left there. A host with ranks is refused with their names. --force ends these ranks as the end of a job does. In a job that goes on \
after failures (-disable-auto-cleanup, --with-ft ulfm) they are no failures. In other jobs a rank that exits with 0 upon SIGTERM is \
none either, and one that dies ends its job.";

pub(super) const SHRINK_AFTER: &str = "\
Examples:
  hydrant shrink --hosts c,d 4711
  hydrant shrink --hosts c --force 4711

Exit codes:
  0  all hosts have left
  1  there is no such job, it does not answer, or a host has not left
  2  invalid option";

pub(super) const RUN_ABOUT: &str = "\
Start a job and serve it until its last rank has exited.

Programs separated by ':' form one job. Ranks are numbered across programs in the order of the command line. Program options precede \
the name of each program: those listed below as program options. Job options may precede any program and apply to all, so two \
programs may not have different ones. All arguments \
after the name of a program, up to the next ':', belong to the program. Names without a slash are searched in PATH, then in the working directory. Long \
options may be written with one dash, as in mpiexec (-genv, -wdir), and values may follow '='. If an option is repeated, the \
last one is used. Options of hydra, Open MPI and srun with an equivalent are accepted, for example -np4, -x, --mca, \
--oversubscribe, --ntasks and --label; at a terminal, a line tells how they were read.";

pub(super) const OFFLOAD_ABOUT: &str = "\
Start a job on this machine and let a board serve it: a microcontroller with hydrant's firmware, or a DPU. The ranks find \
PMI_PORT and PMI_ID in their environment and connect to the board. This machine starts the ranks, forwards their output, \
signals and standard input, and reports their exits to the board. Exit codes and failure reports are those of 'hydrant run'.

Ranks may spawn (MPI_Comm_spawn) if the board is 'hydrant serve --manage', or firmware with its feature nodes: this machine \
starts the processes, and the board serves them. Other firmware refuses spawns. With -v, the capacities of the board are \
printed.";

pub(super) const OFFLOAD_AFTER: &str = "\
Examples:
  hydrant offload --target 192.0.2.7 -n 4 ./a.out                       a board in the network
  hydrant offload --target 192.0.2.7:4100 --summary -v -n 16 ./a.out    print capacities and counters
  hydrant offload --target localhost:5000 --pmi-ports 5001-5016 -n 16 ./a.out    a board behind forwarded ports

Exit codes:
  those of 'hydrant run', and 1 if the board cannot be reached, does not respond, or refuses the job";

pub(super) const PROBE_ABOUT: &str = "\
Rank program that checks and times the PMI exchange. Each rank initializes PMI, puts its business card (host, process id) and some \
values, enters a fence, gets the values of all ranks and compares them byte by byte. Rank 0 prints a table of the ranks with \
the time of each step in microseconds.

The probe finds its process manager like any rank: by PMI_FD, or by PMI_PORT and PMI_ID, with --pmix by \
PMIX_SERVER_URI41, PMIX_NAMESPACE and PMIX_RANK. Without a process manager it is a singleton: it prints a notice and exchanges \
nothing.";

pub(super) const PROBE_AFTER: &str = "\
Examples:
  hydrant run -n 4 hydrant probe
  hydrant run -n 64 hydrant probe --keys 8 --bytes 900 --rounds 10
  hydrant run -n 4 hydrant probe --pmix
  mpiexec.hydra -n 4 hydrant probe --pmi 1

Exit codes:
  0  all values were correct
  1  a value was wrong or missing (rank and key are printed), or the process manager failed
  2  invalid option";

pub(super) const REPLAY_ABOUT: &str = "\
Show a recording of 'hydrant run --record FILE', one step per line, and check that this build gives the same responses.

A line has the time since the start, the number of the input, the connection, job and rank if there are any, a mark, and the \
message. Mark '>' is a message from a client and '<' a message to a client, with line feeds and unusual bytes escaped. '.' \
counts bytes that were kept until the rest of a message arrived or a reply was sent. '+' is an input from hydrant to its PMI \
server, '!' an action that the server requested.

For the check, the recorded inputs are given to the PMI server of this build, and its outputs are compared with the recorded \
ones. The last line has the result. No processes are started and no connections are opened.

With --summary, --trace or --html the recording is not checked. It is shown as a timeline: when each rank started, \
initialized, put, waited in a fence, got and finalized, and which rank arrived last. Of a run on several hosts, give FILE and \
FILE.HOST of each host. Their clocks are tied by the messages between the hosts, and the remaining error is printed.

A recording contains everything that the ranks exchanged. Review it before you share it.";

pub(super) const REPLAY_AFTER: &str = "\
Examples:
  hydrant run --record job.rec -n 4 ./a.out
  hydrant replay job.rec
  hydrant replay --rank 2 job.rec
  hydrant replay --quiet job.rec      12 inputs, 34 outputs, all the same
  hydrant replay --summary job.rec    where the start-up time went
  hydrant replay --html job.html job.rec job.rec.*
  hydrant replay --trace job.json job.rec

Exit codes:
  0  all outputs are the same; with --no-check, --summary, --trace and --html, the recording is complete
  1  an output differs (the input and both outputs are printed), or the file is not a recording, damaged or truncated (the \
position is printed)
  2  invalid option";

pub(super) const SERVE_ABOUT: &str = "\
Serve PMI without starting processes: one job whose ranks another launcher starts (--size), or the jobs of hosts that run \
'hydrant offload' or 'hydrant run --offload' (--manage). Without either option, run a name server for MPI_Publish_name of \
separate runs.

With --size it exits with 0 when all ranks have finalized and disconnected. A rank whose connection closes before it has \
finalized is lost and fails the job. Each rank may connect once. If a rank aborts or is lost, the server names it on standard \
error and closes all connections; the other launcher has to kill the processes. MPI_Comm_spawn is refused.

With --manage several hosts may connect at the same time. A job ends when its host disconnects. The server runs until a \
signal terminates it.

A name server stores the names of runs that select it with --name-server, until they are unpublished or their job ends. Jobs of \
these runs may also connect to each other by job id (PMI2_Job_Connect), and then read each other's key-value spaces. It accepts \
processes of the same user only, and removes its socket on SIGINT (Ctrl-C) or SIGTERM. The socket of a killed server is \
replaced, that of a running one is an error.";

pub(super) const SERVE_AFTER: &str = "\
Examples:
  hydrant serve --size 4 --pmi-port 192.0.2.7:4000 --allow 192.0.2.0/24
  PMI_PORT=192.0.2.7:4000 PMI_ID=0 ./a.out                  rank 0, on any machine
  hydrant serve --size 8 --map 4 --join-timeout 60          four ranks on each of two nodes

  hydrant serve --manage=192.0.2.7:4100 --secret-file secret --pmi-port 192.0.2.7:4000 --allow 192.0.2.0/24
  hydrant offload --target 192.0.2.7 --secret-file secret -n 4 ./a.out      on any machine of that network
  hydrant run -hosts a,b --offload dpu-%h --offload-secret secret ./a.out   with a board dpu-a of host a, dpu-b of host b

  hydrant serve --name-server ~/names &
  hydrant run --name-server ~/names -n 1 ./server &
  hydrant run --name-server ~/names --lookup-wait 10 -n 4 ./client

Background operation:
  The server prints a line on standard output when it accepts connections: 'PMI_PORT=HOST:PORT' (--size), 'hydrant serve: \
managed at HOST:PORT' (--manage) or 'hydrant serve: listening at PATH'. Wait for this line before starting clients.
  'setsid hydrant serve >serve.log 2>&1 &' survives the terminal; 'systemd-run --user hydrant serve' runs under systemd.
  SIGTERM terminates the server, for example 'kill %1' in the shell that started it.

Exit codes:
  0      all jobs succeeded; for a name server, or without an active job, a signal terminated it
  N      with --size, the abort code of the first job that failed
  1      with --size, a rank was lost or did not connect within --join-timeout; or the server could not start or continue
  2      invalid option
  128+S  signal S terminated it during a job, or with --size while it waited for one";

pub(super) const UP_ABOUT: &str = "\
Start a fleet: a head and a daemon on each host, which stay and take jobs of this user ('hydrant run --on'). The command returns \
when all hosts are there. 'hydrant down' ends the fleet, 'hydrant ps' lists it.

Without hosts the fleet is this machine, with a slot for each processor; -n gives another number. Ranks of jobs share the slots. A \
job that finds too few waits behind those that came before, and one with more ranks than the fleet has slots is refused. Ranks \
that are bound get processors that no other job is bound to.";

pub(super) const UP_AFTER: &str = "\
Examples:
  hydrant up                                                    a fleet 'default' of this machine
  hydrant up --name big -hosts a:16,b:16                        two hosts, by ssh
  hydrant run --on big -n 8 ./a.out                             a job in it
  hydrant up --foreground -n 4                                  for a service manager
  salloc -N 4 --ntasks-per-node 8 hydrant up --foreground       the hosts of an allocation

Exit codes:
  0      the fleet is ready; with --foreground, it was ended by 'hydrant down'
  1      it could not be started
  2      invalid option
  128+S  with --foreground: signal S ended it";

pub(super) const DOWN_ABOUT: &str = "\
End a fleet of this user. Its jobs get SIGTERM, and SIGKILL after their --kill-grace. Jobs that wait for room are refused. The \
command returns when the fleet has ended.";

pub(super) const DOWN_AFTER: &str = "\
Examples:
  hydrant down          the fleet 'default'
  hydrant down big

Exit codes:
  0  the fleet has ended
  1  there is none of that name, or it is another user's
  2  invalid option";

pub(super) const JOIN_ABOUT: &str = "\
Make the machine, the container or the pod that this command runs in a host of a run or a fleet that waits for it: 'hydrant run \
--bootstrap join'. With --elastic there it may also come later. No ssh and no other way from one host to another is needed, but connections of this host to the run, and \
between hosts. They are encrypted and authenticated with the secret.

The daemon of this host starts and serves ranks, as on a host that is reached by ssh: their output, signals and failures go to \
the run. With a program after '--', that is what the ranks of this host run. The command ends with the run.";

pub(super) const JOIN_AFTER: &str = "\
Examples:
  hydrant run --bootstrap join --expect 4 --join-port 4200 --secret-file secret -n 16 ./a.out
  hydrant join head:4200 --secret-file secret -n 4               on each of four hosts; the run is on 'head'

  hydrant run --bootstrap join --expect 4 --join-port 4200 --secret-file secret
  hydrant join head:4200 --secret-file secret -n 4 -- ./a.out    each host brings the program

Exit codes:
  0      no rank of this host failed
  N      exit code of the first rank of this host that failed; 128+S if signal S killed it
  1      this host cannot join, the run is lost, or the program cannot be started
  2      invalid option
  128+S  signal S ended this command before the run began";

pub(super) const DOCTOR_ABOUT: &str = "\
Look for what keeps jobs from running: resource limits, /dev/shm, processors, hwloc, ptrace scope, loopback, the machine's \
name, ports, variables of other launchers, the resource manager, ssh keys and known hosts of the given hosts, and the MPI \
library that a program needs. Each line has a level (ok, note, problem), a topic and a result. A hint line has a remedy.

Nothing is changed, no process is started and no other machine is contacted. The check takes at most some seconds.";

pub(super) const DOCTOR_AFTER: &str = "\
Examples:
  hydrant doctor
  hydrant doctor ./a.out
  hydrant doctor -hosts a:4,b:4 ./a.out

Exit codes:
  0  no problems; notes are restrictions that some jobs meet
  1  a problem was found
  2  invalid option";

pub(super) const COMPLETIONS_ABOUT: &str = "\
Print a script that completes commands, options, their values and the ids of running jobs in a shell, for hydrant and for a link named \
hydrant-mpiexec. Behind the name of a program, file names are completed.";

pub(super) const COMPLETIONS_AFTER: &str = "\
Examples:
  hydrant completions bash >~/.local/share/bash-completion/completions/hydrant
  hydrant completions zsh >~/.zfunc/_hydrant            a directory of fpath
  hydrant completions fish >~/.config/fish/completions/hydrant.fish";

pub(super) const MAN_ABOUT: &str = "\
Print the manual page of a command in the format of man(7). Packages install these pages; 'cargo install' does not.";

pub(super) const MAN_AFTER: &str = "\
Examples:
  hydrant man run | man -l -                            show hydrant-run(1)
  hydrant man >~/.local/share/man/man1/hydrant.1";

/// Sections after the options of `run`.
pub(super) fn run_after(called: &str) -> String {
    let mut text = String::new();
    section(&mut text, "Examples", &examples(called));
    section(&mut text, "Hosts and mapping", MAPPING);
    section(&mut text, "Binding", BINDING);
    section(&mut text, "Environment of ranks", &environment());
    section(&mut text, "Input, output, signals", STREAMS);
    section(&mut text, "Spawned jobs", SPAWNED_JOBS);
    section(&mut text, "Exit codes", EXIT_CODES);
    section(&mut text, "Limits", &limits());
    text.truncate(text.trim_end().len());
    text
}

const BINDING: &str = "\
Each host binds its own ranks, within the processors that hydrant or its daemon may use (cgroup, affinity mask).

  -bind-to core                    one core a rank, with its hardware threads
  -bind-to core -map-by socket     sockets take turns: rank 1 is on the second socket
  -cpus-per-rank 4                 four cores a rank, for ranks with threads
  -bind-to socket -membind local   a socket and its memory
  -bind-to user:0-3,4-7            these processors

When all objects are in use, ranks start again at the first, and a note names ranks that share processors this way.";

fn section(text: &mut String, title: &str, body: &str) {
    let _ = writeln!(text, "{title}:");
    for line in body.trim_end().lines() {
        let _ = if line.is_empty() { writeln!(text) } else { writeln!(text, "  {line}") };
    }
    let _ = writeln!(text);
}

fn examples(called: &str) -> String {
    let examples = [
        ("-n 4 ./a.out -x 1", "four ranks; '-x 1' belongs to the program"),
        ("-n 1 ./server : -n 8 ./worker", "one job of two programs, nine ranks"),
        ("-l -n 2 -env OMP_NUM_THREADS 4 ./a.out", "prefixed output, an environment variable"),
        ("-n 16 -outfile-pattern out.%r ./a.out", "one output file per rank"),
        ("-timeout 60 -exit-report -n 4 ./a.out", "at most a minute, and the exit code of each rank"),
        ("-hosts a:4,b:4 -n 8 ./a.out", "ranks 0 to 3 on host a, 4 to 7 on b"),
        ("-f hosts.txt -n 8 --dry-run ./a.out", "print the mapping without starting anything"),
        ("-n 4 -bind-to core ./a.out", "one core per rank"),
        ("-n 4 --pmi-port ./a.out", "PMI over TCP on loopback, at a free port"),
        ("--record job.rec -n 4 ./a.out", "record for 'hydrant replay job.rec'"),
        ("-configfile job.txt", "programs from job.txt, a line is: -n 8 ./worker 'two words'"),
    ];
    let width = examples.iter().map(|(line, _)| line.len()).max().unwrap_or_default();
    let mut text = String::new();
    for (line, description) in examples {
        let _ = writeln!(text, "{called} {line:width$}   {description}");
    }
    text
}

fn environment() -> String {
    let mut text = String::from(
        "Ranks inherit hydrant's environment, as selected with --genvlist, --genvnone and similar options. Variables that \
         other launchers set for their ranks are not inherited:\n",
    );
    let names: Vec<String> = FOREIGN_VARIABLES
        .iter()
        .map(|name| if name.ends_with('_') { format!("{name}*") } else { (*name).to_owned() })
        .collect();
    list(&mut text, &names);
    text.push_str("Exceptions are the settings of client libraries, which are inherited:\n");
    list(&mut text, &TUNABLE_VARIABLES.map(str::to_owned));
    text.push_str(
        "Variables assigned with --env or --genv are always passed on, except those that hydrant sets:\n  \
         PMI_RANK, PMI_SIZE, PMI_JOBID               rank, number of ranks, job id\n  \
         PMI_SPAWNED                                 1 in a spawned job\n  \
         PMI_FD                                      descriptor of the PMI connection\n  \
         PMI_PORT, PMI_ID                            with --pmi-port: address of the PMI server, rank\n  \
         MPI_LOCALRANKID, MPI_LOCALNRANKS            number of the rank on this host, ranks on this host\n  \
         PMI_HOSTNAME                                name of this host\n  \
         PMIX_NAMESPACE, PMIX_RANK, PMIX_SERVER_URI* job id, rank and address for PMIx clients\n  \
         HYDRANT_KVS                                 shared memory with values for libpmi2, not with --pmi-port\n  \
         HYDRANT_GUARDIAN                            mark of the processes that end with a killed launcher\n  \
         HYDRANT_QUERY                               with --mpi-psets: address for queries of process sets\n\
         With --mpi-psets, libhydrant_mpi.so is the first entry of LD_PRELOAD. It is searched in the directory of hydrant and \
         in ../lib from there. HYDRANT_MPI_LIB in hydrant's environment overrides the path.\n\
         Ranks also get PMIX_GDS_MODULE, PMIX_SECURITY_MODE, PMIX_BFROP_BUFFER_TYPE and PMIX_VERSION, JSM_JSRUN_PORT for Open MPI 4, \
         and unless they are assigned PMIX_HOSTNAME, the name of this host, and MPIR_CVAR_PMI_VERSION=1 for MPICH.\n",
    );
    text
}

/// Adds names, five per line.
fn list(text: &mut String, names: &[String]) {
    for line in names.chunks(5) {
        let _ = writeln!(text, "  {}", line.join(", "));
    }
}

const MAPPING: &str = "\
The hosts are those of --hosts or --hostfile, or with --bootstrap join those that join. Without these options they are those of a file that HYDRA_HOST_FILE, \
I_MPI_HYDRA_HOST_FILE, PRTE_MCA_prte_default_hostfile or OMPI_MCA_orte_default_hostfile names, then the allocated hosts of a Slurm, PBS, \
LSF or SGE job, with one slot per task, and otherwise this machine. If this machine is the only host, no daemon is started. Otherwise \
each host with ranks gets a daemon, and no rank is started before all of these have connected. Other hosts get one when a spawn needs \
them. Programs are searched on each host, in the directory with the same name as the current one.
Hosts receive ranks in passes over the list, as many per pass as they have slots or as --ppn gives:
  --map-by slot   all ranks of a pass at once (default); --hosts a:2,b:1 -n 6 gives   a a b a a b
  --map-by node   one rank per host in turn;             the same options give        a b a a b a
  --map-by block  as many for each host as by node, numbered host by host;            a a a a b b
After a pass over all hosts the next pass starts. A host that receives more ranks than slots is reported on standard error. A \
host never receives more than its max_slots. If ranks remain, the job is not started.
A program without -n gets as many ranks as the hosts receive in one pass: 3 with --hosts a:2,b:1, and 2 with --ppn 1. \
Without hosts --ppn holds for this machine.
The mapping continues across programs. A program with --host gets the free slots of its hosts, and passes over them if there are too \
few: -n 1 -host a ./x : -n 2 -host b ./y has one rank on a and two on b. Beside it, programs without --host get the free slots \
of all hosts. Ranks of a program are numbered in mapping order, or:
  --rank-by slot   host by host; in all examples            a is 0 1 2 3, b is 4 5
  --rank-by node   one rank of each host in turn; in all    a is 0 2 4 5, b is 1 3

A host file, with the notation of hydra and of Open MPI:
  # slots in hydra's notation, then in Open MPI's
  n1:4
  n2    slots=4 max_slots=8
  n[03-16]:4
  joe@login.example.org
A host that is listed twice has the sum of the slots. If only max_slots is given, it is the number of slots too.
";

const STREAMS: &str = "\
Standard input goes to rank 0. Output is forwarded line by line, and files of it are written on this machine. The signals HUP, INT, \
QUIT, TERM, USR1 and USR2 are forwarded to all ranks of all jobs. A second SIGINT (Ctrl-C) kills them.
";

const SPAWNED_JOBS: &str = "\
Processes of MPI_Comm_spawn run on this machine, or on the hosts of the run, with the options of the job that spawned them. \
hydrant exits after the last job. A spawn starts all of its processes or none. Failures are reported on standard error, and \
the spawning rank receives an errno for each program (125 for a program that was not started because another one failed). \
Info keys:
wdir     working directory; default: that of the spawning program
path     directories, separated by ':', to search for the command before PATH
soft     acceptable numbers of processes, as 1:4,8 or 2:16:2; the largest up to maxprocs is used
env      variables, NAME=VALUE, one per line, added to those of the spawning program
host     hosts of the run, a,b, which receive ranks as those of --host; default: free slots in host order, starting after \
the last rank, or passes over all hosts if there are too few
hostfile the same, from a file as that of --hostfile; it may have slots
add-host hosts that join the run before ranks are placed, as those of 'hydrant grow', unless they are there; see --elastic
add-hostfile the same, from a file
file     file with lines KEY=VALUE of these keys; keys in the call override it
Other keys are ignored.
";

const EXIT_CODES: &str = "\
0      all ranks of all jobs exited with 0
N      exit code of the first rank that failed; 128+S if signal S killed it
N      exit code of an abort, also 0; 1 if it has none
1      hydrant failed; the reason is printed
2      invalid command line or hosts; nothing was started
124    --timeout ended the run
126    a program cannot be executed; ranks already started were killed
127    a program was not found; nothing was started
";

fn limits() -> String {
    let sizes = Limits::for_ranks(4);
    let mut text = String::from(
        "--limit NAME=N sets the capacity of a table. Defaults depend on the number of ranks:\n",
    );
    let _ = writeln!(text, "{:<12}{:>10}  counts", "NAME", "4 ranks");
    for limit in value::limits() {
        let _ = writeln!(text, "{:<12}{:>10}  {}", limit.name(), sizes.of(limit), description(limit));
    }
    text
}

fn description(limit: Limit) -> &'static str {
    match limit {
        Limit::Names => "published names and waiting look-ups",
        Limit::Spawns => "concurrent spawns and, with --name-server, name requests",
        Limit::SpawnBytes => "bytes of one spawn request",
        Limit::Psets => "process sets besides mpi://WORLD and mpi://SELF",
        Limit::Jobs => "concurrent jobs",
        Limit::Ranks => "ranks of all jobs",
        Limit::Conns => "client connections, including those still in handshake",
        Limit::Keys => "key-value pairs and attributes of all jobs",
        Limit::KvsBytes => "bytes of the key-value pairs of all jobs, with headers, in units of four",
        Limit::Groups => "concurrent barriers of process groups",
        Limit::Links => "links to other nodes",
        Limit::CommitBytes => "bytes that a PMIx rank puts for one scope; 0 for no PMIx",
        Limit::Owed => "pending replies of one connection",
    }
}
