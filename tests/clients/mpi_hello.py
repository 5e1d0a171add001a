"""Prints the rank and checks a sum over all ranks."""

import sys

from mpi4py import MPI

world = MPI.COMM_WORLD
total = world.allreduce(world.rank)
version = " ".join(MPI.Get_library_version().split()[:3])
print(f"rank {world.rank} of {world.size}, sum {total}, {version}", flush=True)
sys.exit(total != world.size * (world.size - 1) // 2)
