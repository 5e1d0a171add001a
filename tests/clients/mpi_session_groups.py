"""The groups of all process sets that a session lists, with mpi4py."""

import os

from mpi4py import MPI

session = MPI.Session.Init()
for n in range(session.Get_num_psets()):
    name = session.Get_nth_pset(n)
    group = session.Create_group(name)
    assert group.size == int(session.Get_pset_info(name).Get("mpi_size"))
    os.write(1, f"{name} of {group.size}\n".encode())
    group.Free()
session.Finalize()
