/*
 * hydrant_mpi.h: the C interface of libhydrant_mpi.so.
 *
 * There are two ways to use the library:
 *
 * 1. Standalone, for programs without another MPI library: Info objects, Sessions with their process sets, and
 *    groups of these, as declared below. Names, constants and handles are those of the standard ABI (MPI 5.0, chapter 20).
 *        cc program.c -lhydrant_mpi
 *        hydrant run --mpi-psets -n 4 ./a.out
 * 2. Interposed, in front of an MPI library with MPICH's ABI (libmpi.so.12) or the standard ABI (libmpi_abi.so.1):
 *    include <mpi.h> first, and this file only for hydrant_pset_.... MPI_Session_get_num_psets,
 *    MPI_Session_get_nth_pset, MPI_Session_get_pset_info and MPI_Group_from_session_pset then include hydrant's process
 *    sets after those of the library. Every other call is forwarded to the library. hydrant run --mpi-psets preloads
 *    the library for unchanged programs.
 *        mpicc program.c -Wl,--no-as-needed -lhydrant_mpi
 *    A linker with --as-needed, the default of some systems, drops the MPI library of a program all of whose calls are declared
 *    below. hydrant_mpi.pc has this flag.
 *
 * Process sets of a rank under hydrant run --mpi-psets: mpi://WORLD, mpi://SELF, hydrant://node/HOST, hydrant://app/N,
 * those of --pset, and those that ranks define. After a spawn also hydrant://job/NAME, and hydrant://job/NAME/with-parent for
 * the ranks of the spawned job and of its parent. Without that option there are only the first two. mpi://WORLD then has
 * PMI_SIZE processes, or one if the variable is not set.
 *
 * Any thread may make any call. A call returns MPI_SUCCESS, or an error class if the error handler returns. The error
 * handler of an error is that of the session. For Info calls and invalid session handles it is the initial error
 * handler (MPI 5.0, 9.3): MPI_ERRORS_ARE_FATAL, unless HYDRANT_MPI_INITIAL_ERRHANDLER in the environment is
 * mpi_errors_abort or mpi_errors_return. MPI_ERRORS_ARE_FATAL ends the job by SIGABRT. MPI_ERRORS_ABORT ends the process
 * with the error class as its exit code.
 */
#ifndef HYDRANT_MPI_H
#define HYDRANT_MPI_H

#ifndef MPI_VERSION

#include <stdint.h>

#define MPI_VERSION 5
#define MPI_SUBVERSION 0

#ifdef __cplusplus
extern "C" {
#endif

typedef struct MPI_ABI_Session *MPI_Session;
typedef struct MPI_ABI_Group *MPI_Group;
typedef struct MPI_ABI_Info *MPI_Info;
typedef struct MPI_ABI_Errhandler *MPI_Errhandler;
typedef void(MPI_Session_errhandler_function)(MPI_Session *session, int *error_code, ...);

/* INTEGER of Fortran, and the handle that has this value in Fortran. */
typedef int MPI_Fint;
#define MPI_Session_c2f(session) ((MPI_Fint)(intptr_t)(session))
#define MPI_Session_f2c(session) ((MPI_Session)(intptr_t)(session))
#define MPI_Group_c2f(group) ((MPI_Fint)(intptr_t)(group))
#define MPI_Group_f2c(group) ((MPI_Group)(intptr_t)(group))
#define MPI_Info_c2f(info) ((MPI_Fint)(intptr_t)(info))
#define MPI_Info_f2c(info) ((MPI_Info)(intptr_t)(info))
#define MPI_Errhandler_c2f(errhandler) ((MPI_Fint)(intptr_t)(errhandler))
#define MPI_Errhandler_f2c(errhandler) ((MPI_Errhandler)(intptr_t)(errhandler))

#define MPI_GROUP_NULL ((MPI_Group)0x108)
#define MPI_GROUP_EMPTY ((MPI_Group)0x109)
#define MPI_SESSION_NULL ((MPI_Session)0x120)
#define MPI_INFO_NULL ((MPI_Info)0x130)
#define MPI_INFO_ENV ((MPI_Info)0x131)
#define MPI_ERRHANDLER_NULL ((MPI_Errhandler)0x140)
#define MPI_ERRORS_ARE_FATAL ((MPI_Errhandler)0x141)
#define MPI_ERRORS_ABORT ((MPI_Errhandler)0x142)
#define MPI_ERRORS_RETURN ((MPI_Errhandler)0x143)

enum {
    MPI_SUCCESS = 0,
    MPI_ERR_RANK = 6,                   /* a rank that the group does not have, or that is given twice */
    MPI_ERR_GROUP = 9,                  /* invalid or freed group */
    MPI_ERR_ARG = 13,                   /* invalid index, length or pointer; unknown process set */
    MPI_ERR_OTHER = 16,                 /* the connection to hydrant failed */
    MPI_ERR_INFO_KEY = 31,              /* a key to set is empty, or a key is longer than 255 bytes */
    MPI_ERR_INFO_NOKEY = 32,            /* MPI_Info_delete: no such key, also of a length that no key has */
    MPI_ERR_INFO_VALUE = 33,            /* the value is longer than 1024 bytes */
    MPI_ERR_INFO = 34,                  /* invalid info handle, or a change of MPI_INFO_ENV */
    MPI_ERR_NO_MEM = 39,                /* no memory, or hydrant's table of process sets is full */
    MPI_ERR_UNSUPPORTED_OPERATION = 55, /* hydrant_pset_define without hydrant run --mpi-psets; in front of an MPI library,
                                           a group of processes of two jobs */
    MPI_ERR_PROC_ABORTED = 58,          /* a member of the process set has died or failed */
    MPI_ERR_SESSION = 60,               /* invalid or finalized session */
    MPI_ERR_ERRHANDLER = 61             /* invalid error handler */
};

/* Results of MPI_Group_compare; ranks that are none. */
enum { MPI_IDENT = 201, MPI_SIMILAR = 203, MPI_UNEQUAL = 204 };
enum { MPI_PROC_NULL = -3, MPI_UNDEFINED = -32766 };

/* Array lengths for keys and for names of process sets, with NUL; maximum length of a value, without NUL. */
#define MPI_MAX_INFO_KEY 256
#define MPI_MAX_INFO_VAL 1024
#define MPI_MAX_PSET_NAME_LEN 1024

/* Info objects (MPI 5.0, chapter 10) hold as many pairs as memory has room for. The number of a key
   stays the same until a key is deleted, also if the key is set again. The buffer of MPI_Info_get has valuelen
   characters and a NUL. That of MPI_Info_get_string has *buflen bytes; *buflen is set to the required size with NUL. */
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

/* Sessions (MPI 5.0, 11.3): any number, at any time, finalized in any order. Hints of MPI_Session_init: thread_level,
   strict_finalize, mpi_memory_alloc_kinds. MPI_Session_get_info returns the hints in effect. */
int MPI_Session_init(MPI_Info info, MPI_Errhandler errhandler, MPI_Session *session);
int MPI_Session_finalize(MPI_Session *session);
int MPI_Session_get_info(MPI_Session session, MPI_Info *info);
int MPI_Session_create_errhandler(MPI_Session_errhandler_function *function, MPI_Errhandler *errhandler);
int MPI_Session_set_errhandler(MPI_Session session, MPI_Errhandler errhandler);
int MPI_Session_get_errhandler(MPI_Session session, MPI_Errhandler *errhandler);
int MPI_Session_call_errhandler(MPI_Session session, int error_code);
int MPI_Errhandler_free(MPI_Errhandler *errhandler);

/* Process sets of which this process is a member (MPI 5.0, 11.3.2). *pset_len is the size of the buffer, and is set to
   the required size with NUL. A buffer of size 0 is not written. Info key mpi_size is the number of processes. */
int MPI_Session_get_num_psets(MPI_Session session, MPI_Info info, int *npset_names);
int MPI_Session_get_nth_pset(MPI_Session session, MPI_Info info, int n, int *pset_len, char *pset_name);
int MPI_Session_get_pset_info(MPI_Session session, const char *pset_name, MPI_Info *info);

/* Groups of processes (MPI 5.0, 7.3). MPI_Group_from_session_pset makes a group of a process set: its ranks are in the
   order of mpi://WORLD, and those of another job follow or precede them, in the same order for all processes. All other calls are local. A result without processes is MPI_GROUP_EMPTY, which may be freed. The
   error handler is that of the session from which the first group is derived, while the session is open. */
int MPI_Group_from_session_pset(MPI_Session session, const char *pset_name, MPI_Group *newgroup);
int MPI_Group_size(MPI_Group group, int *size);
int MPI_Group_rank(MPI_Group group, int *rank);
int MPI_Group_translate_ranks(MPI_Group group1, int n, const int ranks1[], MPI_Group group2, int ranks2[]);
int MPI_Group_compare(MPI_Group group1, MPI_Group group2, int *result);
int MPI_Group_union(MPI_Group group1, MPI_Group group2, MPI_Group *newgroup);
int MPI_Group_intersection(MPI_Group group1, MPI_Group group2, MPI_Group *newgroup);
int MPI_Group_difference(MPI_Group group1, MPI_Group group2, MPI_Group *newgroup);
int MPI_Group_incl(MPI_Group group, int n, const int ranks[], MPI_Group *newgroup);
int MPI_Group_excl(MPI_Group group, int n, const int ranks[], MPI_Group *newgroup);
int MPI_Group_range_incl(MPI_Group group, int n, int ranges[][3], MPI_Group *newgroup);
int MPI_Group_range_excl(MPI_Group group, int n, int ranges[][3], MPI_Group *newgroup);
int MPI_Group_free(MPI_Group *group);

#ifdef __cplusplus
}
#endif

#endif /* MPI_VERSION */

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Defines a process set of the job while it runs. The members' next query returns it, after all earlier sets. The set
 * exists until it is pruned or the job ends.
 *
 * session    an open session of this process
 * name       1 to 127 printable characters except blanks and ';', not beginning with mpi://. A name without "://" gets
 *            the scheme app: ocean is listed as app://ocean, and every call finds the set by both names.
 * nmembers   number of ranks, at least 1
 * ranks      ranks in mpi://WORLD of this job, in any order; the caller need not be a member
 *
 * The call is not collective: one process is enough to define a set. Defining it again with the same members succeeds,
 * so that every member may. Errors, with the session's error handler: MPI_ERR_ARG for an invalid name or rank, and for a
 * name that exists with other members or is retired; MPI_ERR_NO_MEM if the limit psets is reached (hydrant run --limit psets=N);
 * MPI_ERR_UNSUPPORTED_OPERATION without hydrant run --mpi-psets.
 */
int hydrant_pset_define(MPI_Session session, const char *name, int nmembers, const int ranks[]);

/*
 * Define process set `name` from two sets of which this process is a member: the ranks in either, the ranks in both, the
 * ranks in pset1 that are not in pset2. mpi://WORLD and mpi://SELF are such sets too. The rules are those of
 * hydrant_pset_define: one process is enough, and every process that knows both sets may make the call. Further errors:
 * MPI_ERR_ARG for a set that does not exist or of which this process is not a member, and for a result without ranks;
 * MPI_ERR_PROC_ABORTED for a set with a dead member. A set with ranks of two jobs exists until one of them is over.
 */
int hydrant_pset_union(MPI_Session session, const char *pset1, const char *pset2, const char *name);
int hydrant_pset_intersection(MPI_Session session, const char *pset1, const char *pset2, const char *name);
int hydrant_pset_difference(MPI_Session session, const char *pset1, const char *pset2, const char *name);

/*
 * Retire a process set, and remove the retired sets. The standard forbids that a set leaves the list of a process. The
 * process itself decides when that is safe:
 *
 * hydrant_pset_retire  a member retires a set, also one of hydrant or of --pset. Processes that have it in their list keep
 *                      it there and may use it. It does not appear in the list of other processes.
 * hydrant_pset_prune   removes all retired sets of which this process is a member, and drops them from its list. The
 *                      other sets of the list keep their order and are numbered again. In the list of another process a
 *                      removed set stays until that process prunes its list too. Its use is an error of class
 *                      MPI_ERR_ARG, also when a new set has the name: the process gets that one after its prune.
 *
 * A name may be used again after the set is removed, not while it is retired. The list is that of the process and is the
 * same for all its sessions. Errors: MPI_ERR_ARG for mpi://WORLD, mpi://SELF, and a set that does not exist or of which this
 * process is not a member; MPI_ERR_UNSUPPORTED_OPERATION without hydrant run --mpi-psets.
 */
int hydrant_pset_retire(MPI_Session session, const char *name);
int hydrant_pset_prune(MPI_Session session);

#ifdef __cplusplus
}
#endif

#endif
