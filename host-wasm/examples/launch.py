#!/usr/bin/env python3
"""MPI launcher that serves PMI and PMIx with hydrant.wasm through the package hydrant_wasm (host-wasm/python).

    launch.py PLUGIN N PROGRAM [ARGUMENT...]

starts N ranks on this machine and serves each over a socket of its own (PMI_FD), or over TCP on loopback if it is a PMIx client
(Open MPI, on Linux). The exit code is that of the first failure, as hydrant has it: of the rank that failed, 128 + N if signal N
killed it or ended the launcher, or of the abort. The ranks are killed when the launcher ends, on Linux also when it is killed.
"""
import asyncio
import os
import signal
import socket
import sys
from contextlib import suppress

import hydrant_wasm as hydrant
from hydrant_wasm import ranks

JOB, READ_MAX = 0, 32 << 10
class Job:
    def __init__(self, server, size):
        self.server, self.size, self.code, self.stopped, self.timer = server, size, None, False, None
        # By connection: the ranks' own sockets come first, then PMIx clients.
        self.sockets, self.processes, self.leftovers, self.tasks, self.arrived = {}, {}, {}, set(), {}
        self.name = ranks.job_name()
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=size)
        self.listener.setblocking(False)

    async def run(self, command):
        self.tell(self.server.register_job, JOB, self.name, self.size)
        self.tell(self.server.attr, JOB, *ranks.process_mapping(self.size))
        for number in signal.SIGINT, signal.SIGTERM:
            asyncio.get_running_loop().add_signal_handler(number, self.stop, 128 + number, f"ended by {number.name}")
        try:
            self.tasks.add(asyncio.create_task(self.accept()))
            await asyncio.gather(*[self.run_rank(rank, command) for rank in range(self.size)])
        except OSError as error:
            self.fail(127, error)
        finally:
            self.kill(self.processes)
        return self.code or 0

    async def run_rank(self, rank, command):
        if self.stopped:
            return
        ours, theirs = socket.socketpair()
        with theirs:
            fd, stdin = theirs.fileno(), None if rank == 0 else asyncio.subprocess.DEVNULL
            env = ranks.inherited_variables() | ranks.pmi_variables(rank, self.size, fd)
            env |= ranks.pmix_variables(self.name, rank, self.listener.getsockname()[1])
            process = await asyncio.create_subprocess_exec(
                *command, env=env, pass_fds=[fd], stdin=stdin, preexec_fn=ranks.die_with_launcher()
            )
        self.processes[rank] = process
        if self.stopped:
            self.kill([rank])
        reader = self.open(rank, ours, rank)
        code = await process.wait()
        await asyncio.wait([reader], timeout=1)  # Reads what the rank sent before its exit.
        del self.processes[rank]
        for path in self.leftovers.pop(rank, ()):
            with suppress(OSError):
                os.remove(path)
        end = hydrant.ExitCode(code) if code >= 0 else hydrant.ExitSignal(-code)
        self.tell(self.server.exited, JOB, rank, end)  # The rank may have aborted.
        if code != 0:
            self.fail(ranks.exit_code(end), f"rank {rank} ended with {code}")

    async def accept(self):
        """Accepts PMIx clients that run as this user. They send their rank in the handshake."""
        while True:
            client, address = await asyncio.get_running_loop().sock_accept(self.listener)
            conn = next((conn for conn in range(self.size, 2 * self.size) if conn not in self.sockets), None)
            if conn is not None and ranks.client_user(address, client.getsockname()) == os.getuid():
                self.open(conn, client, None)
            else:
                client.close()

    def open(self, conn, ours, rank):
        """Passes a connection to the server. Returns the task that reads from it."""
        ours.setblocking(False)
        self.sockets[conn] = ours
        self.tell(self.server.opened, conn, JOB, rank)
        reader = asyncio.create_task(self.read(conn))
        self.tasks.add(reader)
        return reader

    async def read(self, conn):
        """Passes the bytes of a connection to the server until it closes."""
        loop, ours = asyncio.get_running_loop(), self.sockets[conn]
        with suppress(ConnectionError):
            while data := await loop.sock_recv(ours, READ_MAX):
                self.arrived or loop.call_soon(self.tell)  # One call for all connections that are ready now.
                self.arrived[conn] = self.arrived.get(conn, b"") + data
                await asyncio.sleep(0)
        ours.close()
        del self.sockets[conn]
        self.tell(self.server.closed, conn)

    def tell(self, event=None, *arguments):
        """Passes arrived bytes and an event to the server, and carries out its outputs. A plugin that fails ends the job."""
        if self.stopped:
            return
        arrived, self.arrived = self.arrived, {}
        try:
            self.server.receive_all(arrived)
            event and event(*arguments)
            self.handle_outputs()
        except hydrant.PluginError as error:
            self.stop(1, f"the plugin failed: {error}")

    def handle_outputs(self):
        """Carries out the server's outputs, and sets the timer for the next one."""
        for output in self.server.outputs():
            match output:
                case hydrant.OutputBytes(conn, data):
                    with suppress(OSError):  # Replies are short, so the socket has room unless its client never reads.
                        self.sockets[conn].send(data)
                case hydrant.OutputClose(conn):
                    with suppress(OSError):  # The connection's reader task sees the end.
                        self.sockets[conn].shutdown(socket.SHUT_RDWR)
                case hydrant.OutputKillRank(rank=rank, code=code):
                    self.fail(ranks.exit_code(ranks.exit_of_killed(code)), f"rank {rank} aborted itself")
                    self.kill([rank])
                case hydrant.OutputAbortJob(cause=cause):
                    code, reason = ranks.failure(cause)
                    self.fail(code, f"{reason}: the other ranks are killed")
                    self.kill(self.processes)
                case hydrant.OutputRemoveFiles(rank=rank, paths=paths):  # When the rank's process has exited.
                    self.leftovers.setdefault(rank, []).extend(paths.split(b","))
                case hydrant.OutputLog(stream=stream, text=text):
                    os.write(2 if stream == hydrant.Stream.STDERR else 1, text)
        if self.timer:
            self.timer.cancel()
        wait = self.server.timeout_in()
        self.timer = wait is not None and asyncio.get_running_loop().call_later(wait, self.tell, self.server.timeout)

    def stop(self, code, why):
        """Ends the job without its server."""
        self.fail(code, why)
        self.stopped = True
        self.kill(self.processes)

    def kill(self, killed):
        for rank in set(killed) & set(self.processes):
            with suppress(ProcessLookupError):  # It has exited, and run_rank does not know yet.
                self.processes[rank].kill()

    def fail(self, code, why):
        if self.code is None:  # Only the first failure is reported.
            self.code = code
            print(f"launch.py: {why}", file=sys.stderr)


if len(sys.argv) < 4 or not sys.argv[2].isdecimal() or int(sys.argv[2]) == 0:
    sys.exit(__doc__)
size = int(sys.argv[2])
try:
    server = hydrant.Plugin.load(sys.argv[1]).server(ranks.job_limits(size))
except (OSError, hydrant.PluginError) as error:
    sys.exit(f"launch.py: {error}")
sys.exit(asyncio.run(Job(server, size).run(sys.argv[3:])))
