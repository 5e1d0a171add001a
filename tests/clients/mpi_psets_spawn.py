"""A spawned job has sets of its own, without those of the parent."""

import os
import sys

from mpi4py import MPI

if len(sys.argv) == 1:
    children = MPI.COMM_SELF.Spawn(sys.executable, [__file__, "child"], 2)
    children.Barrier()
    children.Disconnect()
else:
    session = MPI.Session.Init()
    sets = {}
    for n in range(session.Get_num_psets()):
        name = session.Get_nth_pset(n)
        sets[name] = int(session.Get_pset_info(name).Get("mpi_size"))
    job, both = [name for name in sets if name.startswith("hydrant://job/")]
    assert sets[job] == 2 and both == job + "/with-parent" and sets[both] == 3, sets
    assert sets["hydrant://app/0"] == 2, sets
    assert "ocean" not in sets, sets
    os.write(1, b"a job of two\n")
    session.Finalize()
    parent = MPI.Comm.Get_parent()
    parent.Barrier()
    parent.Disconnect()
