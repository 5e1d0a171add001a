#!/usr/bin/env python3
"""An MPI launcher on hydrant's core as a WebAssembly plugin (docs/wasm-abi.md), with the package wasmtime.

    launch.py PLUGIN N PROGRAM [ARGUMENT...]

starts N ranks on this machine and serves each over a socket of its own (PMI_FD). Its exit code is that of the rank that
failed first, 128 plus the signal's number where it died by one, 1 where the job had to be ended for another reason.
"""
import asyncio
import os
import socket
import sys
import time
from contextlib import suppress

from wasmtime import Engine, Instance, Module, Store

ABI, MESSAGE_MAX = 1, 64 << 10
# Inputs, by their place among their like; outputs and causes have theirs where they are read.
JOB, ATTR, OPENED, BYTES, CLOSED, EXITED = 1, 11, 15, 17, 20, 21
CAUSES = "aborted", "left without finalizing", "died", "left while others wait for it"


def numbers(*values):
    """As postcard writes them: seven bits a byte, the lowest first."""
    return b"".join(bytes([n]) if n < 0x80 else bytes([n & 0x7F | 0x80]) + numbers(n >> 7) for n in values)


def blob(data):
    return numbers(len(data)) + data


def number(record):
    """The next number of a record, which is an iterator over its bytes."""
    byte = next(record)
    return byte if byte < 0x80 else byte & 0x7F | number(record) << 7


class Plugin:
    """The core. It answers calls and can do nothing else."""

    def __init__(self, path, limits):
        self.store = Store(Engine())
        self.exports = Instance(self.store, Module.from_file(self.store.engine, path), []).exports(self.store)
        if self.ask("abi_version") != ABI:
            sys.exit(f"launch.py: {path} does not speak version {ABI} of the ABI")
        self.input, self.room, self.output = map(self.ask, ["input_address", "input_size", "output_address"])
        self.call("reserve", limits + numbers(int.from_bytes(os.urandom(4), "big")))

    def ask(self, name, *arguments):
        return self.exports[f"hydrant_{name}"](self.store, *arguments)

    def record(self, length):
        return iter(self.exports["memory"].read(self.store, self.output, self.output + length))

    def call(self, name, record):
        assert len(record) <= self.room, "the plugin has no room for this record"
        self.exports["memory"].write(self.store, record, self.input)
        answer = self.record(self.ask(name, len(record)))
        if number(answer) != 0:
            sys.exit(f"launch.py: the plugin refuses to {name}: {bytes(answer).hex()}")
        return answer

    def tell(self, record):
        """How many bytes were taken, and whether the rest is wanted again once a reply is on its way."""
        answer = self.call("handle", numbers(time.monotonic_ns() // 1_000_000) + record)
        return number(answer), number(answer)


class Job:
    def __init__(self, core, size):
        self.core, self.size, self.code = core, size, 0
        self.processes, self.sockets, self.again, self.held = {}, {}, {}, dict.fromkeys(range(size), b"")
        # Failures end it, nobody spawned it, nothing waits or is warned of: so the core never asks to be woken.
        core.tell(numbers(JOB, 0) + blob(b"job-%d" % os.getpid()) + numbers(size, 0, 1, 2, 0, 0, 0, 0, 0))
        core.tell(numbers(ATTR, 0) + blob(b"PMI_process_mapping") + blob(b"(vector,(0,1,%d))" % size))

    async def run(self, command):
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
            process = await asyncio.create_subprocess_exec(*command, env=env, pass_fds=[fd], stdin=stdin)
        self.processes[rank] = process
        self.core.tell(numbers(OPENED, rank, 0, 1, rank))
        reader = asyncio.create_task(self.read(rank))
        code = await process.wait()
        await asyncio.wait([reader], timeout=1)  # Its last words may be on their way.
        del self.processes[rank]
        if code != 0:
            self.fail(code if code > 0 else 128 - code, f"rank {rank} ended with {code}")
        self.core.tell(numbers(EXITED, 0, rank, code < 0) + bytes([abs(code)]))
        self.obey()

    async def read(self, rank):
        """Hands in what a rank says until it says no more."""
        loop, ours = asyncio.get_running_loop(), self.sockets[rank]
        with suppress(ConnectionError):
            while data := await loop.sock_recv(ours, MESSAGE_MAX // 2):
                self.hand_in(rank, self.held[rank] + data)
                self.obey()
        ours.close()
        self.core.tell(numbers(CLOSED, rank))

    def hand_in(self, rank, data):
        taken, self.again[rank] = self.core.tell(numbers(BYTES, rank) + blob(data) + numbers(len(data) >= MESSAGE_MAX))
        self.held[rank] = data[taken:]

    def obey(self):
        """Does what the core says until it says nothing more."""
        while length := self.core.ask("poll"):
            says = self.core.record(length)
            match number(says), number(says):
                case 0, rank:  # Bytes. Replies are small: there is room, but for one who asks and never reads.
                    with suppress(OSError):
                        self.sockets[rank].send(bytes(next(says) for _ in range(number(says))))
                    if self.again[rank]:
                        self.hand_in(rank, self.held[rank])
                case 1, rank:  # Close. Its reader sees the end.
                    self.sockets[rank].shutdown(socket.SHUT_RDWR)
                case 5, _:  # KillRank, in the only job.
                    self.kill([number(says)])
                case 6, _:  # AbortJob.
                    cause, rank = number(says), number(says)
                    code = number(says) and number(says) >> 1 if cause == 0 else 0
                    self.fail(code or 1, f"rank {rank} {CAUSES[cause]}: the others are ended")
                    self.kill(self.processes)

    def kill(self, ranks):
        for rank in set(ranks) & set(self.processes):
            self.processes[rank].kill()

    def fail(self, code, why):
        if self.code == 0:  # The first failure counts.
            self.code = code
            print(f"launch.py: {why}", file=sys.stderr)


if len(sys.argv) < 4 or not sys.argv[2].isdecimal() or int(sys.argv[2]) == 0:
    sys.exit(__doc__)
size = int(sys.argv[2])
# Jobs, ranks, connections, keys, bytes of keys and values, groups, names, spawns, bytes of one, sets, links.
limits = numbers(1, size, size, 64 * size, size << 16, 16, 16, 0, 0, 16, 0)
sys.exit(asyncio.run(Job(Plugin(sys.argv[1], limits), size).run(sys.argv[3:])))
