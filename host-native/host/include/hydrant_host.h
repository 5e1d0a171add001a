/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * hydrant_host.h: the interface of libhydrant_host.so.0, hydrant's PMI server for launchers.
 *
 * The server speaks PMI-1, PMI-2 and PMIx with the ranks of parallel jobs. The launcher (the host) starts the ranks, tells
 * the server what happens to them, and carries out the outputs. docs/hosts.md describes what a host owes its ranks, and
 * host-wasm/examples/launch.c is a host.
 *
 * CONNECTIONS
 *
 *   The library makes the connections of ranks, accepts PMIx clients, and reads from and writes to their sockets:
 *   hydrant_host_setup_fork, hydrant_host_listen. A host with transports of its own carries the bytes itself:
 *   hydrant_host_opened, hydrant_host_bytes, HYDRANT_OUTPUT_BYTES. A job may have connections of both kinds.
 *
 * ORDER OF CALLS
 *
 *   hydrant_host_open creates a server. hydrant_host_register_job, hydrant_host_attr and hydrant_host_program describe a
 *   job. hydrant_host_listen accepts its PMIx clients, and hydrant_host_setup_fork precedes the fork of each rank. Then
 *   hydrant_host_exited follows for each rank, and hydrant_host_deregister_job is the last call of a job. After each of
 *   these calls, or several, the host calls hydrant_host_next until it returns 0.
 *
 * WAITING
 *
 *   No call waits. The descriptor of hydrant_host_fd is readable while hydrant_host_next has work: sockets to read or write,
 *   clients to accept, a deadline that has passed, or what an earlier call has left. A host adds it to its event loop, for
 *   reading and level-triggered, and calls hydrant_host_next. It never reads from it. hydrant_host_open compiles a plugin,
 *   which takes less than a second, unless the compiled code is in the cache.
 *
 * ERRORS
 *
 *   A call that fails returns one of HYDRANT_ERR_..., all negative, and hydrant_host_error returns the reason. An input
 *   that fails with another error than HYDRANT_ERR_PLUGIN has changed nothing. After HYDRANT_ERR_PLUGIN and
 *   HYDRANT_ERR_INTERNAL the host ends its jobs and closes the server; the process itself is sound.
 *
 * THREADS
 *
 *   Different servers are independent. Calls with the same server must not overlap: the second one fails with
 *   HYDRANT_ERR_BUSY. With a plugin, the library has a thread of its own, in which all signals are blocked, and handles
 *   SIGSEGV, SIGILL and SIGFPE. Signals that are not a plugin's go to the handlers from before.
 *
 * POINTERS
 *
 *   Strings end in NUL and are UTF-8, at most 1,024 bytes long. Other bytes are given with their length; with length 0 the
 *   pointer may be NULL. The library copies what it keeps.
 */
#ifndef HYDRANT_HOST_H_INCLUDED
#define HYDRANT_HOST_H_INCLUDED

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Results of calls. */
enum {
    HYDRANT_OK = 0,
    /* A pointer is NULL, a string, a length or a number is invalid, or a connection is a socket of the library. */
    HYDRANT_ERR_ARGUMENT = -1,
    /* The server refused the input: hydrant_host_fault. */
    HYDRANT_ERR_FAULT = -2,
    /* More bytes of a connection than hydrant_host_room. */
    HYDRANT_ERR_ROOM = -3,
    /* The limits require more memory than there is. */
    HYDRANT_ERR_MEMORY = -4,
    /* A system call failed. */
    HYDRANT_ERR_SYSTEM = -5,
    /* The plugin cannot be loaded, trapped, took too long, or has an output that no server has. Every later call fails. */
    HYDRANT_ERR_PLUGIN = -6,
    /* The library was built without the sandbox, and cannot load plugins. */
    HYDRANT_ERR_NO_SANDBOX = -7,
    /* Another thread is in a call with this server. */
    HYDRANT_ERR_BUSY = -8,
    /* A defect of the library. Every later call fails. */
    HYDRANT_ERR_INTERNAL = -9
};

/* In place of a rank or a number: none. */
#define HYDRANT_NONE UINT32_MAX

/* BEGIN: generated from hydrant-abi.json */
/* Version of the ABI of hydrant.wasm, and of this interface. */
#define HYDRANT_ABI_VERSION 1

/* Maximum length of a key in bytes: keylen_max of PMI-1's get_maxes, PMI2_MAX_KEYLEN of pmi2.h. */
#define HYDRANT_KEY_MAX 64
/* Maximum length of a value in bytes: vallen_max of PMI-1's get_maxes, PMI2_MAX_VALLEN of pmi2.h. */
#define HYDRANT_VALUE_MAX 1024
/* Maximum length of a job id (PMI-1's kvsname) in bytes. */
#define HYDRANT_JOBID_MAX 64
/* Bytes of key-value log that a record takes in addition to its key and its value. */
#define HYDRANT_RECORD_HEADER 16
/* Maximum length of a message in bytes, of either protocol and with its framing; PMII_MAX_COMMAND_LEN of
   pmi2.h. */
#define HYDRANT_MESSAGE_MAX 65536
/* Maximum number of pending replies of a connection. More than one occurs only if threads share the
   connection. The server leaves further requests unread until a reply has been sent. */
#define HYDRANT_PENDING_MAX 4
/* Length in bytes to which the reason of a failed upcall is truncated. */
#define HYDRANT_MESSAGE_TEXT_MAX 200
/* Length in bytes to which an abort message is truncated. A server with less than 64 KiB of key-value log,
   on a board, truncates it to HYDRANT_MESSAGE_TEXT_MAX. */
#define HYDRANT_ABORT_TEXT_MAX 4096
/* Maximum length of a published name in bytes. */
#define HYDRANT_NAME_MAX 127
/* Maximum length of the port of a published name in bytes without NUL. MPICH's MPI_MAX_PORT_NAME is 1,024
   with NUL. */
#define HYDRANT_PORT_MAX 1023
/* Maximum length of a process set's name in bytes without NUL. MPI 4.1, 11.3.2 requires at least 63. */
#define HYDRANT_PSET_NAME_MAX 127
/* Maximum number of programs in one spawn. */
#define HYDRANT_SPAWN_PROGRAMS_MAX 256
/* Minimum of spawn_bytes on a host that starts processes. With less, spawns are refused, and the bytes
   serve other upcalls. */
#define HYDRANT_SPAWN_BYTES_MIN 256
/* Milliseconds after which a rank counts as lost whose connection was closed between init and finalize.
   Its exit, which says more, mostly follows within this time. */
#define HYDRANT_CUT_OFF_DELAY 500
/* Maximum length in bytes of a message to another node, unless the members of a group need more. Nodes
   with short logs send shorter ones. */
#define HYDRANT_PEER_MESSAGE_MAX 32768
/* First bytes of the key of an attribute of the node. The name of the attribute follows. */
#define HYDRANT_NODE_ATTR_PREFIX "node:"

/* Kinds of hydrant_output. */
enum {
    /* Send a reply. */
    HYDRANT_OUTPUT_BYTES = 0,
    /* Close a connection. hydrant_host_closed follows. */
    HYDRANT_OUTPUT_CLOSE = 1,
    /* A client has become a rank of a job. */
    HYDRANT_OUTPUT_JOINED = 2,
    /* Start processes: the host registers a job (spawn), starts its processes, and completes the spawn
       (hydrant_host_spawn_complete). */
    HYDRANT_OUTPUT_SPAWN = 3,
    /* Carry out a request and complete it (hydrant_host_upcall_complete). With remote_names: publish,
       unpublish or look up a name, or get a value of a job that the requesting job is not connected to
       here. With several nodes: define, retire or prune process sets. With either: connect or disconnect
       jobs. If both jobs are registered, the host gives all servers hydrant_host_connected first, as it
       does hydrant_host_pset_request. */
    HYDRANT_OUTPUT_UPCALL = 4,
    /* Kill the process of a rank that aborted only itself. */
    HYDRANT_OUTPUT_KILL_RANK = 5,
    /* Kill all processes of a job. Returned once per job. */
    HYDRANT_OUTPUT_ABORT_JOB = 6,
    /* Send a message to a neighbour in the tree, complete and in order. */
    HYDRANT_OUTPUT_PEER = 7,
    /* A fence, or the ranks that have initialized, wait for ranks of this node for longer than
       fence_warning. Returned once per fence, and once per job for ranks that have not initialized. */
    HYDRANT_OUTPUT_STALLED_FENCE = 8,
    /* Remove files once the process of a rank has exited. A PMIx client requested it. */
    HYDRANT_OUTPUT_REMOVE_FILES = 9,
    /* Print text as if a rank had written it. A PMIx client requested it. The host may drop text that its
       own output does not take. */
    HYDRANT_OUTPUT_LOG = 10,
    /* Two jobs have connected or disconnected by requests that the host did not carry out
       (hydrant_host_connected). A host that ends connected jobs together, a spawned one and its spawner
       among them, ends those that have disconnected alone. A PMIx fence without data that names ranks of
       several jobs, and all ranks of one of them, disconnects in this sense only: it is
       MPI_Comm_disconnect of Open MPI. Every node whose ranks take part returns it, before their replies. */
    HYDRANT_OUTPUT_CONNECTED = 11
};

/* Reason for closing a connection. */
enum {
    /* Bytes that are not PMI. */
    HYDRANT_CLOSING_MALFORMED = 0,
    /* Refused handshake. The client has got the error reply. */
    HYDRANT_CLOSING_REFUSED = 1,
    /* Deregistered job. */
    HYDRANT_CLOSING_JOB_OVER = 2,
    /* Another connection of the same rank, which has finalized on this one or has waited for no reply. */
    HYDRANT_CLOSING_REPLACED = 3,
    /* Refused handshake of a PMIx client. The client does not fail: it runs as a job of one rank. */
    HYDRANT_CLOSING_UNSERVED = 4
};

/* Client bytes that are not PMI. The connection is closed, because the start of the next message is
   unknown. */
enum {
    /* The length prefix of a PMI-2 message is not six characters of decimal digits and blanks. */
    HYDRANT_MALFORMED_LENGTH = 0,
    /* A message longer than HYDRANT_MESSAGE_MAX or than the host's buffer. */
    HYDRANT_MALFORMED_TOO_LONG = 1,
    /* A message that does not begin with cmd= or mcmd=. */
    HYDRANT_MALFORMED_NO_COMMAND = 2,
    /* A first message other than cmd=init or cmd=initack. */
    HYDRANT_MALFORMED_HANDSHAKE = 3,
    /* A PMI-1 mcmd block or PMI-2 message whose parts contradict each other. */
    HYDRANT_MALFORMED_STRUCTURE = 4
};

/* Reason for aborting a job. */
enum {
    /* Request of the rank. Its message is a separate field of the output. */
    HYDRANT_CAUSE_ABORT = 0,
    /* Exit of the rank between init and finalize. */
    HYDRANT_CAUSE_NO_FINALIZE = 1,
    /* Death of the rank by a signal, or its failure before init while other ranks wait for it. */
    HYDRANT_CAUSE_DIED = 2,
    /* Exit of the rank without init while another rank is between init and finalize, or exit after
       finalize while another rank waits for it in a fence. HYDRANT_EXIT_LOST for a rank whose connection
       was closed between init and finalize and whose process lives. */
    HYDRANT_CAUSE_ABSENT = 3
};

/* End of a process. */
enum {
    /* Exit with this code, 0 to 255. */
    HYDRANT_EXIT_CODE = 0,
    /* Death by this signal. */
    HYDRANT_EXIT_SIGNAL = 1,
    /* Closed connection without further information, on hosts that do not start processes. */
    HYDRANT_EXIT_LOST = 2
};

/* Standard output or standard error of a rank. */
enum {
    /* Standard output. */
    HYDRANT_STREAM_STDOUT = 0,
    /* Standard error. */
    HYDRANT_STREAM_STDERR = 1
};

/* Protocol that a connection uses after its handshake. */
enum {
    /* PMI-1 (1.1 and 1.2): lines of key=value. */
    HYDRANT_PROTOCOL_V1 = 0,
    /* PMI-2: counted messages of key=value;. */
    HYDRANT_PROTOCOL_V2 = 1
};

/* Pairs that travel with the fences of a job on several nodes. Without the feature cluster a server
   refuses jobs whose fences would be lazy. */
enum {
    /* All. A get is answered on the node of its rank. */
    HYDRANT_FENCE_MODE_COLLECT = 0,
    /* Those of ranks that the receiving node has asked for. A get of another key asks the node of the rank
       that put it if the client names that rank, and all nodes otherwise. */
    HYDRANT_FENCE_MODE_LAZY = 1,
    /* All on up to AUTO_NODES_MAX nodes, without those that join later. On more as Lazy, and a node that
       has asked a quarter of the others asks all. */
    HYDRANT_FENCE_MODE_AUTO = 2
};

/* Name of a limit of a server (a field of Limits of hydrant-core), in errors and on a host's command line. */
enum {
    /* jobs */
    HYDRANT_LIMIT_JOBS = 0,
    /* ranks */
    HYDRANT_LIMIT_RANKS = 1,
    /* conns */
    HYDRANT_LIMIT_CONNS = 2,
    /* keys */
    HYDRANT_LIMIT_KEYS = 3,
    /* kvs_bytes */
    HYDRANT_LIMIT_KVS_BYTES = 4,
    /* groups */
    HYDRANT_LIMIT_GROUPS = 5,
    /* names */
    HYDRANT_LIMIT_NAMES = 6,
    /* spawns */
    HYDRANT_LIMIT_SPAWNS = 7,
    /* spawn_bytes */
    HYDRANT_LIMIT_SPAWN_BYTES = 8,
    /* psets */
    HYDRANT_LIMIT_PSETS = 9,
    /* links */
    HYDRANT_LIMIT_LINKS = 10,
    /* HYDRANT_PENDING_MAX */
    HYDRANT_LIMIT_OWED = 11,
    /* commit_bytes */
    HYDRANT_LIMIT_COMMIT_BYTES = 12
};

/* Faults: an input violates the contract of the server, which is unchanged. */
enum {
    /* A connection number that is not below the limit, or that is not open. */
    HYDRANT_FAULT_NO_SUCH_CONN = 0,
    /* A connection number that is open already. */
    HYDRANT_FAULT_CONN_IN_USE = 1,
    /* A job number that is not below the limit, or that is not registered. */
    HYDRANT_FAULT_NO_SUCH_JOB = 2,
    /* A job number that is in use. */
    HYDRANT_FAULT_JOB_IN_USE = 3,
    /* A rank that is not below the job's size. */
    HYDRANT_FAULT_NO_SUCH_RANK = 4,
    /* A rank that has a connection already, or has exited. */
    HYDRANT_FAULT_RANK_TAKEN = 5,
    /* A job without ranks. */
    HYDRANT_FAULT_EMPTY_JOB = 6,
    /* A job id that is empty, too long or in use, or that holds a blank, ;, =, \\ or a byte that is not
       printable ASCII. */
    HYDRANT_FAULT_BAD_JOB_ID = 7,
    /* A limit that is reached. The second number is the limit's size. */
    HYDRANT_FAULT_FULL = 8,
    /* An attribute, program or rank mapping after the job's first connection, unless it is a text, a rank
       mapping after its first exit, a key longer than HYDRANT_KEY_MAX bytes, or a value longer than
       HYDRANT_VALUE_MAX bytes. */
    HYDRANT_FAULT_BAD_ATTRIBUTE = 9,
    /* An upcall that is unknown or already complete. */
    HYDRANT_FAULT_NO_SUCH_UPCALL = 10,
    /* A process set whose name is empty, too long, reserved or taken, or whose ranks are not all in the
       job. */
    HYDRANT_FAULT_BAD_PSET = 11,
    /* A slab that is shorter than the limits require. Lengths above u32::MAX are reported as u32::MAX. */
    HYDRANT_FAULT_INSUFFICIENT_STORAGE = 12,
    /* A node number that is not in the tree, more neighbours than links, a node that is not a neighbour,
       or a tree after the first job. */
    HYDRANT_FAULT_BAD_NODE = 13,
    /* An invalid message from another node. */
    HYDRANT_FAULT_BAD_PEER = 14,
    /* A refused request of a rank on any node. Its client gets the refusal as the reply. */
    HYDRANT_FAULT_REFUSED = 15,
    /* Bytes that are not a snapshot of a server. */
    HYDRANT_FAULT_SNAPSHOT = 16,
    /* A buffer for outputs that is shorter than output_max, or a buffer for a snapshot that is shorter
       than Server::snapshot_len. The number is the required length in bytes. */
    HYDRANT_FAULT_SHORT_BUFFER = 17,
    /* A job with lazy fences on several nodes, at a server without the feature cluster. */
    HYDRANT_FAULT_NO_LAZY_FENCES = 18
};

/* Capacities of all tables, fixed when a server is created. A limit is a number of entries unless its name
   contains bytes. A request that exceeds a limit is refused with an error that carries the limit's name.
   Stored data is unchanged. */
typedef struct hydrant_limits {
    /* Maximum number of jobs at the same time. */
    uint32_t jobs;
    /* Maximum number of ranks, of all jobs together. */
    uint32_t ranks;
    /* Maximum number of client connections: one per rank, and some for clients that have not identified
       themselves. */
    uint32_t conns;
    /* Maximum number of key-value pairs and attributes, of all jobs together. */
    uint32_t keys;
    /* Bytes of key-value log. A pair takes HYDRANT_RECORD_HEADER bytes, its key and its value, rounded up
       to a multiple of four. */
    uint32_t kvs_bytes;
    /* Maximum number of group barriers at the same time. The barrier of a whole job takes none. */
    uint32_t groups;
    /* Maximum number of published names, of names that look-ups wait for, and of events and monitors of
       PMIx clients, together. Events and monitors take at most a quarter each. */
    uint32_t names;
    /* Maximum number of upcalls at the same time: spawns, files of PMIx clients to remove, and requests
       about names if the job has remote_names. 0 on a host that supports none of these. */
    uint32_t spawns;
    /* Bytes of one upcall's request or result, at most HYDRANT_MESSAGE_MAX. Less than
       HYDRANT_SPAWN_BYTES_MIN on a host that starts no processes. */
    uint32_t spawn_bytes;
    /* Maximum number of process sets in addition to mpi://WORLD and mpi://SELF, of all jobs together.
       There is room for 256 of them with any members. More are refused as this limit unless their members
       are a few runs, as those of hosts are. */
    uint32_t psets;
    /* Maximum number of links to servers on other nodes, at most LINKS_MAX. 0 for a single node. */
    uint32_t links;
    /* Maximum bytes that a PMIx rank puts for processes of its node, and as many for others, up to
       COMMIT_BYTES_MAX. A quarter of HYDRANT_MESSAGE_MAX is enough for MPI libraries. 0 on a host that
       serves no PMIx. */
    uint32_t commit_bytes;
} hydrant_limits;
/* END */

/* Settings of a server. hydrant_settings_init writes them all. */
typedef struct hydrant_settings {
    uint32_t abi_version;
    /* Longest time of one call of a plugin, in milliseconds. 0 for five seconds. */
    uint32_t call_ms;
    /* File of the plugin, hydrant.wasm. NULL for the built-in server. */
    const char *plugin;
    /* Folder for compiled plugins. It is created if it is missing, and unused if it belongs to another user or others may
       write to it. NULL for none: the plugin is compiled at each hydrant_host_open. */
    const char *cache;
    hydrant_limits limits;
} hydrant_settings;

/* Description of a job. hydrant_job_init writes it. */
typedef struct hydrant_job {
    /* Number of the job, below limits.jobs. */
    uint32_t job;
    /* Number of ranks. */
    uint32_t size;
    /* Name of the job (PMI-1: kvsname), different from all others: printable ASCII without blank, ';', '=' and '\', at most
       64 bytes. A PMIx client that knows the name may join: a part of it should be random. NULL for a name that the library
       makes, with 64 random bits; the servers of several nodes need one that all know. */
    const char *name;
    /* Name of the job that spawned this one, on another node than that of the request. Otherwise NULL. */
    const char *spawner;
    /* Number of the spawn that started the job, on the node of the request. Otherwise HYDRANT_NONE. */
    uint32_t spawn;
    /* Maximum number of processes in total. 0 for the size. */
    uint32_t universe_size;
    /* 1 if a rank that fails ends the job. */
    uint32_t cleanup;
    /* PMI-1 subversion: 2, or 1 for clients that require PMI 1.1. */
    uint32_t pmi1_subversion;
    /* Milliseconds that a look-up waits for an unpublished name. */
    uint64_t lookup_wait;
    /* Milliseconds after which a waiting fence is reported. 0 for never. */
    uint64_t fence_warning;
    /* 1 if the host carries out requests about names (HYDRANT_OUTPUT_UPCALL). */
    uint32_t remote_names;
    /* HYDRANT_FENCE_MODE_...: pairs that travel with fences. */
    uint32_t fence;
} hydrant_job;

/* Kinds and reasons of the library, beside those of the server. */
enum {
    /* The library has closed a socket of its own, for a reason other than the client's end, the job's, or a new connection of
       the rank. The host may tell the user. */
    HYDRANT_OUTPUT_DISCONNECTED = 64,
    /* HYDRANT_OUTPUT_DISCONNECTED: no handshake within 10 seconds, or not before later clients needed the connection. */
    HYDRANT_CLOSING_NO_HANDSHAKE = 64,
    /* HYDRANT_OUTPUT_DISCONNECTED: the client goes on asking without reading replies. */
    HYDRANT_CLOSING_OVERRUN = 65
};

/* Output of a server. Fields that its kind does not have are 0. BYTES and CLOSE are for connections whose bytes the host
   carries. */
typedef struct hydrant_output {
    /* HYDRANT_OUTPUT_...; it says which fields there are:
         BYTES        conn, bytes: the reply
         CLOSE        conn, closing, malformed
         JOINED       conn, job, rank
         SPAWN        upcall, job, rank, protocol, bytes: the request
         UPCALL       upcall, job, rank, protocol, bytes: the request
         KILL_RANK    job, rank, code_given, code, exit_code, bytes: the message
         ABORT_JOB    job, cause, rank, code_given, code, exit, exit_number, exit_code, bytes: the message
         PEER         node, bytes: the message
         STALLED_FENCE  job, arrived, size, bytes: the missing ranks, such as 0-3,7
         REMOVE_FILES job, rank, bytes: paths, separated by commas. For a rank of hydrant_host_setup_fork it comes after
                      hydrant_host_exited, and the host removes them at once
         LOG          job, rank, stream, bytes: the text
         DISCONNECTED conn, job, rank or HYDRANT_NONE, closing, malformed */
    uint32_t kind;
    uint32_t conn;
    uint32_t job;
    uint32_t rank;
    /* Number of the spawn or upcall, for hydrant_host_spawn_complete and hydrant_host_upcall_complete. */
    uint32_t upcall;
    /* HYDRANT_PROTOCOL_... */
    uint32_t protocol;
    uint32_t node;
    /* HYDRANT_CLOSING_... */
    uint32_t closing;
    /* HYDRANT_MALFORMED_..., with HYDRANT_CLOSING_MALFORMED. */
    uint32_t malformed;
    /* HYDRANT_CAUSE_... */
    uint32_t cause;
    /* 1 if the rank requested an exit code, with HYDRANT_CAUSE_ABORT. */
    uint32_t code_given;
    int32_t code;
    /* HYDRANT_EXIT_..., with the other causes. */
    uint32_t exit;
    /* Exit code or signal. */
    uint32_t exit_number;
    /* Exit code that hydrant would exit with, 0 to 255, if this is the first failure: for the job to abort, or in place of that of
       the rank to kill. 0 only for a job that a rank aborts with code 0. */
    uint32_t exit_code;
    uint32_t arrived;
    uint32_t size;
    /* HYDRANT_STREAM_... */
    uint32_t stream;
    /* The other of two jobs, and whether the two are connected. */
    uint32_t other;
    uint32_t connected;
    /* len bytes without a final NUL, valid until the next call with this server. */
    const unsigned char *bytes;
    size_t len;
} hydrant_output;

/* A server. */
typedef struct hydrant_host hydrant_host;

/* Writes settings: the built-in server, with limits for one job of so many ranks on this machine that spawns no processes.
   abi_version is HYDRANT_ABI_VERSION. It fails if the library has another version than the header. */
int hydrant_settings_init(hydrant_settings *settings, uint32_t abi_version, uint32_t ranks);

/* Creates a server. A failure sets *host to NULL. */
int hydrant_host_open(const hydrant_settings *settings, hydrant_host **host);

/* Frees a server. NULL is permitted. */
void hydrant_host_close(hydrant_host *host);

/* Returns the descriptor that is readable while hydrant_host_next has work. It stays the same until hydrant_host_close. */
int hydrant_host_fd(hydrant_host *host);

/* Takes the next output. Returns 1, or 0 if there is none, or an error. Between two results 0 it makes one turn: it passes
   deadlines that have passed to the server, accepts at most 16 clients of each port, and reads once from each socket that is
   ready, or writes to it, of at most 256. Sockets that are ready still leave the descriptor readable. */
int hydrant_host_next(hydrant_host *host, hydrant_output *output);

/* Returns why the last call of this thread failed, in one line and perhaps a second one that begins with "hint: ". It is
   valid until the next call of this thread fails. */
const char *hydrant_host_error(void);

/* Returns the HYDRANT_FAULT_... of the last call of this thread that failed, or -1 if it failed for another reason. */
int hydrant_host_fault(void);

/* Returns the HYDRANT_LIMIT_... that was the reason of the last call of this thread that failed, or -1. */
int hydrant_host_limit(void);

/*
 * Jobs
 */

/* Writes the description of a job with the defaults: a rank that fails ends the job. */
int hydrant_job_init(hydrant_job *job, uint32_t number, const char *name, uint32_t size);

/* Registers a job. */
int hydrant_host_register_job(hydrant_host *host, const hydrant_job *job);

/* Sets an attribute of the job, before its first connection. MPICH needs PMI_process_mapping: "(vector,(0,1,N))" for N
   ranks on one machine. With HYDRANT_NODE_ATTR_PREFIX in front, the key is that of an attribute of this node. */
int hydrant_host_attr(hydrant_host *host, uint32_t job, const void *key, size_t key_len, const void *value, size_t value_len);

/* Sets the program number of ranks first to first + count - 1. The default is 0. */
int hydrant_host_program(hydrant_host *host, uint32_t job, uint32_t first, uint32_t count, uint32_t appnum);

/* Defines a process set: ranks first to first + count - 1. */
int hydrant_host_pset(hydrant_host *host, uint32_t job, const char *name, uint32_t first, uint32_t count);

/* Defines a process set whose ranks are a list, such as 0-3,7, and all ranks of another job. HYDRANT_NONE stands for no
   other job. */
int hydrant_host_define(hydrant_host *host, uint32_t job, const char *name, const void *members, size_t len,
                        uint32_t other);

/* The process of a rank has ended. exit is HYDRANT_EXIT_..., number its exit code or signal, at most 255. The library reads the
   last bytes from its socket before that counts. A host that carries the bytes of the rank passes the last ones before. */
int hydrant_host_exited(hydrant_host *host, uint32_t job, uint32_t rank, int exit, uint32_t number);

/* Returns the exit code of a launcher for the end of a rank, as that of hydrant: the code, 128 + N for signal N, and 1 for
   HYDRANT_EXIT_LOST. It counts if it is not 0 and neither the outputs that follow hydrant_host_exited nor those before have an
   exit code for the job or for the rank. */
int hydrant_exit_code(int exit, uint32_t number);

/* Deregisters a job after its processes have ended. */
int hydrant_host_deregister_job(hydrant_host *host, uint32_t job);

/*
 * Connections that the library makes
 */

/* Prepares the start of a rank: makes a socket pair, opens one end as the connection of the rank, and writes the other one to
 * *fd. It is closed on exec: the host clears FD_CLOEXEC in the child, after the fork, and closes it in the parent.
 *
 * *env is the environment for execve, with NULL at its end. It consists of the variables of inherited, mostly environ, without
 * those of other launchers, and of PMI_FD, PMI_RANK, PMI_SIZE, and PMI_SPAWNED in a spawned job. After hydrant_host_listen it also
 * has those of PMIx clients. It belongs to the library and is valid until the next hydrant_host_setup_fork or _setup_env.
 *
 * The connection has the lowest free number. A failure makes no connection, and sets *fd to -1 and *env to NULL:
 * HYDRANT_FAULT_RANK_TAKEN for a rank with a connection, HYDRANT_FAULT_FULL at limits.conns. */
int hydrant_host_setup_fork(hydrant_host *host, uint32_t job, uint32_t rank, char *const *inherited, int *fd, char ***env);

/* Listens at this port of 127.0.0.1, or at any free one with number 0, for PMIx clients (libpmix, Open MPI) of a job that are
   processes of this user, until the job is deregistered. Each takes a connection. A client that sends no handshake makes room for
   later ones at limits.conns, or when descriptors are missing. HYDRANT_ERR_ARGUMENT if the job has a port. */
int hydrant_host_listen(hydrant_host *host, uint32_t job, uint16_t number);

/* Writes the environment of a rank that inherits no connection, in a container perhaps, and connects to the port of
 * hydrant_host_listen, which comes before. *env is as that of hydrant_host_setup_fork, without PMI_FD, and valid until the next call
 * of either. With NULL as inherited it has the rank's own variables alone. */
int hydrant_host_setup_env(hydrant_host *host, uint32_t job, uint32_t rank, char *const *inherited, char ***env);

/*
 * Connections whose bytes the host carries. These calls fail with HYDRANT_ERR_ARGUMENT for a socket of the library.
 */

/* A client connected. conn is below limits.conns and not open. rank is that of the process that inherited the socket, or
   HYDRANT_NONE for an accepted connection. A server with sockets of the library, which have the lowest free numbers, needs the
   highest ones here: from limits.conns - 1 down. */
int hydrant_host_opened(hydrant_host *host, uint32_t conn, uint32_t job, uint32_t rank);

/* A client connected that queries process sets and attributes. It is no rank's connection. */
int hydrant_host_opened_query(hydrant_host *host, uint32_t conn, uint32_t job);

/* The client of an accepted connection is a process of the job's user. It may replace the idle connection of its rank. */
int hydrant_host_verified(hydrant_host *host, uint32_t conn);

/* Returns how many bytes hydrant_host_bytes takes from a connection, at most HYDRANT_MESSAGE_MAX. It is 0 while the client
   has to take replies before more of its requests, and for a connection that is not open or a socket of the library. The host
   reads no more. */
size_t hydrant_host_room(hydrant_host *host, uint32_t conn);

/* Passes bytes of a client to the server. The library keeps incomplete messages. */
int hydrant_host_bytes(hydrant_host *host, uint32_t conn, const void *data, size_t len);

/* The socket has not taken all bytes of an output. The host keeps the rest. Until hydrant_host_writable the server has no
   output for this connection. */
int hydrant_host_blocked(hydrant_host *host, uint32_t conn);

/* The host has sent the rest. */
int hydrant_host_writable(hydrant_host *host, uint32_t conn);

/* The connection was closed by either side. Its number may be used again. */
int hydrant_host_closed(hydrant_host *host, uint32_t conn);

/*
 * TCP port for PMIx clients whose bytes the host carries
 */

/* A listening port of the loopback interface. */
typedef struct hydrant_port hydrant_port;

/* Listens at this port of 127.0.0.1, or at any free one with number 0. A failure sets *port to NULL. */
int hydrant_port_open(uint16_t number, hydrant_port **port);

/* Closes a port. Accepted sockets that the host has taken stay open. NULL is permitted. */
void hydrant_port_close(hydrant_port *port);

/* Returns the descriptor that is readable while a client waits. The host calls hydrant_port_accept then. */
int hydrant_port_fd(hydrant_port *port);

/* Accepts a client that is a process of this user and speaks PMIx; other connections are closed. Returns 1 and a socket, which does
   not block, is closed on exec, and belongs to the host, or 0 if no client waits. The host calls hydrant_host_opened with a
   free connection and HYDRANT_NONE as the rank. It calls hydrant_port_accept until it returns 0. With HYDRANT_ERR_SYSTEM a
   descriptor is missing, and the client waits. */
int hydrant_port_accept(hydrant_port *port, int *fd);

/* Writes environment variables of a rank as NAME=VALUE, each with NUL at its end, and an empty one. job is the job's name.
   Returns the number of bytes written. 1,024 are enough for any name of a job. */
int hydrant_port_variables(hydrant_port *port, const char *job, uint32_t rank, char *variables, size_t len);

/*
 * Requests to the host
 */

/* Completes HYDRANT_OUTPUT_SPAWN. started is 1 if the processes run: their job was registered with the spawn's number
   before. codes has a byte for each program, 0 or an errno. full is the HYDRANT_LIMIT_... for which nothing has started,
   or -1. */
int hydrant_host_spawn_complete(hydrant_host *host, uint32_t spawn, int started, int full, const void *codes, size_t len);

/* Completes HYDRANT_OUTPUT_UPCALL. rc is 0 or a code of pmi2.h. The text is the port of a look-up, the value of a get, or
   the reason of a failure. A get that fails without a reason found no such key. */
int hydrant_host_upcall_complete(hydrant_host *host, uint32_t upcall, int32_t rc, const void *data, size_t len);

/*
 * Several nodes: a server on each, connected in a tree. A server alone needs none of these.
 */

/* First input: this server is number node of so many, in a tree of that radix. limits.links is the number of neighbours. */
int hydrant_host_node(hydrant_host *host, uint32_t node, uint32_t nodes, uint32_t radix);

/* Ranks first to first + count - 1 are on this node. */
int hydrant_host_map_ranks(hydrant_host *host, uint32_t job, uint32_t first, uint32_t count, uint32_t node);

/* Stores a pair of a spawned job, on other nodes than that of the request. */
int hydrant_host_preput(hydrant_host *host, uint32_t job, const void *key, size_t key_len, const void *value, size_t value_len);

/* Passes the bytes of a neighbour's HYDRANT_OUTPUT_PEER to the server. */
int hydrant_host_peer(hydrant_host *host, uint32_t node, const void *data, size_t len);

/* The link to a neighbour is full. Until hydrant_host_peer_writable the server has no output for it. */
int hydrant_host_peer_blocked(hydrant_host *host, uint32_t node);

/* The link to a neighbour has room. */
int hydrant_host_peer_writable(hydrant_host *host, uint32_t node);

/* Another node's server has reported a stalled fence. This server then reports its missing ranks. */
int hydrant_host_stalled_fence(hydrant_host *host, uint32_t job);

/* Connects (1) or disconnects (0) two jobs. All servers get the same calls in the same order. */
int hydrant_host_connected(hydrant_host *host, uint32_t job, uint32_t other, int connected);

/* Applies a request about process sets, from HYDRANT_OUTPUT_UPCALL of any node. All servers get the same calls in the same
   order. */
int hydrant_host_pset_request(hydrant_host *host, uint32_t job, uint32_t rank, const void *data, size_t len);

/* A node is lost, and with it all nodes below it in the tree: its ranks are dead, and the jobs go on. epoch counts such calls
   from 1. All servers that are left get the same calls in the same order. */
int hydrant_host_node_lost(hydrant_host *host, uint32_t epoch, uint32_t node);

/* One of the last n nodes of a tree has joined, as a child of node 0. The radix of such a tree has 256 times n added. epoch counts on.
   All servers get the same calls in the same order. */
int hydrant_host_node_joined(hydrant_host *host, uint32_t epoch, uint32_t node);

#ifdef __cplusplus
}
#endif
#endif
