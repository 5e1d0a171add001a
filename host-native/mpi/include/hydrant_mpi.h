/*
 * hydrant_mpi.h: libhydrant_mpi.so for C programs.
 *
 * Two ways to use it:
 *
 * 1. Alone, for programs without another MPI library: MPI's Info objects and Sessions with their process sets, as
 *    declared below. Names, constants and handles are those of the standard ABI (MPI 5.0, chapter 20).
 *        cc program.c -lhydrant_mpi
 *        hydrant run --mpi-psets -n 4 ./a.out
 * 2. In front of an MPI library that has MPICH's ABI (libmpi.so.12) or the standard one (libmpi_abi.so.1): include
 *    <mpi.h> first, and this file only for hydrant_pset_define. MPI_Session_get_num_psets, MPI_Session_get_nth_pset,
 *    MPI_Session_get_pset_info and MPI_Group_from_session_pset then know hydrant's process sets behind those of the
 *    library; every other call is the library's own. hydrant run --mpi-psets does this for unchanged programs.
 *        mpicc program.c -lhydrant_mpi
 *
 * Process sets that a rank is in under hydrant run --mpi-psets: mpi://WORLD, mpi://SELF, hydrant://node/HOST,
 * hydrant://app/N, those of --pset, and those that ranks define. Started in another way there are the first two, with
 * as many processes in mpi://WORLD as PMI_SIZE says, otherwise one.
 *
 * All calls may come from any thread. All return MPI_SUCCESS or, where the error handler comes back, an error class.
 * Errors of a session go to its handler. Errors of Info calls, and of handles that are no open session, go to the
 * initial handler (MPI 5.0, 9.3): MPI_ERRORS_ARE_FATAL, unless HYDRANT_MPI_INITIAL_ERRHANDLER in the environment is
 * mpi_errors_abort or mpi_errors_return. MPI_ERRORS_ARE_FATAL ends the job by SIGABRT, MPI_ERRORS_ABORT the process,
 * with the error class as its exit code.
 */
#ifndef HYDRANT_MPI_H
#define HYDRANT_MPI_H

#ifndef MPI_VERSION

#define MPI_VERSION 5
#define MPI_SUBVERSION 0

#ifdef __cplusplus
extern "C" {
#endif

typedef struct MPI_ABI_Session *MPI_Session;
typedef struct MPI_ABI_Info *MPI_Info;
typedef struct MPI_ABI_Errhandler *MPI_Errhandler;
typedef void(MPI_Session_errhandler_function)(MPI_Session *session, int *error_code, ...);

#define MPI_SESSION_NULL ((MPI_Session)0x120)
#define MPI_INFO_NULL ((MPI_Info)0x130)
#define MPI_INFO_ENV ((MPI_Info)0x131)
#define MPI_ERRHANDLER_NULL ((MPI_Errhandler)0x140)
#define MPI_ERRORS_ARE_FATAL ((MPI_Errhandler)0x141)
#define MPI_ERRORS_ABORT ((MPI_Errhandler)0x142)
#define MPI_ERRORS_RETURN ((MPI_Errhandler)0x143)

enum {
    MPI_SUCCESS = 0,
    MPI_ERR_ARG = 13,                   /* an index, a length or a pointer that cannot be; an unknown process set */
    MPI_ERR_OTHER = 16,                 /* the connection to hydrant failed */
    MPI_ERR_INFO_KEY = 31,              /* a key that is empty or over 255 bytes */
    MPI_ERR_INFO_NOKEY = 32,            /* MPI_Info_delete of a key that is not there */
    MPI_ERR_INFO_VALUE = 33,            /* a value over 1024 bytes */
    MPI_ERR_INFO = 34,                  /* no info object, or MPI_INFO_ENV where it would be changed */
    MPI_ERR_NO_MEM = 39,                /* an info object is full (64 KiB); hydrant's table of process sets is */
    MPI_ERR_UNSUPPORTED_OPERATION = 55, /* hydrant_pset_define where nobody keeps process sets */
    MPI_ERR_PROC_ABORTED = 58,          /* a process of the process set has died */
    MPI_ERR_SESSION = 60,               /* no session, or one that is finalized */
    MPI_ERR_ERRHANDLER = 61             /* no error handler */
};

/* Lengths of arrays for keys and for names of process sets, NUL included; the longest value, without. */
#define MPI_MAX_INFO_KEY 256
#define MPI_MAX_INFO_VAL 1024
#define MPI_MAX_PSET_NAME_LEN 1024

/* Info objects (MPI 5.0, chapter 10): up to 64 KiB of pairs, each of which takes its length and 3 bytes. Keys keep
   their number while none is deleted; setting a key again keeps its number too. MPI_Info_get wants room for valuelen
   characters and a NUL, MPI_Info_get_string for *buflen bytes, and sets *buflen to what is needed, NUL included. */
int MPI_Info_create(MPI_Info *info);
int MPI_Info_create_env(int argc, char *argv[], MPI_Info *info);
int MPI_Info_set(MPI_Info info, const char *key, const char *value);
int MPI_Info_delete(MPI_Info info, const char *key);
int MPI_Info_get(MPI_Info info, const char *key, int valuelen, char *value, int *flag);
int MPI_Info_get_valuelen(MPI_Info info, const char *key, int *valuelen, int *flag);
int MPI_Info_get_string(MPI_Info info, const char *key, int *buflen, char *value, int *flag);
int MPI_Info_get_nkeys(MPI_Info info, int *nkeys);
int MPI_Info_get_nthkey(MPI_Info info, int n, char *key);
int MPI_Info_dup(MPI_Info info, MPI_Info *newinfo);
int MPI_Info_free(MPI_Info *info);

/* Sessions (MPI 5.0, 11.3). Any number of them, at any time, finalized in any order. Hints to MPI_Session_init that
   are heeded: thread_level, strict_finalize, mpi_memory_alloc_kinds; MPI_Session_get_info gives those in force. */
int MPI_Session_init(MPI_Info info, MPI_Errhandler errhandler, MPI_Session *session);
int MPI_Session_finalize(MPI_Session *session);
int MPI_Session_get_info(MPI_Session session, MPI_Info *info);
int MPI_Session_create_errhandler(MPI_Session_errhandler_function *function, MPI_Errhandler *errhandler);
int MPI_Session_set_errhandler(MPI_Session session, MPI_Errhandler errhandler);
int MPI_Session_get_errhandler(MPI_Session session, MPI_Errhandler *errhandler);
int MPI_Session_call_errhandler(MPI_Session session, int error_code);
int MPI_Errhandler_free(MPI_Errhandler *errhandler);

/* Process sets that this process is in (MPI 5.0, 11.3.2). *pset_len is the size of the buffer, and becomes the size
   that the whole name needs, NUL included; 0 leaves the buffer alone. Info key mpi_size is the number of processes. */
int MPI_Session_get_num_psets(MPI_Session session, MPI_Info info, int *npset_names);
int MPI_Session_get_nth_pset(MPI_Session session, MPI_Info info, int n, int *pset_len, char *pset_name);
int MPI_Session_get_pset_info(MPI_Session session, const char *pset_name, MPI_Info *info);

#ifdef __cplusplus
}
#endif

#endif /* MPI_VERSION */

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Defines a process set of the job, at run time. The members see it from their next query on, behind all sets that
 * they knew before; it stays until the job ends.
 *
 * session    an open session of this process
 * name       1 to 127 printable characters without blanks and ';', not beginning with mpi://
 * nmembers   how many ranks follow; at least 1
 * ranks      ranks in mpi://WORLD of this job, in any order; the caller need not be among them
 *
 * It is not collective: one process defines a set, and the others need not do anything. Defining the same name with
 * the same members again succeeds, so that all of them may. Errors, of the session's handler: MPI_ERR_ARG for a name
 * or a rank that cannot be, and for a name that has other members already; MPI_ERR_NO_MEM when the limit psets is used
 * up (hydrant run --limit psets=N); MPI_ERR_UNSUPPORTED_OPERATION without hydrant run --mpi-psets.
 */
int hydrant_pset_define(MPI_Session session, const char *name, int nmembers, const int ranks[]);

#ifdef __cplusplus
}
#endif

#endif
