/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * pmi2.h: the PMI-2 interface of libpmi2.so.0, as hydrant provides it.
 *
 * PMI is how the processes of a parallel job learn who they are, hand each other the addresses that they listen on,
 * and start more processes. Names, values and layouts are those of the pmi2.h that comes with Slurm, so that a program
 * built with either header runs with either library.
 *
 * WHERE THE SERVER IS
 *
 *   PMI_FD, PMI_RANK           a connected socket that was inherited (PMI_SIZE may be there too)
 *   PMI_PORT, PMI_ID           host:port to connect to, and who to introduce oneself as
 *   neither                    singleton: a job of one process, rank 0, served within the process
 *   PMI_JOBID, PMI_SPAWNED     read beside the first two: the job's id, and whether another job started this one
 *   PMI2_DEBUG=1               each error's reason goes to standard error
 *
 * ORDER OF CALLING
 *
 *   PMI2_Init first, PMI2_Finalize last, once each in a process's life (PMI2_Init may be repeated in between, and then
 *   tells the same again; one that failed after it had reached the server cannot be repeated). PMI2_Initialized at any time. Everything else returns PMI2_ERR_INIT before and after.
 *
 * THREADS
 *
 *   Any function may be called by several threads at once; a call that waits for other processes does not hold up the
 *   calls of other threads, with these limits. Of one process's calls at most three wait at the server at the same
 *   time (fence, ring, spawn, lookup, and node attributes with waitfor); a fourth waits for one of them. Slurm's
 *   server does not tell threads apart: there, calls of the same function wait for each other. PMI2_Finalize makes the
 *   calls that are still under way fail. Only the process that called PMI2_Init may go on using PMI, not one that it
 *   forks, and a thread must not be cancelled inside a call.
 *
 * TEXTS
 *
 *   Keys and attribute names have 1 to PMI2_MAX_KEYLEN characters, values up to PMI2_MAX_VALLEN, the final NUL not
 *   counted. A value may hold any character but NUL; Slurm's server and hydra, though, cut one at a semicolon, and
 *   hydra does not take an empty one. Output buffers get at most as many characters as the caller says, the final
 *   NUL counted, and always end in NUL. An output pointer must not be NULL where nothing else is said. Where a
 *   function fails its outputs are left alone, unless PMI2_ERR_NOMEM or PMI2_Job_Spawn says otherwise.
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

/* No hint, for PMI2_KVS_Get. */
#define PMI2_ID_NULL -1

/* What the functions return. */
#define PMI2_SUCCESS 0                 /* done */
#define PMI2_FAIL -1                   /* the connection broke, or a server failed without saying why */
#define PMI2_ERR_INIT 1                /* before PMI2_Init or after PMI2_Finalize; PMI_... variables that are wrong */
#define PMI2_ERR_NOMEM 2               /* the output buffer is too small: it holds as much as fits, all other outputs
                                          are whole. Also a limit of the server that is used up */
#define PMI2_ERR_INVALID_ARG 3         /* NULL, an empty name, or a number that cannot be */
#define PMI2_ERR_INVALID_KEY 4         /* the key is NULL or empty */
#define PMI2_ERR_INVALID_KEY_LENGTH 5  /* the key is longer than PMI2_MAX_KEYLEN */
#define PMI2_ERR_INVALID_VAL 6         /* the value is NULL; one that was to be integers is not */
#define PMI2_ERR_INVALID_VAL_LENGTH 7  /* the value is longer than PMI2_MAX_VALLEN */
#define PMI2_ERR_INVALID_LENGTH 8      /* a buffer's length is 0 or negative; a name, a port or a whole request is too
                                          long for the server */
#define PMI2_ERR_INVALID_NUM_ARGS 9    /* a spawn of no commands, or a negative number of arguments */
#define PMI2_ERR_INVALID_ARGS 10       /* an argument of a command is NULL */
#define PMI2_ERR_INVALID_NUM_PARSED 11 /* never returned: no function takes a number of parsed arguments */
#define PMI2_ERR_INVALID_KEYVALP 12    /* an info or preput pair is NULL, has no key or no value */
#define PMI2_ERR_INVALID_SIZE 13       /* the size of a job id buffer, an info or a preput list is out of range */
#define PMI2_ERR_OTHER 14              /* anything else: no such key, a name that is published twice or not at all, */
                                       /* a program that could not be started, a command the server does not have */

/* One pair of info. The functions read key and value, nothing else; lists are arrays, next is not followed. */
typedef struct MPID_Info {
    int handle;
    int pobj_mutex;
    int ref_count;
    struct MPID_Info *next;
    char *key;
    char *value;
} MPID_Info;

#define PMI2U_Info MPID_Info

/* How the processes of two jobs would talk whose servers cannot reach each other's key-value space. The servers of
 * this interface can: PMI2_Job_Connect returns NULL, NULL, NULL and -1 (nobody is the master). */
typedef struct PMI2_Connect_comm {
    int (*read)(void *buf, int maxlen, void *ctx);
    int (*write)(const void *buf, int len, void *ctx);
    void *ctx;
    int isMaster;
} PMI2_Connect_comm_t;

/* ---- Joining and leaving ---- */

/* Joins the job: whether another job spawned this one, the number of processes, this process's rank from 0, and which
 * program of the command line it is (0 where the server does not say).
 *
 * PMI2_ERR_INIT, PMI2_ERR_INVALID_ARG, the server's code when it refuses, or PMI2_FAIL when it cannot be reached or
 * speaks no PMI-2. The reason goes to standard error, whatever PMI2_DEBUG says. */
int PMI2_Init(int *spawned, int *size, int *rank, int *appnum);

/* Leaves the job. Without it, the end of the process counts as a failure. The library closes its connection even where
 * this returns PMI2_FAIL because the server is gone. */
int PMI2_Finalize(void);

/* Not 0 once PMI2_Init has succeeded, also after PMI2_Finalize. */
int PMI2_Initialized(void);

/* Ends all processes of the job, or this one alone where flag is 0 (hydra ends all, Slurm none but this). msg, NULL
 * for none, is cut at PMI2_MAX_VALLEN and shown by the launcher. Does not return: the process exits with status 1,
 * unless the launcher ends it before. Only PMI2_ERR_INIT comes back. */
int PMI2_Abort(int flag, const char msg[]);

/* ---- The job ---- */

/* The job's id, one word. PMI2_ERR_INVALID_SIZE, PMI2_ERR_INVALID_ARG, PMI2_ERR_NOMEM. */
int PMI2_Job_GetId(char jobid[], int jobid_size);

/* This process's rank, as PMI2_Init told it. PMI2_ERR_INVALID_ARG. */
int PMI2_Job_GetRank(int *rank);

/* How many of the job's processes are on this node. PMI2_ERR_INVALID_ARG; PMI2_ERR_OTHER where the server tells
 * neither localRanksCount nor PMI_process_mapping. */
int PMI2_Info_GetSize(int *size);

/* Starts a job of other processes; returns when they have been started, or none of them.
 *
 *   count                  commands, at least 1: the length of the arrays below
 *   cmds                   each a program's path or name
 *   argcs, argvs           its arguments, without the program's own name; argvs[i] may be NULL where argcs[i] is 0,
 *                          and both arrays may be NULL where no command has arguments
 *   maxprocs               how many processes of each command, at least 1
 *   info_keyval_sizes,     pairs of info for each command (wdir, path, host, env, soft, ...): an array of structures;
 *   info_keyval_vectors    both may be NULL where no command has info
 *   preput_keyval_size,    pairs that the new job finds in its key-value space from the start: an array of pointers,
 *   preput_keyval_vector   NULL for none
 *   jobId, jobIdSize       gets the new job's id; hydra 5 does not tell it, then it is empty
 *   errors                 gets count codes, 0 for a command that was started, else its errno; may be NULL
 *
 * PMI2_ERR_INVALID_NUM_ARGS, PMI2_ERR_INVALID_ARGS, PMI2_ERR_INVALID_ARG (a command that is NULL or empty, maxprocs
 * below 1), PMI2_ERR_INVALID_SIZE, PMI2_ERR_INVALID_KEYVALP, PMI2_ERR_INVALID_KEY_LENGTH and
 * PMI2_ERR_INVALID_VAL_LENGTH (of a preput), PMI2_ERR_INVALID_LENGTH (the request is over 64 KiB), PMI2_ERR_OTHER
 * (could not be started: errors says why where the server does; a singleton starts nothing). With PMI2_ERR_NOMEM the
 * processes run, and only the id was cut. */
int PMI2_Job_Spawn(int count, const char *cmds[], int argcs[], const char **argvs[], const int maxprocs[],
                   const int info_keyval_sizes[], const struct MPID_Info *info_keyval_vectors[],
                   int preput_keyval_size, const struct MPID_Info *preput_keyval_vector[], char jobId[],
                   int jobIdSize, int errors[]);

/* Connects this job, and all that it is connected to, with another and all of its. Its key-value space can be read
 * until PMI2_Job_Disconnect or the end of either. Not collective, and may be repeated. conn says that no line of the
 * processes' own is needed (see PMI2_Connect_comm_t). hydra ends the job when asked this.
 * PMI2_ERR_INVALID_ARG, also for a job that does not exist. */
int PMI2_Job_Connect(const char jobid[], PMI2_Connect_comm_t *conn);

/* Takes the connection of these two jobs back. PMI2_ERR_INVALID_ARG, also where there is none. hydra ends the job. */
int PMI2_Job_Disconnect(const char jobid[]);

/* Collective: hands value to both neighbours and gets theirs. rank and ranks are the place in the ring and its length;
 * left is what rank - 1 gave and right what rank + 1 gave, first and last being neighbours; alone, one's own. Each
 * buffer has maxvalue characters. value may be the same memory as left or right. hydra ends the job.
 * PMI2_ERR_INVALID_LENGTH (maxvalue below 1), PMI2_ERR_INVALID_VAL, PMI2_ERR_INVALID_VAL_LENGTH (value does not fit
 * maxvalue, or is longer than PMI2_MAX_VALLEN), PMI2_ERR_INVALID_ARG, PMI2_ERR_NOMEM (a neighbour's was cut). */
#define HAVE_PMIX_RING 1
int PMIX_Ring(const char value[], int *rank, int *ranks, char left[], char right[], int maxvalue);

/* ---- The key-value space ---- */

/* Puts a pair into the job's space. Everybody sees it after the next fence, and some may before. What a second put of
 * the same key means before that fence is not defined (hydrant: the last one counts).
 * PMI2_ERR_INVALID_KEY, PMI2_ERR_INVALID_KEY_LENGTH, PMI2_ERR_INVALID_VAL, PMI2_ERR_INVALID_VAL_LENGTH,
 * PMI2_ERR_NOMEM (the server's space is full). */
int PMI2_KVS_Put(const char key[], const char value[]);

/* Collective: returns when all processes of the job have called it; what they had put can then be got by all. (hydra 5
 * returns at once, and lets the next get wait instead.) */
int PMI2_KVS_Fence(void);

/* Gets a value from the job's own space (jobid NULL, empty or its own id) or from that of a connected job. src_pmi_id
 * is a hint at who put it, PMI2_ID_NULL for none, and may be wrong.
 *
 * vallen gets the value's length without NUL. Where value has no room for that and a NUL, the call succeeds all the
 * same, value holds as much as fits, and vallen is the negative of the length: call again with 1 - *vallen characters.
 * value may be NULL, which counts as a buffer of 0 characters.
 *
 * PMI2_ERR_OTHER when there is no such key; PMI2_ERR_INVALID_KEY, PMI2_ERR_INVALID_KEY_LENGTH,
 * PMI2_ERR_INVALID_LENGTH (maxvalue is negative), PMI2_ERR_INVALID_ARG (vallen is NULL;
 * no such job, or not connected to it). */
int PMI2_KVS_Get(const char *jobid, int src_pmi_id, const char key[], char value[], int maxvalue, int *vallen);

/* ---- Attributes of the node and of the job ---- */

/* Puts an attribute that the job's processes on this node can get, at once. Errors as of PMI2_KVS_Put. */
int PMI2_Info_PutNodeAttr(const char name[], const char value[]);

/* Gets an attribute of the node. found gets 0 or 1; without waitfor a missing one is 0 and no error, with waitfor the
 * call returns when somebody has put it. PMI2_ERR_INVALID_KEY, PMI2_ERR_INVALID_KEY_LENGTH, PMI2_ERR_INVALID_LENGTH,
 * PMI2_ERR_INVALID_ARG, PMI2_ERR_NOMEM. Names that hydrant knows itself: localRanksCount, localRanks. */
int PMI2_Info_GetNodeAttr(const char name[], char value[], int valuelen, int *found, int waitfor);

/* As PMI2_Info_GetNodeAttr without waitfor, for a value like 0,1,2. outlen gets how many integers were written, 0 where
 * nothing was found; a longer list fills the array, so that outlen equal to arraylen may mean that there are more.
 * PMI2_ERR_INVALID_VAL when it is not a list of integers; array may be NULL where arraylen is 0. */
int PMI2_Info_GetNodeAttrIntArray(const char name[], int array[], int arraylen, int *outlen, int *found);

/* Gets an attribute of the job, as PMI2_Info_GetNodeAttr does without waitfor. Names that hydrant knows:
 * PMI_process_mapping, universeSize, hasNameServ, physTopology, isHeterogeneous, PMI_dead_processes. (Slurm's server
 * finds any name, with unrelated text for those that it does not know.) */
int PMI2_Info_GetJobAttr(const char name[], char value[], int valuelen, int *found);

/* As PMI2_Info_GetNodeAttrIntArray, for the job. */
int PMI2_Info_GetJobAttrIntArray(const char name[], int array[], int arraylen, int *outlen, int *found);

/* ---- The name service ---- */

/* Publishes where a service listens, until it is withdrawn or the job ends. info_ptr is ignored. hydrant takes names of
 * up to 127 and ports of up to 1023 characters. PMI2_ERR_INVALID_ARG, PMI2_ERR_INVALID_LENGTH, PMI2_ERR_NOMEM,
 * PMI2_ERR_OTHER (published already). */
int PMI2_Nameserv_publish(const char service_name[], const struct MPID_Info *info_ptr, const char port[]);

/* Gets the port of a published name. PMI2_ERR_OTHER when nobody has published it (other servers: PMI2_FAIL);
 * PMI2_ERR_INVALID_ARG, PMI2_ERR_INVALID_LENGTH, PMI2_ERR_NOMEM. */
int PMI2_Nameserv_lookup(const char service_name[], const struct MPID_Info *info_ptr, char port[], int portLen);

/* Withdraws a name, whoever published it. PMI2_ERR_OTHER when nobody has; PMI2_ERR_INVALID_ARG. */
int PMI2_Nameserv_unpublish(const char service_name[], const struct MPID_Info *info_ptr);

/* ---- The wire ----
 *
 * What the protocol's messages are made of, for programs that name them. No function takes any of it. */

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
