! Coupled model of an ocean and an atmosphere, which are two process sets of one job.
!
!   hydrant run --mpi-psets -n 2 --pset ocean ./model : -n 3 --pset atmos ./model
!
! Each process finds its component in its process sets, and its part of the columns of the earth by its rank in that set. With
! an MPI library (STOCK), the components then exchange heat. Without one, libhydrant_mpi alone, that is all.
program mpi_ocean
#ifdef STOCK
    use mpi_f08
#else
    use hydrant_mpi_f08
#endif
    implicit none
    integer, parameter :: columns = 12
    type(MPI_Session) :: session
    type(MPI_Group) :: world, group, others
    character(len=:), allocatable :: component
    integer :: rank, size, first, last, peer(1)

    call MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, session)
    component = own_component()
    call MPI_Group_from_session_pset(session, 'mpi://WORLD', world)
    call MPI_Group_from_session_pset(session, component, group)
    call MPI_Group_difference(world, group, others)
    call MPI_Group_translate_ranks(others, 1, [0], world, peer)
    call MPI_Group_rank(group, rank)
    call MPI_Group_size(group, size)
    first = rank * columns / size + 1
    last = (rank + 1) * columns / size
    print '(a, ": rank ", i0, " of ", i0, ", columns ", i0, " to ", i0, ", coupled with rank ", i0)', &
        component, rank, size, first, last, peer
#ifdef STOCK
    call compute
#endif
    call MPI_Group_free(others)
    call MPI_Group_free(group)
    call MPI_Group_free(world)
    call MPI_Session_finalize(session)

contains

    ! The process set of this program: the first one that --pset named.
    function own_component() result(name)
        character(len=:), allocatable :: name
        character(len=127) :: text
        integer :: n, count, length
        call MPI_Session_get_num_psets(session, MPI_INFO_NULL, count)
        do n = 0, count - 1
            length = len(text)
            call MPI_Session_get_nth_pset(session, MPI_INFO_NULL, n, length, text)
            name = text(:length)
            if (index(name, 'app://') == 1) return
        end do
        error stop 'no process set of this program'
    end function

#ifdef STOCK
    ! Heat flows between the columns of both components. Their sum stays the same.
    subroutine compute
        type(MPI_Comm) :: all, own
        real(kind(1d0)), dimension(columns) :: mine, theirs
        integer :: step, n, counts(size), starts(size)
        call MPI_Comm_create_from_group(world, 'all', MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, all)
        call MPI_Comm_create_from_group(group, component, MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, own)
        starts = [(n * columns / size, n = 0, size - 1)]
        counts = [(n * columns / size, n = 1, size)] - starts
        mine = merge(16d0, 0d0, component == 'app://ocean')
        do step = 1, 2
            if (rank == 0) call MPI_Sendrecv(mine, columns, MPI_DOUBLE_PRECISION, peer(1), step, &
                theirs, columns, MPI_DOUBLE_PRECISION, peer(1), step, all, MPI_STATUS_IGNORE)
            call MPI_Bcast(theirs, columns, MPI_DOUBLE_PRECISION, 0, own)
            mine(first:last) = mine(first:last) + (theirs(first:last) - mine(first:last)) / 4
            call MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, &
                mine, counts, starts, MPI_DOUBLE_PRECISION, own)
        end do
        if (rank == 0) print '(a, ": ", f0.1, " degrees in each of ", i0, " columns")', &
            component, mine(1), count(mine == mine(1))
        call MPI_Comm_disconnect(own)
        call MPI_Comm_disconnect(all)
    end subroutine
#endif
end program
