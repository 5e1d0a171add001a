/* Process sets with libhydrant_mpi alone, or (STOCK) with an MPI library after it. */
#ifdef STOCK
#include "mpi_check.h"
#include "hydrant_mpi.h"
#else
#include "mpi_own.h"
#endif
#include "mpi_pset_size.h"
