#!/usr/bin/env python3
"""MPI launcher that serves PMI and PMIx with hydrant.wasm (docs/wasm-abi.md) in the package wasmtime.

    launch.py PLUGIN N PROGRAM [ARGUMENT...]

starts N ranks on this machine and serves each over a socket of its own (PMI_FD), or over TCP on loopback if it is a PMIx client
(Open MPI, on Linux). The exit code is that of the rank that failed first, 128 + N if signal N killed it or ended the launcher,
and 1 if the job was aborted for another reason. The ranks are killed when the launcher ends, on Linux also when it is killed.
"""
import asyncio
import ctypes
import os
import secrets
import signal
import socket
import sys
import time
from contextlib import suppress

from wasmtime import Engine, Instance, Module, Store

ABI, MESSAGE_MAX = 4, 64 << 10
# Variant numbers of inputs. Those of outputs and causes are in Job.handle_outputs.
REGISTER_JOB, ATTR, OPENED, BYTES, CLOSED, EXITED, TIMEOUT = 1, 11, 15, 17, 20, 21, 22
CAUSES = "aborted", "left without finalizing", "died", "left before a collective that waits for it"


def numbers(*values):
    """Encodes numbers as postcard varints: seven bits a byte, lowest first."""
    return b"".join(bytes([n]) if n < 0x80 else bytes([n & 0x7F | 0x80]) + numbers(n >> 7) for n in values)


def blob(data):
    return numbers(len(data)) + data


def number(record):
    """Decodes the next number of a record, which is an iterator over its bytes."""
    byte = next(record)
    return byte if byte < 0x80 else byte & 0x7F | number(record) << 7


def die_with_launcher(launcher=os.getpid(), libc=ctypes.CDLL(None), PR_SET_PDEATHSIG=1):
    """Runs in a new process before its program. The kernel kills the process when the launcher ends."""
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL) != 0 or os.getppid() != launcher:
        os._exit(1)  # The launcher has ended meanwhile.


PREEXEC = {"preexec_fn": die_with_launcher} if sys.platform == "linux" else {}


def user_of(*ends):
    """Returns the user of the process at the first end of a TCP connection on this machine, from the system's table."""
    # Each address is a number in the machine's byte order. A closed socket has no inode and counts as root's.
    names = [f"{int.from_bytes(socket.inet_aton(host), sys.byteorder):08X}:{port:04X}" for host, port in ends]
    with open("/proc/net/tcp") as table:
        rows = [line.split() for line in table]
    return next((int(row[7]) for row in rows if row[1:3] == names and row[9] != "0"), None)


def pmix_environment(job, port):
    """Returns the variables by which libpmix and Open MPI find the server (docs/pmix.md)."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PMIX_", "PRTE_"))}
    env |= {f"PMIX_SERVER_URI{version}": f"hydrant.0;tcp4://127.0.0.1:{port}" for version in ("41", "4", "3", "21")}
    env |= {"PMIX_NAMESPACE": job, "PMIX_GDS_MODULE": "hash", "PMIX_SECURITY_MODE": "native"}
    # Open MPI 4 needs a launcher that it knows. MPICH 5 does not choose between PMI and PMIx by itself.
    return env | {"JSM_JSRUN_PORT": "1", "MPIR_CVAR_PMI_VERSION": "1"}


class Plugin:
    """Instance of the plugin, with one server."""

    def __init__(self, path, limits):
        self.store = Store(Engine())
        self.exports = Instance(self.store, Module.from_file(self.store.engine, path), []).exports(self.store)
        if self.export("abi_version") != ABI:
            sys.exit(f"launch.py: {path} has another ABI version than {ABI}")
        self.input, self.input_size, self.output = map(self.export, ["input_address", "input_size", "output_address"])
        self.call("reserve", limits + numbers(int.from_bytes(os.urandom(4), "big")))

    def export(self, name, *arguments):
        return self.exports[f"hydrant_{name}"](self.store, *arguments)

    def record(self, length):
        return iter(self.exports["memory"].read(self.store, self.output, self.output + length))

    def call(self, name, record):
        assert len(record) <= self.input_size, "record longer than the plugin's input buffer"
        self.exports["memory"].write(self.store, record, self.input)
        result = self.record(self.export(name, len(record)))
        if number(result) != 0:
            sys.exit(f"launch.py: {name} failed: {bytes(result).hex()}")
        return result

    def handle(self, record):
        """Applies an input. Returns Consumed (the number of bytes, and whether to send the rest again after a reply) and the
        milliseconds until the server needs a Timeout, if it does."""
        now = time.monotonic_ns() // 1_000_000
        result = self.call("handle", numbers(now) + record)
        return number(result), number(result), max(number(result) - now, 0) if number(result) else None


class Job:
    def __init__(self, server, size):
        self.server, self.size, self.code, self.stopped, self.timer = server, size, 0, False, None
        # By connection: the ranks' own sockets come first, then PMIx clients.
        self.sockets, self.again, self.held, self.processes, self.leftovers, self.tasks = {}, {}, {}, {}, {}, set()
        # A PMIx client that knows the name may join, so a part of it is random.
        self.name = f"job-{os.getpid()}-{secrets.token_hex(8)}"
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=size)
        self.listener.setblocking(False)
        # With cleanup, and without spawn, lookup timeout and fence warning.
        server.handle(numbers(REGISTER_JOB, 0) + blob(self.name.encode()) + numbers(size, 0, 1, 2, 0, 0, 0, 0, 0))
        server.handle(numbers(ATTR, 0) + blob(b"PMI_process_mapping") + blob(b"(vector,(0,1,%d))" % size))

    async def run(self, command):
        for number in signal.SIGINT, signal.SIGTERM:
            asyncio.get_running_loop().add_signal_handler(number, self.stop, number)
        try:
            self.tasks.add(asyncio.create_task(self.accept()))
            env = pmix_environment(self.name, self.listener.getsockname()[1])
            await asyncio.gather(*[self.run_rank(rank, command, env) for rank in range(self.size)])
        except OSError as error:
            self.fail(127, error)
        finally:
            self.kill(self.processes)
        return self.code

    async def run_rank(self, rank, command, env):
        ours, theirs = socket.socketpair()
        with theirs:
            fd, stdin = theirs.fileno(), None if rank == 0 else asyncio.subprocess.DEVNULL
            env = env | {"PMI_FD": str(fd), "PMI_RANK": str(rank), "PMI_SIZE": str(self.size), "PMIX_RANK": str(rank)}
            process = await asyncio.create_subprocess_exec(*command, env=env, pass_fds=[fd], stdin=stdin, **PREEXEC)
        self.processes[rank] = process
        if self.stopped:
            self.kill([rank])
        reader = self.open(rank, ours, numbers(1, rank))
        code = await process.wait()
        await asyncio.wait([reader], timeout=1)  # Reads what the rank sent before its exit.
        del self.processes[rank]
        for path in self.leftovers.pop(rank, ()):
            with suppress(OSError):
                os.remove(path)
        if code != 0:
            self.fail(code if code > 0 else 128 - code, f"rank {rank} ended with {code}")
        self.handle(numbers(EXITED, 0, rank, code < 0) + bytes([abs(code)]))
        self.handle_outputs()

    async def accept(self):
        """Accepts PMIx clients that run as this user. They send their rank in the handshake."""
        while True:
            client, address = await asyncio.get_running_loop().sock_accept(self.listener)
            conn = next((conn for conn in range(self.size, 2 * self.size) if conn not in self.sockets), None)
            if conn is not None and user_of(address, client.getsockname()) == os.getuid():
                self.open(conn, client, numbers(0))
            else:
                client.close()

    def open(self, conn, ours, rank):
        """Passes a connection to the server. Returns the task that reads from it."""
        ours.setblocking(False)
        self.sockets[conn], self.held[conn] = ours, b""
        self.handle(numbers(OPENED, conn, 0) + rank)
        reader = asyncio.create_task(self.read(conn))
        self.tasks.add(reader)
        return reader

    async def read(self, conn):
        """Passes the bytes of a connection to the server until it closes."""
        loop, ours = asyncio.get_running_loop(), self.sockets[conn]
        with suppress(ConnectionError):
            while data := await loop.sock_recv(ours, MESSAGE_MAX // 2):
                self.send_bytes(conn, self.held[conn] + data)
                self.handle_outputs()
        ours.close()
        self.handle(numbers(CLOSED, conn))
        del self.sockets[conn]
        self.handle_outputs()

    def send_bytes(self, conn, data):
        taken, self.again[conn] = self.handle(numbers(BYTES, conn) + blob(data) + numbers(len(data) >= MESSAGE_MAX))
        self.held[conn] = data[taken:]

    def handle(self, record):
        """Applies an input, and a Timeout when the server needs one. Returns Consumed."""
        taken, again, wait = self.server.handle(record)
        if self.timer:
            self.timer.cancel()
        self.timer = wait is not None and asyncio.get_running_loop().call_later(wait / 1000, self.handle_timeout)
        return taken, again

    def handle_timeout(self):
        self.handle(numbers(TIMEOUT))
        self.handle_outputs()

    def handle_outputs(self):
        """Carries out the server's outputs until there are none."""
        while length := self.server.export("poll"):
            output = self.server.record(length)
            match number(output), number(output):
                case 0, conn:  # Bytes. Replies are short, so the socket has room unless its client never reads.
                    with suppress(OSError):
                        self.sockets[conn].send(bytes(next(output) for _ in range(number(output))))
                    if self.again[conn]:
                        self.send_bytes(conn, self.held[conn])
                case 1, conn:  # Close. The connection's reader task sees the end.
                    with suppress(OSError):
                        self.sockets[conn].shutdown(socket.SHUT_RDWR)
                case 5, _:  # KillRank. There is one job.
                    self.kill([number(output)])
                case 6, _:  # AbortJob.
                    cause, rank = number(output), number(output)
                    code = number(output) and number(output) >> 1 if cause == 0 else 0
                    self.fail(code or 1, f"rank {rank} {CAUSES[cause]}: the other ranks are killed")
                    self.kill(self.processes)
                case 9, _:  # RemoveFiles, when the rank's process has exited.
                    rank, length = number(output), number(output)
                    self.leftovers.setdefault(rank, []).extend(bytes(output)[:length].split(b","))
                case 10, _:  # Log, text of the rank for standard output (0) or standard error (1).
                    _, stream, length = number(output), number(output), number(output)
                    os.write(stream + 1, bytes(output)[:length])

    def stop(self, number):
        self.fail(128 + number, f"ended by {number.name}")
        self.stopped = True
        self.kill(self.processes)

    def kill(self, ranks):
        for rank in set(ranks) & set(self.processes):
            with suppress(ProcessLookupError):  # It has exited, and run_rank does not know yet.
                self.processes[rank].kill()

    def fail(self, code, why):
        if self.code == 0:  # Only the first failure is reported.
            self.code = code
            print(f"launch.py: {why}", file=sys.stderr)


if len(sys.argv) < 4 or not sys.argv[2].isdecimal() or int(sys.argv[2]) == 0:
    sys.exit(__doc__)
size = int(sys.argv[2])
# Limits: jobs, ranks, conns, keys, kvs_bytes, groups, names, spawns, spawn_bytes, psets, links, commit_bytes. So few bytes
# of spawns are for RemoveFiles and Log only.
limits = numbers(1, size, 2 * size, 64 * size, size << 16, 16, 16, 16, 255, 16, 0, MESSAGE_MAX // 4)
sys.exit(asyncio.run(Job(Plugin(sys.argv[1], limits), size).run(sys.argv[3:])))
