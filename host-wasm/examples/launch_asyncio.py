#!/usr/bin/env python3
"""MPI jobs inside an asyncio program: `await mpi_job(plugin, size, command)`.

    launch_asyncio.py PLUGIN N PROGRAM [ARGUMENT...]

runs one such job of N ranks, which are clients of PMI. The exit code is as that of launch.py. The ranks are killed when the
coroutine ends or is cancelled, and on Linux when the launcher is killed.
"""
import asyncio
import signal
import socket
import sys
from contextlib import suppress

import hydrant_wasm as hydrant
from hydrant_wasm import ranks

JOB = 0
READ_MAX = 32 << 10
class JobFailed(Exception):
    """The first failure of a job. `code` is the exit code of the rank, or 1."""

    def __init__(self, code, reason):
        super().__init__(reason)
        self.code = code


async def mpi_job(plugin, size, command):
    """Runs a program as an MPI job of `size` ranks. Raises `JobFailed`. All ranks have ended when it returns or raises."""
    job = Job(plugin.server(ranks.job_limits(size)), size)
    tasks = [asyncio.create_task(job.run_rank(rank, command)) for rank in range(size)]
    try:
        await asyncio.gather(*tasks, job.end)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        job.set_timer(None)


class Job:
    """A server with its timer, the processes and sockets of the ranks, and the end of the job, which may be a failure."""

    def __init__(self, server, size):
        self.server, self.size, self.exits, self.timer = server, size, 0, None
        self.processes, self.sockets = {}, {}
        self.end = asyncio.get_running_loop().create_future()
        self.arrived = {}  # Bytes by connection, for the next call.
        self.tell(server.register_job, JOB, ranks.job_name(), size)
        self.tell(server.attr, JOB, *ranks.process_mapping(size))

    async def run_rank(self, rank, command):
        ours, theirs = socket.socketpair()
        with ours:
            with theirs:
                process = self.processes[rank] = await self.start(rank, command, theirs.fileno())
            reader = asyncio.create_task(self.read(rank, ours))
            try:
                code = await process.wait()
                await asyncio.wait([reader], timeout=1)  # Reads what the rank sent before its exit.
            finally:
                reader.cancel()
                if process.returncode is None:
                    process.kill()
                await asyncio.gather(reader, process.wait(), return_exceptions=True)
        end = hydrant.ExitCode(code) if code >= 0 else hydrant.ExitSignal(-code)
        self.tell(self.server.exited, JOB, rank, end)  # The rank may have aborted.
        if code != 0:
            self.fail(ranks.exit_code(end), f"rank {rank} ended with {code}")
        self.exits += 1
        if self.exits == self.size and not self.end.done():
            self.end.set_result(None)

    async def start(self, rank, command, fd):
        env = ranks.inherited_variables() | ranks.pmi_variables(rank, self.size, fd)
        try:
            return await asyncio.create_subprocess_exec(
                *command, env=env, pass_fds=[fd], stdin=asyncio.subprocess.DEVNULL, preexec_fn=ranks.die_with_launcher()
            )
        except OSError as error:
            raise JobFailed(127, str(error)) from error

    async def read(self, rank, ours):
        """Passes the bytes of a rank to the server until its connection closes. Connections have the numbers of the ranks."""
        ours.setblocking(False)
        self.sockets[rank] = ours
        self.tell(self.server.opened, rank, JOB, rank)
        with suppress(ConnectionError):
            while data := await asyncio.get_running_loop().sock_recv(ours, READ_MAX):
                self.arrived or asyncio.get_running_loop().call_soon(self.tell)  # One call for all that are ready now.
                self.arrived[rank] = self.arrived.get(rank, b"") + data
                await asyncio.sleep(0)
        self.tell(self.server.closed, rank)

    def tell(self, event=None, *arguments):
        """Passes arrived bytes and an event to the server, and carries out its outputs. A plugin that fails ends the job."""
        if self.end.done():
            return
        arrived, self.arrived = self.arrived, {}
        try:
            self.server.receive_all(arrived)
            event and event(*arguments)
            self.handle_outputs()
        except hydrant.PluginError as error:
            self.fail(1, f"the plugin failed: {error}")

    def handle_outputs(self):
        """Carries out the server's outputs, and sets the timer for the next one."""
        for output in self.server.outputs():
            match output:
                case hydrant.OutputBytes(conn, data):
                    with suppress(OSError):  # Replies are short, so the socket has room unless its client never reads.
                        self.sockets[conn].send(data)
                case hydrant.OutputClose(conn):
                    with suppress(OSError):  # The reader sees the end.
                        self.sockets[conn].shutdown(socket.SHUT_RDWR)
                case hydrant.OutputKillRank(rank=rank, code=code):
                    self.fail(ranks.exit_code(ranks.exit_of_killed(code)), f"rank {rank} aborted itself")
                    with suppress(ProcessLookupError):
                        self.processes[rank].kill()
                case hydrant.OutputAbortJob(cause=cause):
                    code, reason = ranks.failure(cause)
                    self.fail(code, f"{reason}: the other ranks are killed")
        self.set_timer(self.server.timeout_in())

    def set_timer(self, wait):
        if self.timer:
            self.timer.cancel()
        self.timer = wait is not None and asyncio.get_running_loop().call_later(wait, self.tell, self.server.timeout)

    def fail(self, code, reason):
        if not self.end.done():  # Only the first failure is reported.
            self.end.set_exception(JobFailed(code, reason))


async def main(plugin, size, *command):
    received = []
    try:
        job = asyncio.create_task(mpi_job(hydrant.Plugin.load(plugin), int(size), command))
        for number in signal.SIGINT, signal.SIGTERM:
            asyncio.get_running_loop().add_signal_handler(number, lambda number=number: (received.append(number), job.cancel()))
        await job
    except (OSError, hydrant.PluginError) as error:
        sys.exit(f"launch_asyncio.py: {error}")
    except JobFailed as failure:
        print(f"launch_asyncio.py: {failure}", file=sys.stderr)
        return failure.code
    except asyncio.CancelledError:
        print(f"launch_asyncio.py: ended by {received[0].name}", file=sys.stderr)
        return 128 + received[0]


if __name__ == "__main__":
    if len(sys.argv) < 4 or not sys.argv[2].isdecimal() or int(sys.argv[2]) == 0:
        sys.exit(__doc__)
    sys.exit(asyncio.run(main(*sys.argv[1:])))
