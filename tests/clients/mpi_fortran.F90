! Rules of the Fortran bindings: blanks, padding, lengths, logicals, ierror (MPI 5.0, chapters 10 and 11, 19.1).
!
!   mpi_fortran [SET]      with the name of a set, communicates in it
!
! Built with libhydrant_mpi alone, or (STOCK) with an MPI library after it; with module mpi_f08, or (MPIF) in the manner of
! mpif.h.
#define CHECK(what) call check(what, __LINE__)
#define OK CHECK(code == MPI_SUCCESS)
#ifdef MPIF
#define HANDLE(kind) integer
#define MPI_VALUE(handle) handle
#else
#define HANDLE(kind) type(kind)
#define MPI_VALUE(handle) handle%MPI_VAL
#endif
#ifdef STOCK
#define OF_HYDRANT(session) MPI_VALUE(session)
#else
#define OF_HYDRANT(session) session
#endif
#ifndef MPIF
module error_handler
#ifdef STOCK
    use mpi_f08
#else
    use hydrant_mpi_f08
#endif
    implicit none
    integer :: handled = 0
contains
    subroutine count_error(session, error_code)
        type(MPI_Session) :: session
        integer :: error_code
        if (session%MPI_VAL /= 0 .and. error_code /= MPI_SUCCESS) handled = handled + 1
    end subroutine
end module
#endif

program mpi_fortran
#ifndef MPIF
    use error_handler
#endif
    use, intrinsic :: iso_c_binding
    implicit none
#ifdef MPIF
#ifdef STOCK
    include 'mpif.h'
#else
    include 'hydrant_mpif.h'
#endif
#endif
    integer :: code
    HANDLE(MPI_Session) :: session

    call MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, session, code)
    OK
#if !(defined(STOCK) && defined(MPIF))
    call info_objects
#endif
    call process_sets
    if (served()) call definitions
#ifdef STOCK
    if (command_argument_count() > 0) call communicate
#else
    call handles
    call groups
#ifndef MPIF
    call errors
#endif
#endif
    call MPI_Session_finalize(session, code)
    OK
#ifndef STOCK
    CHECK(session == MPI_SESSION_NULL)
#endif
    print '(a)', 'fortran is well'

contains

    subroutine check(what, line)
        logical, intent(in) :: what
        integer, intent(in) :: line
        if (what) return
        print '("mpi_fortran.F90:", i0, ": not so")', line
        stop 97
    end subroutine

    logical function served()
        integer :: length
        call get_environment_variable('HYDRANT_QUERY', length=length)
        served = length > 0
    end function

    subroutine info_objects
        HANDLE(MPI_Info) :: info, copy
        character(len=20) :: value
        character(len=*), parameter :: hashes = repeat('#', 20)
        integer :: length
        logical :: flag
        call MPI_Info_create(info, code)
        OK
        ! Blanks at both ends are stripped; a value within its text is padded.
        call MPI_Info_set(info, '  key ', '  two words   ', code)
        OK
        call MPI_Info_get_nkeys(info, length, code)
        CHECK(length == 1)
        call MPI_Info_get_valuelen(info, ' key', length, flag, code)
        CHECK(flag .and. length == 9)
        value = hashes
        call MPI_Info_get(info, 'key  ', len(value), value, flag, code)
        CHECK(flag .and. value == 'two words')
        value = hashes
        call MPI_Info_get(info, 'none', len(value), value, flag, code)
        CHECK(.not. flag .and. value == hashes)
        length = len(value)
        call MPI_Info_get_string(info, ' key ', length, value, flag, code)
        CHECK(flag .and. value == 'two words')
        value = hashes
        length = 0
        call MPI_Info_get_string(info, 'key', length, value, flag, code)
        CHECK(flag .and. value == hashes)
#ifndef STOCK
        ! MPICH 4.0.2 refuses to truncate a value.
        CHECK(length == 9)
        call MPI_Info_get(info, 'key', 3, value, flag, code)
        CHECK(flag .and. value == 'two')
        value = hashes
        length = 3
        call MPI_Info_get_string(info, 'key', length, value, flag, code)
        CHECK(flag .and. length == 9 .and. value == 'two')
        length = 5
        call MPI_Info_get_string(info, 'none', length, value, flag, code)
        CHECK(.not. flag .and. length == 5)
        length = -1
        call MPI_Info_get_string(info, 'key', length, value, flag, code)
        CHECK(code == MPI_ERR_ARG)
        value = hashes
        call MPI_Info_get_nthkey(info, 0, value, code)
        CHECK(value == 'key')
        call MPI_Info_get_nthkey(info, 1, value, code)
        CHECK(code == MPI_ERR_ARG)
        call MPI_Info_set(info, '   ', 'value', code)
        CHECK(code == MPI_ERR_INFO_KEY)
        call MPI_Info_delete(info, 'none', code)
        CHECK(code == MPI_ERR_INFO_NOKEY)
        call MPI_Info_create_env(copy, code)
        OK
        call MPI_Info_get(copy, 'command', len(value), value, flag, code)
        CHECK(flag)
        call MPI_Info_free(copy, code)
#ifndef MPIF
        ! ierror is optional.
        call MPI_Info_create(copy)
        call MPI_Info_free(copy)
#endif
#endif
        call MPI_Info_dup(info, copy, code)
        OK
        call MPI_Info_delete(info, ' key ', code)
        OK
        call MPI_Info_get_nkeys(info, length, code)
        CHECK(length == 0)
        call MPI_Info_get_nkeys(copy, length, code)
        CHECK(length == 1)
        call MPI_Info_free(info, code)
        CHECK(info == MPI_INFO_NULL)
        call MPI_Info_free(copy, code)
        OK
    end subroutine

    integer function sets() result(count)
        call MPI_Session_get_num_psets(session, MPI_INFO_NULL, count, code)
        OK
    end function

    integer function size_of(name) result(size)
        character(len=*), intent(in) :: name
        HANDLE(MPI_Info) :: info
        character(len=12) :: value
        logical :: flag
        call MPI_Session_get_pset_info(session, name, info, code)
        OK
        call MPI_Info_get(info, 'mpi_size', len(value), value, flag, code)
        CHECK(flag)
        read (value, *) size
        call MPI_Info_free(info, code)
    end function

    subroutine process_sets
        HANDLE(MPI_Group) :: group
        character(len=127) :: name
        character(len=5) :: short
        integer :: n, length, size
        do n = 0, sets() - 1
            name = repeat('#', len(name))
            length = len(name)
            call MPI_Session_get_nth_pset(session, MPI_INFO_NULL, n, length, name, code)
            OK
            CHECK(len_trim(name) == length)
            CHECK(index(name, '#') == 0)
            length = len(short)
            call MPI_Session_get_nth_pset(session, MPI_INFO_NULL, n, length, short, code)
            CHECK(length == len_trim(name) .and. short == name(:5))
            short = '#'
            length = 0
            call MPI_Session_get_nth_pset(session, MPI_INFO_NULL, n, length, short, code)
            CHECK(length == len_trim(name) .and. short == '#')
            call MPI_Group_from_session_pset(session, '  '//name, group, code)
            OK
            call MPI_Group_size(group, size, code)
            CHECK(size == size_of(name))
            call MPI_Group_free(group, code)
            print '("set ", i0, " is ", a, " of ", i0)', n, trim(name), size
        end do
    end subroutine

    subroutine definitions
        integer :: world, n, rank
        character(len=8) :: text
        character(len=12) :: own
        world = size_of('mpi://WORLD')
        call hydrant_pset_define(OF_HYDRANT(session), ' every ', world, [(n, n = 0, world - 1)], code)
        OK
        CHECK(size_of('app://every') == world)
        call hydrant_pset_union(OF_HYDRANT(session), 'every ', 'mpi://SELF', 'union', code)
        OK
        call hydrant_pset_intersection(OF_HYDRANT(session), 'every', ' mpi://WORLD', 'both', code)
        OK
        CHECK(size_of(' app://union') == world .and. size_of('both') == world)
        call get_environment_variable('PMI_RANK', text)
        read (text, *) rank
        own = 'own.'//text
        call hydrant_pset_define(OF_HYDRANT(session), own, 1, [rank], code)
        OK
        n = sets()
        call hydrant_pset_retire(OF_HYDRANT(session), ' '//own, code)
        OK
        CHECK(sets() == n .and. size_of(own) == 1)
        call hydrant_pset_prune(OF_HYDRANT(session), code)
        OK
        CHECK(sets() == n - 1)
#ifndef STOCK
        ! MPICH 4.0.2 ends the program.
        call hydrant_pset_difference(OF_HYDRANT(session), 'every', 'mpi://WORLD', 'none', code)
        CHECK(code == MPI_ERR_ARG)
#endif
    end subroutine

#ifdef STOCK
    ! A communicator of a set works.
    subroutine communicate
        character(len=20) :: name
        HANDLE(MPI_Group) :: group
        HANDLE(MPI_Comm) :: comm
        integer :: one, sum
        one = 1
        call get_command_argument(1, name)
        call MPI_Group_from_session_pset(session, name, group, code)
        OK
        call MPI_Comm_create_from_group(group, trim(name), MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, comm, code)
        OK
        call MPI_Allreduce(one, sum, 1, MPI_INTEGER, MPI_SUM, comm, code)
        CHECK(sum == size_of(name))
        call MPI_Group_free(group, code)
        call MPI_Comm_disconnect(comm, code)
        print '(a, " has communicated")', trim(name)
    end subroutine
#else
    ! INTEGER handles are those of C.
    subroutine handles
        interface
            integer(c_int) function c_nkeys(info, nkeys) bind(c, name='MPI_Info_get_nkeys')
                import c_int, c_intptr_t
                integer(c_intptr_t), value :: info
                integer(c_int) :: nkeys
            end function
        end interface
        HANDLE(MPI_Info) :: info
        integer(c_int) :: keys
        call MPI_Info_create(info, code)
        call MPI_Info_set(info, 'key', 'value', code)
        CHECK(c_nkeys(int(MPI_VALUE(info), c_intptr_t), keys) == MPI_SUCCESS)
        CHECK(keys == 1)
        call MPI_Info_free(info, code)
    end subroutine

    subroutine groups
        HANDLE(MPI_Group) :: world, own, other
        integer :: size, rank, result, ranks(1)
        call MPI_Group_from_session_pset(session, 'mpi://WORLD', world, code)
        OK
        call MPI_Group_from_session_pset(session, 'mpi://SELF', own, code)
        OK
        call MPI_Group_size(world, size, code)
        call MPI_Group_rank(world, rank, code)
        call MPI_Group_translate_ranks(own, 1, [0], world, ranks, code)
        CHECK(ranks(1) == rank)
        call MPI_Group_incl(world, 1, [rank], other, code)
        call MPI_Group_compare(own, other, result, code)
        CHECK(result == MPI_IDENT)
        call MPI_Group_free(other, code)
        CHECK(other == MPI_GROUP_NULL)
        call MPI_Group_range_incl(world, 1, reshape([0, size - 1, 1], [3, 1]), other, code)
        call MPI_Group_compare(world, other, result, code)
        CHECK(result == MPI_IDENT)
        call MPI_Group_range_excl(world, 1, reshape([0, size - 1, 1], [3, 1]), other, code)
        CHECK(other == MPI_GROUP_EMPTY)
        call MPI_Group_difference(own, world, other, code)
        CHECK(other == MPI_GROUP_EMPTY)
        call MPI_Group_intersection(own, world, other, code)
        call MPI_Group_compare(own, other, result, code)
        CHECK(result == MPI_IDENT)
        call MPI_Group_union(own, world, other, code)
        call MPI_Group_compare(world, other, result, code)
        CHECK(result /= MPI_UNEQUAL)
        call MPI_Group_excl(world, 1, [rank], other, code)
        call MPI_Group_size(other, result, code)
        CHECK(result == size - 1)
        call MPI_Group_incl(world, 1, [size], other, code)
        CHECK(code == MPI_ERR_RANK)
    end subroutine

#ifndef MPIF
    subroutine errors
        type(MPI_Errhandler) :: own, used
        type(MPI_Info) :: info
        character(len=24) :: level
        logical :: flag
        call MPI_Session_create_errhandler(count_error, own, code)
        OK
        call MPI_Session_set_errhandler(session, own)
        call MPI_Session_get_errhandler(session, used)
        CHECK(used == own)
        call MPI_Session_get_pset_info(session, 'no://such', info, code)
        CHECK(code == MPI_ERR_ARG .and. handled == 1)
        call MPI_Session_call_errhandler(session, MPI_ERR_OTHER)
        CHECK(handled == 2)
        call MPI_Errhandler_free(used)
        call MPI_Errhandler_free(own)
        CHECK(own == MPI_ERRHANDLER_NULL)
        call MPI_Session_get_info(session, info)
        call MPI_Info_get(info, 'thread_level', len(level), level, flag)
        CHECK(flag .and. level == 'MPI_THREAD_MULTIPLE')
        call MPI_Info_free(info)
    end subroutine
#endif
#endif
end program
