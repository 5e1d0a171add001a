"""A master that spawns this program and sums the values of its workers."""

import sys

from mpi4py import MPI

parent = MPI.Comm.Get_parent()
if parent == MPI.COMM_NULL:
    workers = MPI.COMM_SELF.Spawn(sys.executable, args=[__file__, "worker"], maxprocs=3)
    workers.bcast({"factor": 7}, root=MPI.ROOT)
    print("gathered", workers.gather(None, root=MPI.ROOT), flush=True)
    workers.Disconnect()
else:
    factor = parent.bcast(None, root=0)["factor"]
    parent.gather(factor * MPI.COMM_WORLD.rank, root=0)
    parent.Disconnect()
