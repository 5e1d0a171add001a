#!/usr/bin/env python3
"""MPI launcher that serves PMI with hydrant.wasm (docs/wasm-abi.md) in the package wasmtime.

    launch.py PLUGIN N PROGRAM [ARGUMENT...]

starts N ranks on this machine and serves each over a socket of its own (PMI_FD). The exit code is that of the rank that failed
first, 128 + N if signal N killed it or ended the launcher, and 1 if the job was aborted for another reason. The ranks are
killed when the launcher ends, on Linux also when it is killed.
"""
import asyncio
import ctypes
import os
import signal
import socket
import sys
import time
from contextlib import suppress

from wasmtime import Engine, Instance, Module, Store

ABI, MESSAGE_MAX = 2, 64 << 10
# Variant numbers of inputs. Those of outputs and causes are in Job.handle_outputs.
REGISTER_JOB, ATTR, OPENED, BYTES, CLOSED, EXITED = 1, 11, 15, 17, 20, 21
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
        """Applies an input. Returns Consumed: the number of bytes, and whether to send the rest again after a reply."""
        result = self.call("handle", numbers(time.monotonic_ns() // 1_000_000) + record)
        return number(result), number(result)


class Job:
    def __init__(self, server, size):
        self.server, self.size, self.code, self.stopped = server, size, 0, False
        self.processes, self.sockets, self.again, self.held = {}, {}, {}, dict.fromkeys(range(size), b"")
        # With cleanup, and without spawn, lookup timeout and fence warning. So the server never needs a Timeout.
        server.handle(numbers(REGISTER_JOB, 0) + blob(b"job-%d" % os.getpid()) + numbers(size, 0, 1, 2, 0, 0, 0, 0, 0))
        server.handle(numbers(ATTR, 0) + blob(b"PMI_process_mapping") + blob(b"(vector,(0,1,%d))" % size))

    async def run(self, command):
        for number in signal.SIGINT, signal.SIGTERM:
            asyncio.get_running_loop().add_signal_handler(number, self.stop, number)
        try:
            await asyncio.gather(*[self.run_rank(rank, command) for rank in range(self.size)])
        except OSError as error:
            self.fail(127, error)
        finally:
            self.kill(self.processes)
        return self.code

    async def run_rank(self, rank, command):
        self.sockets[rank], theirs = socket.socketpair()
        self.sockets[rank].setblocking(False)
        with theirs:
            fd, stdin = theirs.fileno(), None if rank == 0 else asyncio.subprocess.DEVNULL
            env = os.environ | {"PMI_FD": str(fd), "PMI_RANK": str(rank), "PMI_SIZE": str(self.size)}
            process = await asyncio.create_subprocess_exec(*command, env=env, pass_fds=[fd], stdin=stdin, **PREEXEC)
        self.processes[rank] = process
        if self.stopped:
            process.kill()
        self.server.handle(numbers(OPENED, rank, 0, 1, rank))
        reader = asyncio.create_task(self.read(rank))
        code = await process.wait()
        await asyncio.wait([reader], timeout=1)  # Reads what the rank sent before its exit.
        del self.processes[rank]
        if code != 0:
            self.fail(code if code > 0 else 128 - code, f"rank {rank} ended with {code}")
        self.server.handle(numbers(EXITED, 0, rank, code < 0) + bytes([abs(code)]))
        self.handle_outputs()

    async def read(self, rank):
        """Passes the bytes of a rank to the server until its connection closes."""
        loop, ours = asyncio.get_running_loop(), self.sockets[rank]
        with suppress(ConnectionError):
            while data := await loop.sock_recv(ours, MESSAGE_MAX // 2):
                self.send_bytes(rank, self.held[rank] + data)
                self.handle_outputs()
        ours.close()
        self.server.handle(numbers(CLOSED, rank))

    def send_bytes(self, rank, data):
        taken, self.again[rank] = self.server.handle(numbers(BYTES, rank) + blob(data) + numbers(len(data) >= MESSAGE_MAX))
        self.held[rank] = data[taken:]

    def handle_outputs(self):
        """Carries out the server's outputs until there are none."""
        while length := self.server.export("poll"):
            output = self.server.record(length)
            match number(output), number(output):
                case 0, rank:  # Bytes. Replies are short, so the socket has room unless its client never reads.
                    with suppress(OSError):
                        self.sockets[rank].send(bytes(next(output) for _ in range(number(output))))
                    if self.again[rank]:
                        self.send_bytes(rank, self.held[rank])
                case 1, rank:  # Close. The rank's reader task sees the end.
                    self.sockets[rank].shutdown(socket.SHUT_RDWR)
                case 5, _:  # KillRank. There is one job.
                    self.kill([number(output)])
                case 6, _:  # AbortJob.
                    cause, rank = number(output), number(output)
                    code = number(output) and number(output) >> 1 if cause == 0 else 0
                    self.fail(code or 1, f"rank {rank} {CAUSES[cause]}: the other ranks are killed")
                    self.kill(self.processes)

    def stop(self, number):
        self.fail(128 + number, f"ended by {number.name}")
        self.stopped = True
        self.kill(self.processes)

    def kill(self, ranks):
        for rank in set(ranks) & set(self.processes):
            self.processes[rank].kill()

    def fail(self, code, why):
        if self.code == 0:  # Only the first failure is reported.
            self.code = code
            print(f"launch.py: {why}", file=sys.stderr)


if len(sys.argv) < 4 or not sys.argv[2].isdecimal() or int(sys.argv[2]) == 0:
    sys.exit(__doc__)
size = int(sys.argv[2])
# Limits: jobs, ranks, conns, keys, kvs_bytes, groups, names, spawns, spawn_bytes, psets, links.
limits = numbers(1, size, size, 64 * size, size << 16, 16, 16, 0, 0, 16, 0, 0)
sys.exit(asyncio.run(Job(Plugin(sys.argv[1], limits), size).run(sys.argv[3:])))
