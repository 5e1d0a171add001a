"""A communicator of process set `ocean` with mpi4py, which loads the MPI library for its module only."""

import os

# The import initializes MPI: mpi4py 4.1 needs MPI_COMM_SELF.
from mpi4py import MPI

session = MPI.Session.Init()
names = [session.Get_nth_pset(n) for n in range(session.Get_num_psets())]
assert "app://ocean" in names, names
size = session.Get_pset_info("ocean").Get("mpi_size")
group = session.Create_group("ocean")
comm = MPI.Intracomm.Create_from_group(group, "ocean")
group.Free()
ranks = comm.allgather(comm.rank)
os.write(1, f"ocean of {size}: {' '.join(map(str, ranks))}\n".encode())
comm.Free()
session.Finalize()
