/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * pmi.h: the PMI-1 interface of libpmi.so.0, as hydrant provides it.
 *
 * PMI lets the processes of a parallel job learn their ranks, exchange the addresses on which they listen, and spawn
 * more processes. Names, values and layouts are those of the pmi.h of Slurm. A program built with either header runs
 * with either library. PMI_Barrier_group is that of MPICH's pmi.h (PMI 1.2).
 *
 * FINDING THE SERVER
 *
 *   PMI_FD, PMI_RANK, PMI_SIZE inherited connected socket, rank and size
 *   PMI_PORT, PMI_ID           host:port to connect to, and the rank
 *   neither                    singleton: a job of one process, rank 0, with a server inside the process
 *   PMI_SPAWNED                read with the first two: whether another job spawned this one
 *   PMI_DEBUG=1                prints the reason of each error to standard error
 *
 * ORDER OF CALLS
 *
 *   PMI_Init is the first call and PMI_Finalize the last one, once in a process. A second PMI_Init between the two
 *   returns the same result. PMI_Initialized, PMI_Abort, PMI_Finalize and the functions for lengths may be called at
 *   any time. Every other function returns PMI_FAIL before PMI_Init and after PMI_Finalize.
 *
 * THREADS
 *
 *   Several threads may call any functions. PMI-1 has one request at a time: a call waits until calls of other threads
 *   have their replies, barriers included. Threads of two processes that wait for each other in group barriers must
 *   therefore call them in the same order. A process that was forked after PMI_Init must not call PMI functions.
 *
 * TEXTS
 *
 *   A key has at least 1 character; the functions for lengths return how many at most. A value may contain any character
 *   except NUL and line breaks. The size of an output buffer includes the final NUL. Output texts always end in NUL. A
 *   function that fails leaves its outputs unchanged, except that PMI_ERR_INVALID_LENGTH truncates a text that is longer
 *   than its buffer.
 *
 * RETURN CODES
 *
 *   PMI_SUCCESS; PMI_FAIL if the connection failed, the server refused, or the library is not initialised;
 *   PMI_ERR_INVALID_ARG if a pointer is NULL; others where the function names them.
 */
#ifndef PMI_H_INCLUDED
#define PMI_H_INCLUDED

#ifdef __cplusplus
extern "C" {
#endif

/* Return codes. */
#define PMI_SUCCESS 0                 /* success */
#define PMI_FAIL -1                   /* the connection failed, the server refused, or before PMI_Init */
#define PMI_ERR_INIT 1                /* never returned */
#define PMI_ERR_NOMEM 2               /* a limit of the server is used up */
#define PMI_ERR_INVALID_ARG 3         /* NULL, an empty name, or a number out of range */
#define PMI_ERR_INVALID_KEY 4         /* the key is NULL, empty or too long, or has no value */
#define PMI_ERR_INVALID_KEY_LENGTH 5  /* never returned */
#define PMI_ERR_INVALID_VAL 6         /* the value is NULL or too long */
#define PMI_ERR_INVALID_VAL_LENGTH 7  /* never returned */
#define PMI_ERR_INVALID_LENGTH 8      /* a buffer is too short, or its length is below 1 */
#define PMI_ERR_INVALID_NUM_ARGS 9    /* PMI_Parse_option: num_args is below 1 */
#define PMI_ERR_INVALID_ARGS 10       /* PMI_Parse_option: args is NULL */
#define PMI_ERR_INVALID_NUM_PARSED 11 /* PMI_Parse_option: num_parsed is NULL */
#define PMI_ERR_INVALID_KEYVALP 12    /* a pair has no key or no value; PMI_Parse_option: keyvalp is NULL */
#define PMI_ERR_INVALID_SIZE 13       /* PMI_Parse_option: size is NULL */
#define PMI_ERR_INVALID_KVS 14        /* the key-value space is NULL, empty or unknown */

typedef int PMI_BOOL;
#define PMI_TRUE 1
#define PMI_FALSE 0

/* Size of the buffer of PMI_Lookup_name. */
#define PMI_MAX_PORT_NAME 1024

/* ---- The job ---- */

/* Joins the job. spawned gets 1 if another job spawned this one, else 0. Its errors are printed. */
int PMI_Init(int *spawned);

/* initialized gets PMI_TRUE after a successful PMI_Init, also after PMI_Finalize, else PMI_FALSE. */
int PMI_Initialized(PMI_BOOL *initialized);

/* Leaves the job. Succeeds without effect before PMI_Init and after PMI_Finalize. */
int PMI_Finalize(void);

/* Ends the job and this process with exit_code. error_msg, which may be NULL, is printed. Does not return. */
int PMI_Abort(int exit_code, const char error_msg[]);

/* Number of processes of the job; rank of this one, from 0. */
int PMI_Get_size(int *size);
int PMI_Get_rank(int *rank);

/* Number of processes that the job could have (hydrant run --usize), and number of this process's program on the
 * command line, from 0. -1 if the server does not know it. */
int PMI_Get_universe_size(int *size);
int PMI_Get_appnum(int *appnum);

/* Id of the job, and of the domain in which key-value spaces can be read: both are the name of the job's key-value
 * space. PMI_ERR_INVALID_LENGTH. */
int PMI_Get_id(char id_str[], int length);
int PMI_Get_kvs_domain_id(char id_str[], int length);
int PMI_Get_id_length_max(int *length);

/* Number and ranks of the job's processes on this node, in ascending order. PMI_ERR_INVALID_LENGTH if the array is
 * shorter than the clique: its front is written. PMI_FAIL if the server does not say where ranks run. */
int PMI_Get_clique_size(int *size);
int PMI_Get_clique_ranks(int ranks[], int length);

/* Collective: returns when all processes of the job have called it. All of them can then get every pair put before. */
int PMI_Barrier(void);

/* As PMI_Barrier, for the processes of a group: an array of count different ranks, this process's included, or one of the
 * constants, with which count is not read. tag, which may be NULL, distinguishes barriers of the same processes. PMI_FAIL
 * if the server speaks PMI 1.1 only (Slurm, hydra before 4.3); PMI_GROUP_SELF finds that out.
 * PMI_ERR_INVALID_ARG. */
#define PMI_GROUP_WORLD ((const int *)0)
#define PMI_GROUP_SELF ((const int *)1)
#define PMI_GROUP_NODE ((const int *)2)
int PMI_Barrier_group(const int *group, int count, const char *tag);

/* ---- The key-value space ---- */

/* Name of the job's key-value space. PMI_ERR_INVALID_LENGTH. */
int PMI_KVS_Get_my_name(char kvsname[], int length);

/* Sizes of buffers for names, keys and values. A key or value may have that many characters; a buffer for the longest one
 * needs one more. Before PMI_Init these are the lengths of hydrant's servers. */
int PMI_KVS_Get_name_length_max(int *length);
int PMI_KVS_Get_key_length_max(int *length);
int PMI_KVS_Get_value_length_max(int *length);

/* Puts a pair. Every process can get it after the next barrier, some already before. The result of two puts of the same
 * key before a barrier is undefined (hydrant: the last one is valid). PMI_ERR_INVALID_KVS, PMI_ERR_INVALID_KEY,
 * PMI_ERR_INVALID_VAL, PMI_ERR_NOMEM. */
int PMI_KVS_Put(const char kvsname[], const char key[], const char value[]);

/* Does nothing: puts have reached the server when they return. Programs for other libraries call it before a barrier. */
int PMI_KVS_Commit(const char kvsname[]);

/* Gets a value. PMI_ERR_INVALID_KVS, PMI_ERR_INVALID_KEY (also if there is no such key), PMI_ERR_INVALID_VAL (value is
 * NULL), PMI_ERR_INVALID_LENGTH. */
int PMI_KVS_Get(const char kvsname[], const char key[], char value[], int length);

/* PMI_FAIL: a job has one key-value space. */
int PMI_KVS_Create(char kvsname[], int length);
int PMI_KVS_Destroy(const char kvsname[]);

/* PMI_FAIL: PMI-1 has no request for the keys of a space. */
int PMI_KVS_Iter_first(const char kvsname[], char key[], int key_len, char val[], int val_len);
int PMI_KVS_Iter_next(const char kvsname[], char key[], int key_len, char val[], int val_len);

/* ---- The name service ---- */

/* Publishes the port of a service until PMI_Unpublish_name or the end of the job; withdraws it; gets it. hydrant accepts
 * names of at most 127 and ports of at most 1023 characters. The buffer of PMI_Lookup_name has PMI_MAX_PORT_NAME
 * characters. PMI_FAIL if the name is published already, or is not published; PMI_ERR_INVALID_LENGTH. */
int PMI_Publish_name(const char service_name[], const char port[]);
int PMI_Unpublish_name(const char service_name[]);
int PMI_Lookup_name(const char service_name[], char port[]);

/* ---- Spawning ---- */

/* One pair of info or preput. */
typedef struct PMI_keyval_t {
    char *key;
    char *val;
} PMI_keyval_t;

/* Spawns a job. Returns when all of its processes have been started, or none.
 *
 *   count                  commands, at least 1: the length of the arrays below
 *   cmds                   path or name of each program
 *   argvs                  its arguments, without the program's name, with a NULL at the end; each element and the
 *                          array may be NULL
 *   maxprocs               number of processes of each command, at least 1
 *   info_keyval_sizesp,    pairs of info for each command (wdir, path, host, env, soft, ...): an array of structures;
 *   info_keyval_vectors    both may be NULL if no command has info
 *   preput_keyval_size,    pairs that the key-value space of the new job contains initially
 *   preput_keyval_vector
 *   errors                 gets count codes: 0 for a command that was started, else its errno; may be NULL
 *
 * PMI_ERR_INVALID_ARG, PMI_ERR_INVALID_KEYVALP, PMI_ERR_INVALID_KEY and PMI_ERR_INVALID_VAL (of a preput pair),
 * PMI_ERR_INVALID_LENGTH (the request exceeds 64 KiB), PMI_FAIL (cannot be started; a singleton cannot spawn). */
int PMI_Spawn_multiple(int count, const char *cmds[], const char **argvs[], const int maxprocs[],
                       const int info_keyval_sizesp[], const PMI_keyval_t *info_keyval_vectors[],
                       int preput_keyval_size, const PMI_keyval_t preput_keyval_vector[], int errors[]);

/* Options of a process manager on the command line of a spawn. This library has none: the first two take no argument and
 * return an empty list, the third frees it, the last returns an empty text. */
int PMI_Parse_option(int num_args, char *args[], int *num_parsed, PMI_keyval_t **keyvalp, int *size);
int PMI_Args_to_keyval(int *argcp, char *((*argvp)[]), PMI_keyval_t **keyvalp, int *size);
int PMI_Free_keyvals(PMI_keyval_t keyvalp[], int size);
int PMI_Get_options(char *str, int *length);

#ifdef __cplusplus
}
#endif

#endif
