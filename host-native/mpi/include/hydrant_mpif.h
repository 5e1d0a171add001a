! hydrant_mpif.h: constants of libhydrant_mpi.so for Fortran programs without another MPI library, in the manner of mpif.h.
!
!     include 'hydrant_mpif.h'       in fixed and in free form
!     gfortran -I INCLUDE program.f -lhydrant_mpi
!
! The calls are those of hydrant_mpi.h, with the Fortran arguments of MPI 5.0: handles are INTEGER, flags LOGICAL, texts
! CHARACTER*(*), and IERROR is the last argument. Leading and trailing blanks of texts that are passed are stripped. Texts
! that are returned are padded with blanks. Lengths count characters, without NUL. With gfortran 8 and later: the lengths of
! texts are passed as it passes them.
!
      integer MPI_VERSION
      parameter (MPI_VERSION=5)
      integer MPI_SUBVERSION
      parameter (MPI_SUBVERSION=0)
      integer MPI_GROUP_NULL
      parameter (MPI_GROUP_NULL=264)
      integer MPI_GROUP_EMPTY
      parameter (MPI_GROUP_EMPTY=265)
      integer MPI_SESSION_NULL
      parameter (MPI_SESSION_NULL=288)
      integer MPI_INFO_NULL
      parameter (MPI_INFO_NULL=304)
      integer MPI_INFO_ENV
      parameter (MPI_INFO_ENV=305)
      integer MPI_ERRHANDLER_NULL
      parameter (MPI_ERRHANDLER_NULL=320)
      integer MPI_ERRORS_ARE_FATAL
      parameter (MPI_ERRORS_ARE_FATAL=321)
      integer MPI_ERRORS_ABORT
      parameter (MPI_ERRORS_ABORT=322)
      integer MPI_ERRORS_RETURN
      parameter (MPI_ERRORS_RETURN=323)
      integer MPI_SUCCESS
      parameter (MPI_SUCCESS=0)
      integer MPI_ERR_RANK
      parameter (MPI_ERR_RANK=6)
      integer MPI_ERR_GROUP
      parameter (MPI_ERR_GROUP=9)
      integer MPI_ERR_ARG
      parameter (MPI_ERR_ARG=13)
      integer MPI_ERR_OTHER
      parameter (MPI_ERR_OTHER=16)
      integer MPI_ERR_INFO_KEY
      parameter (MPI_ERR_INFO_KEY=31)
      integer MPI_ERR_INFO_NOKEY
      parameter (MPI_ERR_INFO_NOKEY=32)
      integer MPI_ERR_INFO_VALUE
      parameter (MPI_ERR_INFO_VALUE=33)
      integer MPI_ERR_INFO
      parameter (MPI_ERR_INFO=34)
      integer MPI_ERR_NO_MEM
      parameter (MPI_ERR_NO_MEM=39)
      integer MPI_ERR_UNSUPPORTED_OPERATION
      parameter (MPI_ERR_UNSUPPORTED_OPERATION=55)
      integer MPI_ERR_PROC_ABORTED
      parameter (MPI_ERR_PROC_ABORTED=58)
      integer MPI_ERR_SESSION
      parameter (MPI_ERR_SESSION=60)
      integer MPI_ERR_ERRHANDLER
      parameter (MPI_ERR_ERRHANDLER=61)
      integer MPI_IDENT
      parameter (MPI_IDENT=201)
      integer MPI_SIMILAR
      parameter (MPI_SIMILAR=203)
      integer MPI_UNEQUAL
      parameter (MPI_UNEQUAL=204)
      integer MPI_PROC_NULL
      parameter (MPI_PROC_NULL=-3)
      integer MPI_UNDEFINED
      parameter (MPI_UNDEFINED=-32766)
      integer MPI_MAX_INFO_KEY
      parameter (MPI_MAX_INFO_KEY=255)
      integer MPI_MAX_INFO_VAL
      parameter (MPI_MAX_INFO_VAL=1024)
      integer MPI_MAX_PSET_NAME_LEN
      parameter (MPI_MAX_PSET_NAME_LEN=1023)
