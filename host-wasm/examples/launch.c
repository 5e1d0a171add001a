/* MPI launcher on libhydrant_host: serves PMI and PMIx with the built-in server, or with hydrant.wasm.
 *
 *     launch [-p PLUGIN [-c CACHE]] N PROGRAM [ARGUMENT...]
 *
 * starts N ranks on this machine. Each inherits a connection to the server (PMI_FD), and a PMIx client (Open MPI) connects over
 * TCP on loopback. CACHE is a folder for compiled plugins. The exit code is that of the first failure, as hydrant has it: of
 * the rank that failed, 128 + N if signal N killed it or ended the launcher, or of the abort. The ranks are killed when the
 * launcher ends, also if it is killed.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <hydrant_host.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

enum { JOB = 0 };
static const char *CAUSES[] = {"aborted", "left without finalizing", "died", "left before a collective that waits for it"};

static pid_t *processes; /* By rank, 0 for one that has ended. */
static uint32_t size, running;
static int code;
static bool failed;
static hydrant_host *host;

/* Only the first failure is reported. */
#define FAIL(with, ...) \
    (failed ? 0 : (failed = true, code = (with), fprintf(stderr, "launch: " __VA_ARGS__), fputc('\n', stderr)))

static void kill_all(void) {
    for (uint32_t rank = 0; processes && rank < size; rank++)
        if (processes[rank] > 0) kill(processes[rank], SIGKILL);
}

/* Ends the launcher if a call failed: one of the system with this name, or one of the library. */
static int check(int result, const char *call) {
    if (result >= 0) return result;
    FAIL(1, "%s%s%s", call ? call : "", call ? ": " : "", call ? strerror(errno) : hydrant_host_error());
    kill_all();
    while (wait(NULL) > 0) {}
    exit(code);
}

/* Removes files of a PMIx client that has ended: segments of shared memory. */
static void remove_files(const unsigned char *paths, size_t len) {
    char *text = strndup((const char *)paths, len);
    for (char *path = strtok(text, ","); path; path = strtok(NULL, ",")) unlink(path);
    free(text);
}

/* Has the server answer its clients, and carries out what it requires. */
static void carry_out(void) {
    hydrant_output o;
    while (check(hydrant_host_next(host, &o), NULL) == 1) {
        if (o.kind == HYDRANT_OUTPUT_DISCONNECTED && o.closing == HYDRANT_CLOSING_UNSERVED)
            fprintf(stderr, "launch: refused a PMIx client, which runs as a job of one rank\n");
        if (o.kind == HYDRANT_OUTPUT_KILL_RANK) {
            FAIL(o.exit_code, "rank %u aborted itself", o.rank);
            if (processes[o.rank] > 0) kill(processes[o.rank], SIGKILL);
        }
        if (o.kind == HYDRANT_OUTPUT_ABORT_JOB) {
            int why = o.exit == HYDRANT_EXIT_SIGNAL ? HYDRANT_CAUSE_DIED : (int)o.cause;
            FAIL(o.exit_code, "rank %u %s: the other ranks are killed", o.rank, CAUSES[why]);
            kill_all();
        }
        if (o.kind == HYDRANT_OUTPUT_REMOVE_FILES) remove_files(o.bytes, o.len);
        if (o.kind == HYDRANT_OUTPUT_LOG) fwrite(o.bytes, 1, o.len, o.stream == HYDRANT_STREAM_STDERR ? stderr : stdout);
    }
    fflush(stdout);
}

/* Reports processes that have ended. */
static void reap(void) {
    int status;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0; running--) {
        uint32_t rank = 0;
        while (processes[rank] != pid) rank++;
        processes[rank] = 0;
        bool killed = WIFSIGNALED(status);
        int exit = killed ? HYDRANT_EXIT_SIGNAL : HYDRANT_EXIT_CODE;
        int number = killed ? WTERMSIG(status) : WEXITSTATUS(status);
        check(hydrant_host_exited(host, JOB, rank, exit, number), NULL);
        carry_out(); /* The rank may have aborted. */
        if (number) FAIL(hydrant_exit_code(exit, number), "rank %u ended with %s%d", rank, killed ? "signal " : "", number);
    }
}

static void start(uint32_t rank, char **command, const sigset_t *signals) {
    pid_t launcher = getpid();
    char **variables;
    int fd;
    check(hydrant_host_setup_fork(host, JOB, rank, environ, &fd, &variables), NULL);
    check(processes[rank] = fork(), "fork");
    if (processes[rank] == 0) {
        /* A launcher that has ended meanwhile is no parent. */
        if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != launcher) _exit(1);
        fcntl(fd, F_SETFD, 0);
        if (rank > 0) dup2(open("/dev/null", O_RDONLY | O_CLOEXEC), 0);
        sigprocmask(SIG_UNBLOCK, signals, NULL);
        execvpe(command[0], command, variables);
        fprintf(stderr, "launch: cannot run %s: %s\n", command[0], strerror(errno));
        _exit(127);
    }
    close(fd);
    running++;
}

int main(int argc, char **argv) {
    hydrant_settings settings;
    hydrant_job job;
    const char *plugin = NULL, *cache = NULL;
    for (int option; (option = getopt(argc, argv, "+p:c:")) != -1;) {
        if (option == '?') return 2;
        *(option == 'p' ? &plugin : &cache) = optarg;
    }
    size = argc - optind >= 2 ? strtoul(argv[optind], NULL, 10) : 0;
    if (size == 0 || size > 65536) return fputs("usage: launch [-p PLUGIN [-c CACHE]] N PROGRAM [ARGUMENT...]\n", stderr), 2;
    sigset_t signals;
    sigemptyset(&signals);
    for (int n = 0; n < 3; n++) sigaddset(&signals, (int[]){SIGCHLD, SIGINT, SIGTERM}[n]);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    check(hydrant_settings_init(&settings, HYDRANT_ABI_VERSION, size), NULL);
    settings.plugin = plugin;
    settings.cache = cache;
    check(hydrant_host_open(&settings, &host), NULL);
    check(hydrant_job_init(&job, JOB, NULL, size), NULL);
    check(hydrant_host_register_job(host, &job), NULL);
    char mapping[64];
    int len = snprintf(mapping, sizeof mapping, "(vector,(0,1,%u))", size);
    check(hydrant_host_attr(host, JOB, "PMI_process_mapping", strlen("PMI_process_mapping"), mapping, len), NULL);
    check(hydrant_host_listen(host, JOB, 0), NULL);
    processes = calloc(size, sizeof *processes);
    for (uint32_t rank = 0; rank < size; rank++) start(rank, argv + optind + 1, &signals);
    struct pollfd fds[] = {{.fd = hydrant_host_fd(host), .events = POLLIN},
                           {.fd = signalfd(-1, &signals, SFD_CLOEXEC), .events = POLLIN}};
    while (running > 0) {
        check(poll(fds, 2, -1), "poll");
        carry_out();
        struct signalfd_siginfo info;
        if (fds[1].revents == 0 || read(fds[1].fd, &info, sizeof info) != sizeof info) continue;
        if (info.ssi_signo != SIGCHLD) {
            FAIL(128 + (int)info.ssi_signo, "ended by SIG%s", sigabbrev_np(info.ssi_signo));
            kill_all();
        }
        reap();
    }
    hydrant_host_close(host);
    return code;
}
