! hydrant_mpi_f08.f90: module of libhydrant_mpi.so for Fortran programs without another MPI library, in the manner of mpi_f08.
!
!     gfortran INCLUDE/hydrant_mpi_f08.f90 program.f90 -lhydrant_mpi
!     hydrant run --mpi-psets -n 4 ./a.out
!
! The calls are those of hydrant_mpi.h, with the names and arguments of MPI 5.0; ierror is optional. Leading and trailing
! blanks of texts that are passed are stripped. Texts that are returned are padded with blanks. Lengths count characters,
! without NUL. MPI_VAL of a handle is its value in C (MPI_Info_f2c and the like). With gfortran 8 and later: logicals and
! the lengths of texts are passed as it passes them.
module hydrant_mpi_f08
    use, intrinsic :: iso_c_binding, only: c_int
    implicit none
    public
    private :: c_int
    type, bind(c) :: MPI_Info
        integer(c_int) :: MPI_VAL
    end type
    type, bind(c) :: MPI_Session
        integer(c_int) :: MPI_VAL
    end type
    type, bind(c) :: MPI_Group
        integer(c_int) :: MPI_VAL
    end type
    type, bind(c) :: MPI_Errhandler
        integer(c_int) :: MPI_VAL
    end type
    integer, parameter :: MPI_VERSION = 5
    integer, parameter :: MPI_SUBVERSION = 0
    type(MPI_Group), parameter :: MPI_GROUP_NULL = MPI_Group(264)
    type(MPI_Group), parameter :: MPI_GROUP_EMPTY = MPI_Group(265)
    type(MPI_Session), parameter :: MPI_SESSION_NULL = MPI_Session(288)
    type(MPI_Info), parameter :: MPI_INFO_NULL = MPI_Info(304)
    type(MPI_Info), parameter :: MPI_INFO_ENV = MPI_Info(305)
    type(MPI_Errhandler), parameter :: MPI_ERRHANDLER_NULL = MPI_Errhandler(320)
    type(MPI_Errhandler), parameter :: MPI_ERRORS_ARE_FATAL = MPI_Errhandler(321)
    type(MPI_Errhandler), parameter :: MPI_ERRORS_ABORT = MPI_Errhandler(322)
    type(MPI_Errhandler), parameter :: MPI_ERRORS_RETURN = MPI_Errhandler(323)

    integer, parameter :: MPI_SUCCESS = 0
    integer, parameter :: MPI_ERR_RANK = 6
    integer, parameter :: MPI_ERR_GROUP = 9
    integer, parameter :: MPI_ERR_ARG = 13
    integer, parameter :: MPI_ERR_OTHER = 16
    integer, parameter :: MPI_ERR_INFO_KEY = 31
    integer, parameter :: MPI_ERR_INFO_NOKEY = 32
    integer, parameter :: MPI_ERR_INFO_VALUE = 33
    integer, parameter :: MPI_ERR_INFO = 34
    integer, parameter :: MPI_ERR_NO_MEM = 39
    integer, parameter :: MPI_ERR_UNSUPPORTED_OPERATION = 55
    integer, parameter :: MPI_ERR_PROC_ABORTED = 58
    integer, parameter :: MPI_ERR_SESSION = 60
    integer, parameter :: MPI_ERR_ERRHANDLER = 61
    integer, parameter :: MPI_IDENT = 201
    integer, parameter :: MPI_SIMILAR = 203
    integer, parameter :: MPI_UNEQUAL = 204
    integer, parameter :: MPI_PROC_NULL = -3
    integer, parameter :: MPI_UNDEFINED = -32766

    ! Lengths of texts.
    integer, parameter :: MPI_MAX_INFO_KEY = 255
    integer, parameter :: MPI_MAX_INFO_VAL = 1024
    integer, parameter :: MPI_MAX_PSET_NAME_LEN = 1023

    abstract interface
        ! An error handler of sessions.
        subroutine MPI_Session_errhandler_function(session, error_code)
            import MPI_Session
            type(MPI_Session) :: session
            integer :: error_code
        end subroutine
    end interface

    interface MPI_Info_create
        subroutine MPI_Info_create_f08(info, ierror)
            import MPI_Info
            type(MPI_Info), intent(out) :: info
            integer, optional, intent(out) :: ierror
        end subroutine
    end interface

    interface MPI_Info_create_env
        subroutine MPI_Info_create_env_f08(info, ierror)
            import MPI_Info
            type(MPI_Info), intent(out) :: info
            integer, optional, intent(out) :: ierror
        end subroutine
    end interface

    interface MPI_Info_set
        subroutine MPI_Info_set_f08(info, key, value, ierror)
            import MPI_Info
            type(MPI_Info), intent(in) :: info
            character(len=*), intent(in) :: key, value
            integer, optional, intent(out) :: ierror
        end subroutine
    end interface

    interface MPI_Info_delete
        subroutine MPI_Info_delete_f08(info, key, ierror)
            import MPI_Info
            type(MPI_Info), intent(in) :: info
            character(len=*), intent(in) :: key
            integer, optional, intent(out) :: ierror
        end subroutine
    end interface

    interface MPI_Info_get
        subroutine MPI_Info_get_f08(info, key, valuelen, value, flag, ierror)
            import MPI_Info
            type(MPI_Info), intent(in) :: info
            character(len=*), intent(in) :: key
            integer, intent(in) :: valuelen
            character(len=*), intent(inout) :: value
            logical, intent(out) :: flag
            integer, optional, intent(out) :: ierror
        end subroutine
    end interface

    interface MPI_Info_get_valuelen
        subroutine MPI_Info_get_valuelen_f08(info, key, valuelen, flag, ierror)
            import MPI_Info
            type(MPI_Info), intent(in) :: info
            character(len=*), intent(in) :: key
            integer, intent(inout) :: valuelen
            logical, intent(out) :: flag
            integer, optional, intent(out) :: ierror
        end subroutine
    end interface

    interface MPI_Info_get_string
        subroutine MPI_Info_get_string_f08(info, key, buflen, value, flag, ierror)
            import MPI_Info
            type(MPI_Info), intent(in) :: info
            character(len=*), intent(in) :: key
            integer, intent(inout) :: buflen
            character(len=*), intent(inout) :: value
            logical, intent(out) :: flag
            integer, optional, intent(out) :: ierror
        end subroutine
    end interface

    interface MPI_Info_get_nkeys
        subroutine MPI_Info_get_nkeys_f08(info, nkeys, ierror)
            import MPI_Info
            type(MPI_Info), intent(in) :: info
            integer, intent(out) :: nkeys
            integer, optional, intent(out) :: ierror
        end subroutine
    end interface

    interface MPI_Info_get_nthkey
        subroutine MPI_Info_get_nthkey_f08(info, n, key, ierror)
            import MPI_Info
            type(MPI_Info), intent(in) :: info
            integer, intent(in) :: n
            character(len=*), intent(inout) :: key
            integer, optional, intent(out) :: ierror
        end subroutine
    end interface

    interface MPI_Info_dup
        subroutine MPI_Info_dup_f08(info, newinfo, ierror)
            import MPI_Info
            type(MPI_Info), intent(in) :: info
            type(MPI_Info), intent(out) :: newinfo
            integer, optional, intent(out) :: ierror
        end subroutine
    end interface

    interface MPI_Info_free
        subroutine MPI_Info_free_f08(info, ierror)
            import MPI_Info
            type(MPI_Info), intent(inout) :: info
            integer, optional, intent(out) :: ierror
        end subroutine
    end interface

    interface MPI_Session_init
        subroutine MPI_Session_init_f08(info, errhandler, session, ierror)
            import MPI_Errhandler, MPI_Info, MPI_Session
            type(MPI_Info), intent(in) :: info
            type(MPI_Errhandler), intent(in) :: errhandler
            type(MPI_Session), intent(out) :: session
            integer, optional, intent(out) :: ierror
        end subroutine
    end interface

    interface MPI_Session_finalize
        subroutine MPI_Session_finalize_f08(session, ierror)
            import MPI_Session
            type(MPI_Session), intent(inout) :: session
            integer, optional, intent(out) :: ierror
        end subroutine
    end interface

    interface MPI_Session_get_info
        subroutine MPI_Session_get_info_f08(session, info_used, ierror)
            import MPI_Info, MPI_Session
            type(MPI_Session), intent(in) :: session
            type(MPI_Info), intent(out) :: info_used
            integer, optional, intent(out) :: ierror
        end subroutine
    end interface

    interface MPI_Session_create_errhandler
        subroutine MPI_Session_create_errhandler_f08(session_errhandler_fn, errhandler, ierror)
            import MPI_Errhandler, MPI_Session_errhandler_function
            procedure(MPI_Session_errhandler_function) :: session_errhandler_fn
            type(MPI_Errhandler), intent(out) :: errhandler
            integer, optional, intent(out) :: ierror
        end subroutine
    end interface

    interface MPI_Session_set_errhandler
        subroutine MPI_Session_set_errhandler_f08(session, errhandler, ierror)
            import MPI_Errhandler, MPI_Session
            type(MPI_Session), intent(in) :: session
            type(MPI_Errhandler), intent(in) :: errhandler
            integer, optional, intent(out) :: ierror
        end subroutine
    end interface

    interface MPI_Session_get_errhandler
        subroutine MPI_Session_get_errhandler_f08(session, errhandler, ierror)
            import MPI_Errhandler, MPI_Session
            type(MPI_Session), intent(in) :: session
            type(MPI_Errhandler), intent(out) :: errhandler
            integer, optional, intent(out) :: ierror
        end subroutine
    end interface

    interface MPI_Session_call_errhandler
        subroutine MPI_Session_call_errhandler_f08(session, errorcode, ierror)
            import MPI_Session
            type(MPI_Session), intent(in) :: session
            integer, intent(in) :: errorcode
            integer, optional, intent(out) :: ierror
        end subroutine
    end interface

    interface MPI_Errhandler_free
        subroutine MPI_Errhandler_free_f08(errhandler, ierror)
            import MPI_Errhandler
            type(MPI_Errhandler), intent(inout) :: errhandler
            integer, optional, intent(out) :: ierror
        end subroutine
    end interface

    interface MPI_Session_get_num_psets
        subroutine MPI_Session_get_num_psets_f08(session, info, npset_names, ierror)
            import MPI_Info, MPI_Session
            type(MPI_Session), intent(in) :: session
            type(MPI_Info), intent(in) :: info
            integer, intent(out) :: npset_names
            integer, optional, intent(out) :: ierror
        end subroutine
    end interface

    interface MPI_Session_get_nth_pset
        subroutine MPI_Session_get_nth_pset_f08(session, info, n, pset_len, pset_name, ierror)
            import MPI_Info, MPI_Session
            type(MPI_Session), intent(in) :: session
            type(MPI_Info), intent(in) :: info
            integer, intent(in) :: n
            integer, intent(inout) :: pset_len
            character(len=*), intent(inout) :: pset_name
            integer, optional, intent(out) :: ierror
        end subroutine
    end interface

    interface MPI_Session_get_pset_info
        subroutine MPI_Session_get_pset_info_f08(session, pset_name, info, ierror)
            import MPI_Info, MPI_Session
            type(MPI_Session), intent(in) :: session
            character(len=*), intent(in) :: pset_name
            type(MPI_Info), intent(out) :: info
            integer, optional, intent(out) :: ierror
        end subroutine
    end interface

    interface MPI_Group_from_session_pset
        subroutine MPI_Group_from_session_pset_f08(session, pset_name, newgroup, ierror)
            import MPI_Group, MPI_Session
            type(MPI_Session), intent(in) :: session
            character(len=*), intent(in) :: pset_name
            type(MPI_Group), intent(out) :: newgroup
            integer, optional, intent(out) :: ierror
        end subroutine
    end interface

    interface MPI_Group_size
        subroutine MPI_Group_size_f08(group, size, ierror)
            import MPI_Group
            type(MPI_Group), intent(in) :: group
            integer, intent(out) :: size
            integer, optional, intent(out) :: ierror
        end subroutine
    end interface

    interface MPI_Group_rank
        subroutine MPI_Group_rank_f08(group, rank, ierror)
            import MPI_Group
            type(MPI_Group), intent(in) :: group
            integer, intent(out) :: rank
            integer, optional, intent(out) :: ierror
        end subroutine
    end interface

    interface MPI_Group_translate_ranks
        subroutine MPI_Group_translate_ranks_f08(group1, n, ranks1, group2, ranks2, ierror)
            import MPI_Group
            type(MPI_Group), intent(in) :: group1
            integer, intent(in) :: n, ranks1(n)
            type(MPI_Group), intent(in) :: group2
            integer, intent(out) :: ranks2(n)
            integer, optional, intent(out) :: ierror
        end subroutine
    end interface

    interface MPI_Group_compare
        subroutine MPI_Group_compare_f08(group1, group2, result, ierror)
            import MPI_Group
            type(MPI_Group), intent(in) :: group1, group2
            integer, intent(out) :: result
            integer, optional, intent(out) :: ierror
        end subroutine
    end interface

    interface MPI_Group_union
        subroutine MPI_Group_union_f08(group1, group2, newgroup, ierror)
            import MPI_Group
            type(MPI_Group), intent(in) :: group1, group2
            type(MPI_Group), intent(out) :: newgroup
            integer, optional, intent(out) :: ierror
        end subroutine
    end interface

    interface MPI_Group_intersection
        subroutine MPI_Group_intersection_f08(group1, group2, newgroup, ierror)
            import MPI_Group
            type(MPI_Group), intent(in) :: group1, group2
            type(MPI_Group), intent(out) :: newgroup
            integer, optional, intent(out) :: ierror
        end subroutine
    end interface

    interface MPI_Group_difference
        subroutine MPI_Group_difference_f08(group1, group2, newgroup, ierror)
            import MPI_Group
            type(MPI_Group), intent(in) :: group1, group2
            type(MPI_Group), intent(out) :: newgroup
            integer, optional, intent(out) :: ierror
        end subroutine
    end interface

    interface MPI_Group_incl
        subroutine MPI_Group_incl_f08(group, n, ranks, newgroup, ierror)
            import MPI_Group
            type(MPI_Group), intent(in) :: group
            integer, intent(in) :: n, ranks(n)
            type(MPI_Group), intent(out) :: newgroup
            integer, optional, intent(out) :: ierror
        end subroutine
    end interface

    interface MPI_Group_excl
        subroutine MPI_Group_excl_f08(group, n, ranks, newgroup, ierror)
            import MPI_Group
            type(MPI_Group), intent(in) :: group
            integer, intent(in) :: n, ranks(n)
            type(MPI_Group), intent(out) :: newgroup
            integer, optional, intent(out) :: ierror
        end subroutine
    end interface

    interface MPI_Group_range_incl
        subroutine MPI_Group_range_incl_f08(group, n, ranges, newgroup, ierror)
            import MPI_Group
            type(MPI_Group), intent(in) :: group
            integer, intent(in) :: n, ranges(3, n)
            type(MPI_Group), intent(out) :: newgroup
            integer, optional, intent(out) :: ierror
        end subroutine
    end interface

    interface MPI_Group_range_excl
        subroutine MPI_Group_range_excl_f08(group, n, ranges, newgroup, ierror)
            import MPI_Group
            type(MPI_Group), intent(in) :: group
            integer, intent(in) :: n, ranges(3, n)
            type(MPI_Group), intent(out) :: newgroup
            integer, optional, intent(out) :: ierror
        end subroutine
    end interface

    interface MPI_Group_free
        subroutine MPI_Group_free_f08(group, ierror)
            import MPI_Group
            type(MPI_Group), intent(inout) :: group
            integer, optional, intent(out) :: ierror
        end subroutine
    end interface

    interface hydrant_pset_define
        subroutine hydrant_pset_define_f08(session, name, nmembers, ranks, ierror)
            import MPI_Session
            type(MPI_Session), intent(in) :: session
            character(len=*), intent(in) :: name
            integer, intent(in) :: nmembers, ranks(nmembers)
            integer, optional, intent(out) :: ierror
        end subroutine
    end interface

    interface hydrant_pset_union
        subroutine hydrant_pset_union_f08(session, pset1, pset2, name, ierror)
            import MPI_Session
            type(MPI_Session), intent(in) :: session
            character(len=*), intent(in) :: pset1, pset2, name
            integer, optional, intent(out) :: ierror
        end subroutine
    end interface

    interface hydrant_pset_intersection
        subroutine hydrant_pset_intersection_f08(session, pset1, pset2, name, ierror)
            import MPI_Session
            type(MPI_Session), intent(in) :: session
            character(len=*), intent(in) :: pset1, pset2, name
            integer, optional, intent(out) :: ierror
        end subroutine
    end interface

    interface hydrant_pset_difference
        subroutine hydrant_pset_difference_f08(session, pset1, pset2, name, ierror)
            import MPI_Session
            type(MPI_Session), intent(in) :: session
            character(len=*), intent(in) :: pset1, pset2, name
            integer, optional, intent(out) :: ierror
        end subroutine
    end interface

    interface hydrant_pset_retire
        subroutine hydrant_pset_retire_f08(session, name, ierror)
            import MPI_Session
            type(MPI_Session), intent(in) :: session
            character(len=*), intent(in) :: name
            integer, optional, intent(out) :: ierror
        end subroutine
    end interface

    interface hydrant_pset_prune
        subroutine hydrant_pset_prune_f08(session, ierror)
            import MPI_Session
            type(MPI_Session), intent(in) :: session
            integer, optional, intent(out) :: ierror
        end subroutine
    end interface

    interface operator(==)
        procedure info_equal
        procedure session_equal
        procedure group_equal
        procedure errhandler_equal
    end interface

    interface operator(/=)
        procedure info_unequal
        procedure session_unequal
        procedure group_unequal
        procedure errhandler_unequal
    end interface

    private :: info_equal, session_equal, group_equal, errhandler_equal
    private :: info_unequal, session_unequal, group_unequal, errhandler_unequal

contains

    elemental logical function info_equal(a, b)
        type(MPI_Info), intent(in) :: a, b
        info_equal = a%MPI_VAL == b%MPI_VAL
    end function

    elemental logical function info_unequal(a, b)
        type(MPI_Info), intent(in) :: a, b
        info_unequal = a%MPI_VAL /= b%MPI_VAL
    end function

    elemental logical function session_equal(a, b)
        type(MPI_Session), intent(in) :: a, b
        session_equal = a%MPI_VAL == b%MPI_VAL
    end function

    elemental logical function session_unequal(a, b)
        type(MPI_Session), intent(in) :: a, b
        session_unequal = a%MPI_VAL /= b%MPI_VAL
    end function

    elemental logical function group_equal(a, b)
        type(MPI_Group), intent(in) :: a, b
        group_equal = a%MPI_VAL == b%MPI_VAL
    end function

    elemental logical function group_unequal(a, b)
        type(MPI_Group), intent(in) :: a, b
        group_unequal = a%MPI_VAL /= b%MPI_VAL
    end function

    elemental logical function errhandler_equal(a, b)
        type(MPI_Errhandler), intent(in) :: a, b
        errhandler_equal = a%MPI_VAL == b%MPI_VAL
    end function

    elemental logical function errhandler_unequal(a, b)
        type(MPI_Errhandler), intent(in) :: a, b
        errhandler_unequal = a%MPI_VAL /= b%MPI_VAL
    end function

end module
