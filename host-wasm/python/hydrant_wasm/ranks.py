"""What a launcher owes its ranks: their environment, an end with its own, and the limits of their job."""

from __future__ import annotations

import ctypes
import os
import secrets
import signal
import socket
import sys
from collections.abc import Callable, Mapping

from .records import (
    MESSAGE_MAX,
    Cause,
    CauseAbort,
    CauseAbsent,
    CauseDied,
    CauseNoFinalize,
    Exit,
    ExitCode,
    ExitSignal,
    Limits,
)

_FOREIGN = ("PMI_", "PMIX_", "PRTE_", "OMPI_COMM_WORLD_")
_PMIX_VERSIONS = ("41", "4", "3", "21")
# Loaded before a fork. A new process that has other threads' locks cannot load it.
_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1
_REASONS = {
    CauseAbort: "aborted",
    CauseNoFinalize: "left without finalizing",
    CauseDied: "died",
    CauseAbsent: "left before a collective that waits for it",
}


def job_limits(ranks: int) -> Limits:
    """Limits of a server for one job of so many ranks on this machine: PMI and PMIx, without spawns.

    A rank has 64 pairs and 64 KiB, and a second connection for PMIx.
    """
    return Limits(
        jobs=1,
        ranks=ranks,
        conns=2 * ranks,
        keys=64 * ranks,
        kvs_bytes=ranks << 16,
        groups=16,
        names=16,
        # So few bytes are for files to remove and for text of PMIx clients only.
        spawns=16,
        spawn_bytes=255,
        psets=16,
        commit_bytes=MESSAGE_MAX // 4,
    )


def job_name() -> str:
    """A name for `Server.register_job`. A PMIx client that knows the name may join, so a part of it is random."""
    return f"job-{os.getpid()}-{secrets.token_hex(8)}"


def process_mapping(size: int) -> tuple[bytes, bytes]:
    """Key and value of the attribute by which MPICH knows that all ranks are on one host."""
    return b"PMI_process_mapping", b"(vector,(0,1,%d))" % size


def inherited_variables(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """An environment, that of this process by default, without the variables of other launchers and servers."""
    inherited = os.environ if environ is None else environ
    return {name: value for name, value in inherited.items() if not name.startswith(_FOREIGN)}


def pmi_variables(rank: int, size: int, fd: int) -> dict[str, str]:
    """Variables of a rank that inherits the descriptor `fd` of its connection."""
    # MPICH 5 does not choose between PMI and PMIx by itself.
    return {"PMI_FD": str(fd), "PMI_RANK": str(rank), "PMI_SIZE": str(size), "MPIR_CVAR_PMI_VERSION": "1"}


def pmix_variables(job: str, rank: int, port: int) -> dict[str, str]:
    """Variables by which libpmix and Open MPI find the server at a TCP port of the loopback interface (docs/pmix.md)."""
    server = {f"PMIX_SERVER_URI{version}": f"hydrant.0;tcp4://127.0.0.1:{port}" for version in _PMIX_VERSIONS}
    name = {"PMIX_NAMESPACE": job, "PMIX_RANK": str(rank), "PMIX_GDS_MODULE": "hash", "PMIX_SECURITY_MODE": "native"}
    # Builds of libpmix for debugging describe each value otherwise. libpmix 3 takes a server without a version for an old one.
    data = {"PMIX_BFROP_BUFFER_TYPE": "PMIX_BFROP_BUFFER_NON_DESC", "PMIX_VERSION": "7.0.0"}
    # Open MPI 4 needs a launcher that it knows.
    return server | name | data | {"JSM_JSRUN_PORT": "1"}


def die_with_launcher(launcher: int | None = None) -> Callable[[], None] | None:
    """Returns a `preexec_fn` of a rank, after which the kernel kills the rank when the launcher ends, on Linux.

    `launcher` is the process that starts the rank, this one by default. Its main thread has to start the rank, because the kernel
    looks at the thread. Elsewhere there is no such call, and the result is None.
    """
    if sys.platform != "linux":
        return None
    launcher = os.getpid() if launcher is None else launcher

    def before_exec() -> None:
        # A launcher that has ended meanwhile is no parent.
        if _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) != 0 or os.getppid() != launcher:
            os._exit(1)

    return before_exec


def failure(cause: Cause) -> tuple[int, str]:
    """Exit code of a launcher whose server ends a job, and the reason, such as "rank 2 died"."""
    died = not isinstance(cause, CauseAbort) and isinstance(cause.exit, ExitSignal)
    return exit_code(cause), f"rank {cause.rank} {_REASONS[CauseDied if died else type(cause)]}"


def exit_code(end: Exit | Cause) -> int:
    """Exit code of a launcher, as that of hydrant, for the end of a process or the cause of an abort. The first failure counts.

    Of a process it is as shells have it: 128 + N for signal N, and 1 for an unknown end. Of an abort it is the code, in 8 bits, or 1,
    and 0 only for code 0. Of the other causes it is that of the exit, at least 1.
    """
    match end:
        case CauseAbort(code=0):
            return 0
        case CauseAbort(code=code):
            return exit_of_killed(code).value
        case ExitCode(value=code):
            return code
        case ExitSignal(value=number):
            return 128 + number
        case Exit():
            return 1
        case _:
            return exit_code(end.exit) or 1


def exit_of_killed(code: int | None) -> ExitCode:
    """Exit of a rank that asked to be killed with this code (`OutputKillRank`), in place of the signal by which its process dies.

    A rank that had to be killed has not succeeded: code 0 and none count as 1.
    """
    return ExitCode((1 if code is None else code) & 0xFF or 1)


def client_user(client: tuple[str, int], server: tuple[str, int]) -> int | None:
    """Returns the user of the process at the client's end of a TCP connection on this machine, on Linux.

    A host passes connections to the server only if their user is that of the job.
    """
    # Each address is a number in the machine's byte order. A closed socket has no inode and counts as root's.
    ends = [f"{int.from_bytes(socket.inet_aton(host), sys.byteorder):08X}:{port:04X}" for host, port in (client, server)]
    with open("/proc/net/tcp") as table:
        rows = [line.split() for line in table]
    return next((int(row[7]) for row in rows if row[1:3] == ends and row[9] != "0"), None)
