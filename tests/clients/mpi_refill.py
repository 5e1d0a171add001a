"""Ranks of the numbers that are given are lost, and then rank 0 spawns as many."""

import signal
import sys

from mpi4py import MPI


def meet(inter, who, high):
    """Counts the processes of both sides."""
    both = inter.Merge(high)
    print(f"{who} of {both.allreduce(1)}", flush=True)
    both.Free()
    inter.Disconnect()


parent, world, lost = MPI.Comm.Get_parent(), MPI.COMM_WORLD, sys.argv[1:]
if parent != MPI.COMM_NULL:
    meet(parent, "child", True)
    sys.exit()
world.Barrier()
print("up", flush=True)
if str(world.rank) in lost:
    while True:
        signal.pause()
if world.rank == 0:
    sys.stdin.read()
    meet(MPI.COMM_SELF.Spawn(sys.executable, sys.argv[:1], len(lost)), "parent", False)
print("done", flush=True)
