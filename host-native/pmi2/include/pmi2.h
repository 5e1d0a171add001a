/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * pmi2.h: the PMI-2 interface of libpmi2.so.0, as hydrant provides it.
 *
 * PMI lets the processes of a parallel job learn their ranks, exchange the addresses on which they listen, and spawn
 * more processes. Names, values and layouts are those of the pmi2.h of Slurm. A program built with either header runs
 * with either library.
 *
 * FINDING THE SERVER
 *
 *   PMI_FD, PMI_RANK           inherited connected socket, and the rank (PMI_SIZE is optional)
 *   PMI_PORT, PMI_ID           host:port to connect to, and the rank
 *   neither                    singleton: a job of one process, rank 0, with a server inside the process
 *   PMI_JOBID, PMI_SPAWNED     read with the first two: the job's id; whether another job spawned this one
 *   PMI2_DEBUG=1               prints the reason of each error to standard error
 *
 * ORDER OF CALLS
 *
 *   PMI2_Init is the first call and PMI2_Finalize the last one, once in a process. A second PMI2_Init between the two
 *   returns the same results. A PMI2_Init that failed after it had reached the server cannot be repeated.
 *   PMI2_Initialized may be called at any time. Every other function returns PMI2_ERR_INIT before PMI2_Init and after
 *   PMI2_Finalize.
 *
 * THREADS
 *
 *   Several threads may call any functions at the same time. A call that waits for other processes does not block calls
 *   of other threads, within these limits: at most three calls of a process wait at the server (fence, ring, spawn,
 *   lookup, node attributes with waitfor). A fourth one waits for one of them. Slurm's server does not distinguish
 *   threads: under Slurm, calls of the same function wait for each other. PMI2_Finalize makes outstanding calls fail.
 *   A process that was forked after PMI2_Init must not call PMI functions. A thread must not be cancelled inside a
 *   call.
 *
 * TEXTS
 *
 *   A key or attribute name has 1 to PMI2_MAX_KEYLEN characters, a value at most PMI2_MAX_VALLEN, without the final NUL.
 *   A value that is a C string contains any character except NUL; hydrant_kvs_put takes any bytes. Slurm's server and
 *   hydra truncate a value at a semicolon, and hydra refuses an empty value. The size of an output buffer includes the final NUL. Output texts always end in NUL. An
 *   output pointer must not be NULL unless its function permits it. A function that fails leaves its outputs unchanged,
 *   except as documented for PMI2_ERR_NOMEM and PMI2_Job_Spawn.
 */
#ifndef PMI2_H_INCLUDED
#define PMI2_H_INCLUDED

#ifdef __cplusplus
extern "C" {
#endif

/* Longest key or attribute name, value, and attribute value, in characters without the final NUL. */
#define PMI2_MAX_KEYLEN 64
#define PMI2_MAX_VALLEN 1024
#define PMI2_MAX_ATTRVALUE 1024

/* PMI2_KVS_Get: no hint. */
#define PMI2_ID_NULL -1

/* Return codes. */
#define PMI2_SUCCESS 0                 /* success */
#define PMI2_FAIL -1                   /* the connection failed, or the server sent no reason */
#define PMI2_ERR_INIT 1                /* before PMI2_Init, after PMI2_Finalize; invalid PMI_... variables */
#define PMI2_ERR_NOMEM 2               /* the output buffer is too small: its text is truncated, all other outputs
                                          are complete. Also: a limit of the server is used up */
#define PMI2_ERR_INVALID_ARG 3         /* NULL, an empty name, or a number out of range */
#define PMI2_ERR_INVALID_KEY 4         /* the key is NULL or empty */
#define PMI2_ERR_INVALID_KEY_LENGTH 5  /* the key is longer than PMI2_MAX_KEYLEN */
#define PMI2_ERR_INVALID_VAL 6         /* the value is NULL, or is not a list of integers */
#define PMI2_ERR_INVALID_VAL_LENGTH 7  /* the value is longer than PMI2_MAX_VALLEN */
#define PMI2_ERR_INVALID_LENGTH 8      /* the length of a buffer is 0 or negative; a name, a port or the request is
                                          too long for the server */
#define PMI2_ERR_INVALID_NUM_ARGS 9    /* the number of commands is 0, or a number of arguments is negative */
#define PMI2_ERR_INVALID_ARGS 10       /* an argument of a command is NULL */
#define PMI2_ERR_INVALID_NUM_PARSED 11 /* never returned */
#define PMI2_ERR_INVALID_KEYVALP 12    /* an info or preput pair is NULL, or has no key or no value */
#define PMI2_ERR_INVALID_SIZE 13       /* the size of a job id buffer, an info or a preput list is out of range */
#define PMI2_ERR_OTHER 14              /* other errors: no such key, a name published twice or not at all, a program */
                                       /* that cannot be started, a command that the server lacks */

/* One pair of info. The functions read only key and value. Lists are arrays; next is ignored. */
typedef struct MPID_Info {
    int handle;
    int pobj_mutex;
    int ref_count;
    struct MPID_Info *next;
    char *key;
    char *value;
} MPID_Info;

#define PMI2U_Info MPID_Info

/* A channel between two jobs whose servers cannot read each other's key-value space. The servers of this interface can:
 * PMI2_Job_Connect always returns NULL, NULL, NULL and -1 (no master). */
typedef struct PMI2_Connect_comm {
    int (*read)(void *buf, int maxlen, void *ctx);
    int (*write)(const void *buf, int len, void *ctx);
    void *ctx;
    int isMaster;
} PMI2_Connect_comm_t;

/* ---- Joining and leaving ---- */

/* Joins the job. Returns whether another job spawned this one, the number of processes, the rank of this process from 0,
 * and the number of its program on the command line (0 if the server does not report it).
 *
 * PMI2_ERR_INIT, PMI2_ERR_INVALID_ARG, the server's code if it refuses the process, PMI2_FAIL if the server cannot be
 * reached or does not support PMI-2. The reason is printed to standard error regardless of PMI2_DEBUG. */
int PMI2_Init(int *spawned, int *size, int *rank, int *appnum);

/* Leaves the job. A process that ends without this call counts as failed. The connection is closed even if the call
 * returns PMI2_FAIL. */
int PMI2_Finalize(void);

/* Returns 1 after a successful PMI2_Init, also after PMI2_Finalize, else 0. */
int PMI2_Initialized(void);

/* Ends all processes of the job, or only this one if flag is 0 (hydra always ends all, Slurm only this one). The
 * launcher prints msg, truncated to PMI2_MAX_VALLEN characters; NULL for none. The process exits with status 1, unless
 * the launcher ends it earlier. Returns only with PMI2_ERR_INIT. */
int PMI2_Abort(int flag, const char msg[]);

/* ---- The job ---- */

/* Gets the job's id, one word. PMI2_ERR_INVALID_SIZE, PMI2_ERR_INVALID_ARG, PMI2_ERR_NOMEM. */
int PMI2_Job_GetId(char jobid[], int jobid_size);

/* Gets the rank of this process, as PMI2_Init does. PMI2_ERR_INVALID_ARG. */
int PMI2_Job_GetRank(int *rank);

/* Gets the number of the job's processes on this node. PMI2_ERR_INVALID_ARG; PMI2_ERR_OTHER if the server has neither
 * localRanksCount nor PMI_process_mapping. */
int PMI2_Info_GetSize(int *size);

/* Spawns a job. Returns when all of its processes have been started, or none.
 *
 *   count                  commands, at least 1: the length of the arrays below
 *   cmds                   path or name of each program
 *   argcs, argvs           its arguments, without the program's name; argvs[i] may be NULL if argcs[i] is 0, and both
 *                          arrays may be NULL if no command has arguments
 *   maxprocs               number of processes of each command, at least 1
 *   info_keyval_sizes,     pairs of info for each command (wdir, path, host, env, soft, ...): an array of structures;
 *   info_keyval_vectors    both may be NULL if no command has info
 *   preput_keyval_size,    pairs that the key-value space of the new job contains initially: an array of pointers,
 *   preput_keyval_vector   NULL for none
 *   jobId, jobIdSize       gets the new job's id; empty under hydra 5, which does not report it
 *   errors                 gets count codes: 0 for a command that was started, else its errno; may be NULL
 *
 * PMI2_ERR_INVALID_NUM_ARGS, PMI2_ERR_INVALID_ARGS, PMI2_ERR_INVALID_ARG (a command is NULL or empty, maxprocs is
 * below 1), PMI2_ERR_INVALID_SIZE, PMI2_ERR_INVALID_KEYVALP, PMI2_ERR_INVALID_KEY_LENGTH and
 * PMI2_ERR_INVALID_VAL_LENGTH (of a preput pair), PMI2_ERR_INVALID_LENGTH (the request exceeds 64 KiB), PMI2_ERR_OTHER
 * (cannot be started; errors has the reasons if the server reports them; a singleton cannot spawn). With PMI2_ERR_NOMEM
 * the processes run, and only the id is truncated. */
int PMI2_Job_Spawn(int count, const char *cmds[], int argcs[], const char **argvs[], const int maxprocs[],
                   const int info_keyval_sizes[], const struct MPID_Info *info_keyval_vectors[],
                   int preput_keyval_size, const struct MPID_Info *preput_keyval_vector[], char jobId[],
                   int jobIdSize, int errors[]);

/* Connects this job, and every job that it is connected to, to another job and those connected to it. Their key-value
 * spaces can be read until PMI2_Job_Disconnect or the end of either job. Not collective; may be repeated. conn reports
 * that the processes need no channel between them (see PMI2_Connect_comm_t). hydra ends a job that calls this.
 * PMI2_ERR_INVALID_ARG, also if the job does not exist. */
int PMI2_Job_Connect(const char jobid[], PMI2_Connect_comm_t *conn);

/* Removes the connection of the two jobs. hydra ends a job that calls this.
 * PMI2_ERR_INVALID_ARG, also if there is no connection. */
int PMI2_Job_Disconnect(const char jobid[]);

/* Collective: sends value to both neighbours in the ring of ranks and gets theirs. rank and ranks get the position in
 * the ring and its length. left gets the value of rank - 1, right that of rank + 1; the first and the last rank are
 * neighbours. A process alone gets its own value. Each buffer has maxvalue characters. value may be the same memory as
 * left or right. hydra ends a job that calls this.
 * PMI2_ERR_INVALID_LENGTH (maxvalue below 1), PMI2_ERR_INVALID_VAL, PMI2_ERR_INVALID_VAL_LENGTH (value does not fit
 * maxvalue, or is longer than PMI2_MAX_VALLEN), PMI2_ERR_INVALID_ARG, PMI2_ERR_NOMEM (a received value is truncated). */
#define HAVE_PMIX_RING 1
int PMIX_Ring(const char value[], int *rank, int *ranks, char left[], char right[], int maxvalue);

/* ---- The key-value space ---- */

/* Puts a pair into the job's key-value space. Every process can get it after the next fence, some already before. The
 * result of two puts of the same key before a fence is undefined (hydrant: the last one is valid).
 * PMI2_ERR_INVALID_KEY, PMI2_ERR_INVALID_KEY_LENGTH, PMI2_ERR_INVALID_VAL, PMI2_ERR_INVALID_VAL_LENGTH,
 * PMI2_ERR_NOMEM (the server's space is full). */
int PMI2_KVS_Put(const char key[], const char value[]);

/* Collective: returns when all processes of the job have called it. All of them can then get every pair put before.
 * (hydra 5 returns at once, and the next get waits instead.) */
int PMI2_KVS_Fence(void);

/* Gets a value from the job's key-value space (jobid is NULL, empty or its own id) or from that of a connected job.
 * src_pmi_id is a hint: the rank that put the value. It may be wrong, or PMI2_ID_NULL for none.
 *
 * vallen gets the length of the value without the final NUL; NUL within the value counts. If the value does not fit the buffer, the call succeeds, the value is
 * truncated, and vallen gets the negative length: call again with 1 - *vallen characters. value may be NULL; this is a
 * buffer of 0 characters.
 *
 * PMI2_ERR_OTHER if there is no such key; PMI2_ERR_INVALID_KEY, PMI2_ERR_INVALID_KEY_LENGTH, PMI2_ERR_INVALID_LENGTH
 * (maxvalue is negative), PMI2_ERR_INVALID_ARG (vallen is NULL; no such job, or not connected to it). */
int PMI2_KVS_Get(const char *jobid, int src_pmi_id, const char key[], char value[], int maxvalue, int *vallen);

/* ---- Attributes of the node and of the job ---- */

/* Puts an attribute of the node. The job's processes on this node can get it at once. Errors as for PMI2_KVS_Put. */
int PMI2_Info_PutNodeAttr(const char name[], const char value[]);

/* Gets an attribute of the node. found gets 0 or 1. Without waitfor, a missing attribute is not an error; with waitfor,
 * the call waits until a process has put it. PMI2_ERR_INVALID_KEY, PMI2_ERR_INVALID_KEY_LENGTH, PMI2_ERR_INVALID_LENGTH,
 * PMI2_ERR_INVALID_ARG, PMI2_ERR_NOMEM. Attributes that hydrant provides: localRanksCount, localRanks
 * (which may be longer than PMI2_MAX_ATTRVALUE), cartCoords (with --topology cart:...). */
int PMI2_Info_GetNodeAttr(const char name[], char value[], int valuelen, int *found, int waitfor);

/* As PMI2_Info_GetNodeAttr without waitfor, for a value like 0,1,2. outlen gets the number of integers written, 0 if the
 * attribute is missing. A longer list is truncated: if outlen equals arraylen, there may be more integers. array may be
 * NULL if arraylen is 0. If the server has no localRanks, or more of them than fit into a value, they are computed from
 * PMI_process_mapping. PMI2_ERR_INVALID_VAL if the value is not a list of integers. */
int PMI2_Info_GetNodeAttrIntArray(const char name[], int array[], int arraylen, int *outlen, int *found);

/* Gets an attribute of the job, as PMI2_Info_GetNodeAttr does without waitfor. Attributes that hydrant provides:
 * PMI_process_mapping, universeSize, hasNameServ, hasEscapedValues, physTopology, physTopologyLevels, cartDims, isHeterogeneous,
 * PMI_dead_processes. (Slurm's server returns unrelated text for names that it does not know.) */
int PMI2_Info_GetJobAttr(const char name[], char value[], int valuelen, int *found);

/* As PMI2_Info_GetNodeAttrIntArray, for the job. */
int PMI2_Info_GetJobAttrIntArray(const char name[], int array[], int arraylen, int *outlen, int *found);

/* ---- Values of any bytes ----
 *
 * Functions of hydrant's library for values that contain NUL. hydrant's servers, from this version on, take and return
 * such values, also for PMI2_KVS_Get. Any other client than this library gets an error for them. Other servers do not
 * take them: PMI2_ERR_INVALID_VAL. Spawns, rings, names and ports consist of C strings. */

#define HYDRANT_BINARY_VALUES 1

/* As PMI2_KVS_Put, for a value of length bytes, at most PMI2_MAX_VALLEN. value may be NULL if length is 0. */
int hydrant_kvs_put(const char key[], const void *value, int length);

/* As PMI2_Info_PutNodeAttr, for a value of length bytes. */
int hydrant_node_attr_put(const char name[], const void *value, int length);

/* As PMI2_Info_GetNodeAttr, with the length of the value as PMI2_KVS_Get returns it: negative if the value does not fit.
 * Without the attribute, value and length stay unchanged. */
int hydrant_node_attr_get(const char name[], char value[], int size, int *length, int *found, int waitfor);

/* ---- The name service ---- */

/* Publishes the port of a service until PMI2_Nameserv_unpublish or the end of the job. info_ptr is ignored. hydrant
 * accepts names of at most 127 and ports of at most 1023 characters. PMI2_ERR_INVALID_ARG, PMI2_ERR_INVALID_LENGTH,
 * PMI2_ERR_NOMEM, PMI2_ERR_OTHER (already published). */
int PMI2_Nameserv_publish(const char service_name[], const struct MPID_Info *info_ptr, const char port[]);

/* Gets the port of a published name. PMI2_ERR_OTHER if the name is not published (other servers: PMI2_FAIL);
 * PMI2_ERR_INVALID_ARG, PMI2_ERR_INVALID_LENGTH, PMI2_ERR_NOMEM. */
int PMI2_Nameserv_lookup(const char service_name[], const struct MPID_Info *info_ptr, char port[], int portLen);

/* Withdraws a name, which any process may have published. PMI2_ERR_OTHER if it is not published;
 * PMI2_ERR_INVALID_ARG. */
int PMI2_Nameserv_unpublish(const char service_name[], const struct MPID_Info *info_ptr);

/* ---- The wire ----
 *
 * Elements of the protocol's messages, for programs that use these names. No function has them as arguments. */

#define PMII_COMMANDLEN_SIZE 6
#define PMII_MAX_COMMAND_LEN (64 * 1024)

typedef struct PMI2_Keyvalpair {
    const char *key;
    const char *value;
    int valueLen;
    int isCopy;
} PMI2_Keyvalpair;

typedef struct PMI2_Command {
    int nPairs;
    char *command;
    PMI2_Keyvalpair **pairs;
    int complete;
} PMI2_Command;

#define FULLINIT_CMD          "fullinit"
#define FULLINITRESP_CMD      "fullinit-response"
#define FINALIZE_CMD          "finalize"
#define FINALIZERESP_CMD      "finalize-response"
#define ABORT_CMD             "abort"
#define JOBGETID_CMD          "job-getid"
#define JOBGETIDRESP_CMD      "job-getid-response"
#define JOBCONNECT_CMD        "job-connect"
#define JOBCONNECTRESP_CMD    "job-connect-response"
#define JOBDISCONNECT_CMD     "job-disconnect"
#define JOBDISCONNECTRESP_CMD "job-disconnect-response"
#define KVSPUT_CMD            "kvs-put"
#define KVSPUTRESP_CMD        "kvs-put-response"
#define KVSFENCE_CMD          "kvs-fence"
#define KVSFENCERESP_CMD      "kvs-fence-response"
#define KVSGET_CMD            "kvs-get"
#define KVSGETRESP_CMD        "kvs-get-response"
#define GETNODEATTR_CMD       "info-getnodeattr"
#define GETNODEATTRRESP_CMD   "info-getnodeattr-response"
#define PUTNODEATTR_CMD       "info-putnodeattr"
#define PUTNODEATTRRESP_CMD   "info-putnodeattr-response"
#define GETJOBATTR_CMD        "info-getjobattr"
#define GETJOBATTRRESP_CMD    "info-getjobattr-response"
#define NAMEPUBLISH_CMD       "name-publish"
#define NAMEPUBLISHRESP_CMD   "name-publish-response"
#define NAMEUNPUBLISH_CMD     "name-unpublish"
#define NAMEUNPUBLISHRESP_CMD "name-unpublish-response"
#define NAMELOOKUP_CMD        "name-lookup"
#define NAMELOOKUPRESP_CMD    "name-lookup-response"
#define RING_CMD              "ring"
#define RINGRESP_CMD          "ring-response"
#define PMIJOBID_KEY          "pmijobid"
#define PMIRANK_KEY           "pmirank"
#define SRCID_KEY             "srcid"
#define THREADED_KEY          "threaded"
#define RC_KEY                "rc"
#define ERRMSG_KEY            "errmsg"
#define PMIVERSION_KEY        "pmi-version"
#define PMISUBVER_KEY         "pmi-subversion"
#define RANK_KEY              "rank"
#define SIZE_KEY              "size"
#define APPNUM_KEY            "appnum"
#define SPAWNERJOBID_KEY      "spawner-jobid"
#define DEBUGGED_KEY          "debugged"
#define PMIVERBOSE_KEY        "pmiverbose"
#define ISWORLD_KEY           "isworld"
#define MSG_KEY               "msg"
#define JOBID_KEY             "jobid"
#define KVSCOPY_KEY           "kvscopy"
#define KEY_KEY               "key"
#define VALUE_KEY             "value"
#define FOUND_KEY             "found"
#define WAIT_KEY              "wait"
#define NAME_KEY              "name"
#define PORT_KEY              "port"
#define THRID_KEY             "thrid"
#define INFOKEYCOUNT_KEY      "infokeycount"
#define INFOKEY_KEY           "infokey%d"
#define INFOVAL_KEY           "infoval%d"
#define RING_COUNT_KEY        "ring-count"
#define RING_LEFT_KEY         "ring-left"
#define RING_RIGHT_KEY        "ring-right"
#define TRUE_VAL              "TRUE"
#define FALSE_VAL             "FALSE"

#ifdef __cplusplus
}
#endif

#endif
