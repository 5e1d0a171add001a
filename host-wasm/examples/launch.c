/* MPI launcher on libhydrant_host: serves PMI and PMIx with the built-in server, or with hydrant.wasm.
 *
 *     launch [-p PLUGIN [-c CACHE]] N PROGRAM [ARGUMENT...]
 *
 * starts N ranks on this machine and serves each over a socket of its own (PMI_FD), or over TCP on loopback if it is a PMIx
 * client (Open MPI). CACHE is a folder for compiled plugins. The exit code is that of the rank that failed first, 128 + N if
 * signal N killed it or ended the launcher, and 1 if the job was aborted for another reason. The ranks are killed when the
 * launcher ends, also if it is killed.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <hydrant_host.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { JOB = 0, LAST_READS = 16 };
static const char *CAUSES[] = {"aborted", "left without finalizing", "died", "left before a collective that waits for it"};

/* The connections: those of PMI_FD have the numbers of the ranks, those of PMIx clients follow. A part of a reply that the
 * socket did not take is kept. */
static struct conn { int fd; unsigned char *unsent; size_t len; } *conns;
/* The processes, the connection that each has joined with, and the files that it leaves behind. */
static struct rank { pid_t pid; uint32_t conn; char *files; } *ranks;
static uint32_t size, running;
static int code;
static char name[64];
static hydrant_host *host;
static hydrant_port *port;

/* Only the first failure is reported. */
#define FAIL(with, ...) (code ? 0 : (code = (with), fprintf(stderr, "launch: " __VA_ARGS__), fputc('\n', stderr)))

static void kill_all(void) {
    for (uint32_t rank = 0; ranks && rank < size; rank++)
        if (ranks[rank].pid > 0) kill(ranks[rank].pid, SIGKILL);
}

/* Ends the launcher if a call failed: one of the system with this name, or one of the library. */
static int check(int result, const char *call) {
    if (result >= 0) return result;
    FAIL(1, "%s%s%s", call ? call : "", call ? ": " : "", call ? strerror(errno) : hydrant_host_error());
    kill_all();
    while (wait(NULL) > 0) {}
    exit(code);
}

static void close_conn(uint32_t conn) {
    if (conns[conn].fd < 0) return;
    close(conns[conn].fd);
    free(conns[conn].unsent);
    conns[conn] = (struct conn){.fd = -1};
    check(hydrant_host_closed(host, conn), NULL);
}

/* Sends what the socket takes, and keeps the rest until the socket has room. */
static void reply(uint32_t conn, const unsigned char *bytes, size_t len) {
    struct conn *to = &conns[conn];
    if (to->fd < 0) return;
    ssize_t sent = send(to->fd, bytes, len, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0) sent = errno == EAGAIN || errno == EINTR ? 0 : len; /* The next read reports a closed connection. */
    unsigned char *sending = to->unsent;
    to->unsent = NULL;
    if ((to->len = len - sent) > 0) {
        to->unsent = memcpy(malloc(to->len), bytes + sent, to->len);
        if (!sending) check(hydrant_host_blocked(host, conn), NULL);
    } else if (sending) {
        check(hydrant_host_writable(host, conn), NULL);
    }
    free(sending);
}

/* Removes the files of a PMIx client whose process has ended: segments of shared memory. */
static void remove_files(struct rank *rank) {
    if (rank->pid > 0 || !rank->files) return;
    for (char *file = strtok(rank->files, ","); file; file = strtok(NULL, ",")) unlink(file);
    free(rank->files);
    rank->files = NULL;
}

static void carry_out(void) {
    hydrant_output o;
    while (check(hydrant_host_next(host, &o), NULL) == 1) {
        struct rank *rank = &ranks[o.rank];
        if (o.kind == HYDRANT_OUTPUT_BYTES) reply(o.conn, o.bytes, o.len);
        if (o.kind == HYDRANT_OUTPUT_CLOSE) {
            if (o.closing == HYDRANT_CLOSING_UNSERVED)
                fprintf(stderr, "launch: refused a PMIx client, which runs as a job of one rank\n");
            close_conn(o.conn);
        }
        if (o.kind == HYDRANT_OUTPUT_JOINED) rank->conn = o.conn;
        if (o.kind == HYDRANT_OUTPUT_KILL_RANK && rank->pid > 0) kill(rank->pid, SIGKILL);
        if (o.kind == HYDRANT_OUTPUT_ABORT_JOB) {
            FAIL(o.code_given && o.code ? o.code : 1, "rank %u %s: the other ranks are killed", o.rank, CAUSES[o.cause]);
            kill_all();
        }
        if (o.kind == HYDRANT_OUTPUT_REMOVE_FILES) {
            char *files = rank->files;
            check(asprintf(&rank->files, "%s%s%.*s", files ? files : "", files ? "," : "", (int)o.len, o.bytes), "asprintf");
            free(files);
            remove_files(rank);
        }
        if (o.kind == HYDRANT_OUTPUT_LOG) fwrite(o.bytes, 1, o.len, o.stream == HYDRANT_STREAM_STDERR ? stderr : stdout);
    }
    fflush(stdout);
}

/* Reads once, no more than the server takes. Returns whether there may be more. */
static bool receive(uint32_t conn) {
    unsigned char bytes[16384];
    size_t room = hydrant_host_room(host, conn);
    if (conns[conn].fd < 0 || conns[conn].unsent || room == 0) return false;
    ssize_t len = recv(conns[conn].fd, bytes, room < sizeof bytes ? room : sizeof bytes, MSG_DONTWAIT);
    if (len > 0) check(hydrant_host_bytes(host, conn, bytes, len), NULL);
    else if (len == 0 || (errno != EAGAIN && errno != EINTR)) close_conn(conn);
    carry_out();
    return len > 0;
}

/* Accepts PMIx clients. They send their rank in the handshake. */
static void accept_clients(void) {
    for (int fd; check(hydrant_port_accept(port, &fd), NULL) == 1;) {
        uint32_t conn = size;
        while (conn < 2 * size && conns[conn].fd >= 0) conn++;
        if (conn == 2 * size) {
            close(fd);
            continue;
        }
        conns[conn].fd = fd;
        check(hydrant_host_opened(host, conn, JOB, HYDRANT_NONE), NULL);
    }
}

/* Reports processes that have ended. The last bytes of a rank come before its end. */
static void reap(void) {
    int status;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0; running--) {
        uint32_t rank = 0;
        while (ranks[rank].pid != pid) rank++;
        for (int reads = 0; reads < LAST_READS && receive(ranks[rank].conn); reads++) {}
        ranks[rank].pid = 0;
        bool killed = WIFSIGNALED(status);
        int number = killed ? WTERMSIG(status) : WEXITSTATUS(status);
        if (number) FAIL(killed ? 128 + number : number, "rank %u ended with %s%d", rank, killed ? "signal " : "", number);
        check(hydrant_host_exited(host, JOB, rank, killed ? HYDRANT_EXIT_SIGNAL : HYDRANT_EXIT_CODE, number), NULL);
        carry_out();
        remove_files(&ranks[rank]);
    }
}

/* Describes the job, and makes the environment that all ranks have. */
static void describe_job(void) {
    char text[64];
    uint64_t secret;
    hydrant_job job;
    /* A PMIx client that knows the name may join, so a part of it is random. */
    check(getrandom(&secret, sizeof secret, 0), "getrandom");
    snprintf(name, sizeof name, "job-%d-%016" PRIx64, getpid(), secret);
    check(hydrant_job_init(&job, JOB, name, size), NULL);
    check(hydrant_host_register_job(host, &job), NULL);
    int len = snprintf(text, sizeof text, "(vector,(0,1,%u))", size);
    check(hydrant_host_attr(host, JOB, "PMI_process_mapping", strlen("PMI_process_mapping"), text, len), NULL);
    for (char **at = environ; *at;) { /* Those of other launchers. unsetenv moves the next one to this place. */
        bool others = strncmp(*at, "PMI_", 4) == 0 || strncmp(*at, "PMIX_", 5) == 0 || strncmp(*at, "PRTE_", 5) == 0;
        if (others) unsetenv(strndupa(*at, strcspn(*at, "=")));
        else at++;
    }
    snprintf(text, sizeof text, "%u", size);
    setenv("PMI_SIZE", text, 1);
    setenv("MPIR_CVAR_PMI_VERSION", "1", 1); /* MPICH 5 does not choose between PMI and PMIx by itself. */
}

static void start(uint32_t rank, char **command, const sigset_t *signals) {
    char text[16], variables[1024];
    int ends[2];
    pid_t launcher = getpid();
    check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), "socketpair");
    snprintf(text, sizeof text, "%u", rank);
    setenv("PMI_RANK", text, 1);
    snprintf(text, sizeof text, "%d", ends[1]);
    setenv("PMI_FD", text, 1);
    check(hydrant_port_variables(port, name, rank, variables, sizeof variables), NULL);
    check(ranks[rank].pid = fork(), "fork");
    if (ranks[rank].pid == 0) {
        /* A launcher that has ended meanwhile is no parent. */
        if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != launcher) _exit(1);
        fcntl(ends[1], F_SETFD, 0);
        if (rank > 0) dup2(open("/dev/null", O_RDONLY | O_CLOEXEC), 0);
        sigprocmask(SIG_UNBLOCK, signals, NULL);
        for (char *at = variables; *at; at += strlen(at) + 1) putenv(at);
        execvp(command[0], command);
        fprintf(stderr, "launch: cannot run %s: %s\n", command[0], strerror(errno));
        _exit(127);
    }
    close(ends[1]);
    running++;
    ranks[rank].conn = rank;
    conns[rank].fd = ends[0];
    check(hydrant_host_opened(host, rank, JOB, rank), NULL);
}

int main(int argc, char **argv) {
    hydrant_settings settings;
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
    check(hydrant_port_open(0, &port), NULL);
    ranks = calloc(size, sizeof *ranks);
    conns = calloc(2 * size, sizeof *conns);
    for (uint32_t conn = 0; conn < 2 * size; conn++) conns[conn].fd = -1;
    describe_job();
    for (uint32_t rank = 0; rank < size; rank++) start(rank, argv + optind + 1, &signals);
    struct pollfd *fds = calloc(2 * size + 3, sizeof *fds), *own = fds + 2 * size;
    own[0] = (struct pollfd){.fd = hydrant_host_fd(host), .events = POLLIN};
    own[1] = (struct pollfd){.fd = hydrant_port_fd(port), .events = POLLIN};
    own[2] = (struct pollfd){.fd = signalfd(-1, &signals, SFD_CLOEXEC), .events = POLLIN};
    while (running > 0) {
        for (uint32_t conn = 0; conn < 2 * size; conn++)
            fds[conn] = (struct pollfd){.fd = conns[conn].fd, .events = conns[conn].unsent ? POLLOUT : POLLIN};
        check(poll(fds, 2 * size + 3, -1), "poll");
        for (uint32_t conn = 0; conn < 2 * size; conn++) {
            if (fds[conn].revents == 0) continue;
            if (conns[conn].unsent) reply(conn, conns[conn].unsent, conns[conn].len);
            else receive(conn);
        }
        if (own[1].revents) accept_clients();
        carry_out();
        struct signalfd_siginfo info;
        if (own[2].revents == 0 || read(own[2].fd, &info, sizeof info) != sizeof info) continue;
        if (info.ssi_signo != SIGCHLD) {
            FAIL(128 + (int)info.ssi_signo, "ended by SIG%s", sigabbrev_np(info.ssi_signo));
            kill_all();
        }
        reap();
    }
    hydrant_port_close(port);
    hydrant_host_close(host);
    return code;
}
