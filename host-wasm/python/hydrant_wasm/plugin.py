"""hydrant.wasm in the package wasmtime, and servers in it."""

from __future__ import annotations

import builtins
import os
import secrets
import struct
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

import wasmtime

from .postcard import InvalidRecord, Reader, Record, encode, read_bool
from .records import (
    ABI_VERSION,
    DEADLINE,
    FULL,
    INPUTS_MAX,
    MESSAGE_MAX,
    MORE,
    RECORD,
    CallError,
    CallErrorFault,
    Consumed,
    Input,
    InputBytes,
    InputResult,
    Inputs,
    Limits,
    MemorySpan,
    Output,
    OutputBytes,
    Part,
    ReserveCall,
    StartResult,
    TurnHead,
)

R = TypeVar("R", bound=Record)


class PluginError(Exception):
    """Failure of a plugin. The host ends the jobs of its server."""


class AbiVersionError(PluginError):
    """A plugin with another version of the ABI."""

    def __init__(self, path: str, found: int) -> None:
        super().__init__(f"{path} has ABI version {found}, and this package needs {ABI_VERSION}")
        self.found = found


class CallFailed(PluginError):
    """A refused call. The server is unchanged.

    `call` is the name of the export. `error` is a `CallErrorFault` if the server refused an input: the host is at fault, and
    `error.fault` says how. `consumed` has the results of the inputs of `Server.handle_all` before that one, which are applied.
    """

    def __init__(self, call: str, error: CallError, consumed: Iterable[Consumed] = ()) -> None:
        reason = error.fault if isinstance(error, CallErrorFault) else error
        super().__init__(f"{call}: {reason}: {' '.join((reason.__doc__ or '').split())}")
        self.call, self.error, self.consumed = call, error, list(consumed)


class Plugin:
    """hydrant.wasm, compiled. Its servers share the code and nothing else."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self._engine = wasmtime.Engine()
        with open(self.path, "rb") as file:
            code = file.read()
        # wasmtime would take other bytes for the text form of a module.
        if not code.startswith(b"\0asm"):
            raise PluginError(f"{self.path} is no WebAssembly module: it does not start with the bytes 00 61 73 6d")
        try:
            self._module = wasmtime.Module(self._engine, code)
        except wasmtime.WasmtimeError as error:
            raise PluginError(f"{self.path} is no WebAssembly module: {error}") from error

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Plugin:
        """Compiles a file.

        Raises OSError if it cannot be read, and `PluginError` if it is no WebAssembly module.
        """
        return cls(path)

    def server(
        self, limits: Limits, seed: int | None = None, clock: Callable[[], int] | None = None
    ) -> Server:
        """Creates a server.

        `limits` are the capacities of its tables. `seed` is that of a hash table, of 32 bits, and random by default. `clock`
        returns milliseconds that do not decrease, by default those of `time.monotonic`.

        Raises `AbiVersionError`, and `CallFailed` if the plugin's memory is too small for the limits.
        """
        server = Server(self, clock)
        server._start("hydrant_reserve", encode(ReserveCall(limits, secrets.randbits(32) if seed is None else seed)))
        return server

    def restore(self, snapshot: bytes, clock: Callable[[], int] | None = None) -> Server:
        """Creates a server from a snapshot. Connections with unconsumed bytes get these by `Server.receive`.

        `clock` continues that of the server which was saved.
        """
        server = Server(self, clock)
        server._restore(snapshot)
        return server


class Server(Inputs):
    """A server: an instance of the plugin.

    A method for each input applies it at the time of the clock. After each input, or several, the host carries out `outputs`.
    A method raises `CallFailed` if the server refuses the input, and `PluginError` if the plugin fails. A host gives up a
    failed server.
    """

    def __init__(self, plugin: Plugin, clock: Callable[[], int] | None = None) -> None:
        """Use `Plugin.server`."""
        self._store = wasmtime.Store(plugin._engine)
        self._exports: Any = wasmtime.Instance(self._store, plugin._module, []).exports(self._store)
        self._clock = clock or (lambda: time.monotonic_ns() // 1_000_000)
        self._poll_at: int | None = None
        # Outputs of the last return that the host has not taken, how many replies it has taken, and whether there may be others.
        self._offered: deque[tuple[bool, Output]] = deque()
        self._taken = 0
        self._more = False
        # By connection: bytes that the server has not consumed, and those of them that may be complete messages.
        self._held: dict[int, builtins.bytes] = {}
        self._again: set[int] = set()
        version = self._export("hydrant_abi_version")
        if version != ABI_VERSION:
            raise AbiVersionError(plugin.path, version)
        self._input = self._export("hydrant_input_address")
        self._input_size = self._export("hydrant_input_size")
        self._output = self._export("hydrant_output_address")

    def handle(self, input: Input) -> Consumed:
        """Applies an input. The methods of the inputs call this one."""
        return self.handle_all([input])[0]

    def handle_all(self, inputs: Iterable[Input]) -> list[Consumed]:
        """Applies inputs in their order, up to `INPUTS_MAX` in a call of the plugin, and returns what is consumed of each.

        32 inputs in a call take about a tenth of the time of 32 calls. The inputs behind one that is refused are not applied.
        """
        consumed: list[Consumed] = []
        parts: list[builtins.bytes] = []
        length = 0
        for input in inputs:
            if isinstance(input, InputBytes):
                conn, data, full = input.conn, input.bytes, input.full
            else:
                conn, data, full = RECORD, encode(input), False
            part = Part.LAYOUT.pack(conn, len(data) | (FULL if full else 0)) + data
            if parts and (len(parts) == INPUTS_MAX or length + len(part) > self._input_size):
                self._apply(parts, consumed)
                parts, length = [], 0
            parts.append(part)
            length += len(part)
        if parts:
            self._apply(parts, consumed)
        return consumed

    def receive(self, conn: int, data: builtins.bytes) -> None:
        """Passes bytes of a client to the server, in place of the input `bytes`.

        The bytes that the server does not consume are kept, at most as many as the host passes while the connection is
        blocked: a host does not read from a blocked connection.
        """
        self.receive_all({conn: data})

    def receive_all(self, arrived: Mapping[int, builtins.bytes]) -> None:
        """Passes bytes of many clients to the server, by connection, with few calls. Otherwise as `receive`."""
        for conn, data in arrived.items():
            self._held[conn] = self._held.get(conn, b"") + data
        self._pass_held(list(arrived))

    def closed(self, conn: int) -> Consumed:
        """The connection was closed by either side. Its number may be reused."""
        self._held.pop(conn, None)
        self._again.discard(conn)
        return super().closed(conn)

    def poll(self) -> Output | None:
        """Takes the next output, if there is one. Use `outputs`, which also passes bytes that wait for a reply."""
        if not self._offered and self._more:
            self._returned("hydrant_poll", self._export("hydrant_poll", self._takes()), 0, [])
        if not self._offered:
            self._more = False
            return None
        is_reply, output = self._offered.popleft()
        self._taken += is_reply
        return output

    def outputs(self) -> Iterator[Output]:
        """Yields the outputs until there is none. The host carries out each before it takes the next one.

        The host may apply inputs meanwhile.
        """
        waiting: dict[int, None] = {}
        while True:
            while (output := self.poll()) is not None:
                yield output
                if isinstance(output, OutputBytes) and output.conn in self._again:
                    waiting[output.conn] = None
            conns = [conn for conn in waiting if conn in self._again]
            if not conns:
                return
            waiting.clear()
            self._pass_held(conns)

    def timeout_in(self) -> float | None:
        """Returns the seconds until the host calls `timeout`, unless another input comes first, or None for never.

        The value is valid until the next input.
        """
        return None if self._poll_at is None else max(self._poll_at - self._clock(), 0) / 1000

    def snapshot(self) -> builtins.bytes:
        """Saves the server, for `Plugin.restore`. Bytes that it has not consumed are not part of it: see `held`."""
        length = self._export("hydrant_snapshot", self._takes())
        span = self._decode("hydrant_snapshot", length, MemorySpan)
        return builtins.bytes(self._exports["memory"].read(self._store, span.address, span.address + span.len))

    def held(self, conn: int) -> builtins.bytes:
        """Returns the bytes of a connection that the server has not consumed."""
        return self._held.get(conn, b"")

    def _pass_held(self, conns: list[int]) -> None:
        """Passes held bytes until a message of each connection is incomplete or has to wait for a reply."""
        while conns:
            held = [self._held[conn] for conn in conns]
            refused = None
            try:
                inputs = [InputBytes(c, h[:MESSAGE_MAX], len(h) >= MESSAGE_MAX) for c, h in zip(conns, held)]
                consumed = self.handle_all(inputs)
            except CallFailed as error:
                refused, consumed = error, error.consumed
            left = []
            for conn, bytes, done in zip(conns, held, consumed):
                self._held[conn] = bytes[done.bytes :]
                if done.again:
                    self._again.add(conn)
                    continue
                self._again.discard(conn)
                if done.bytes > 0 and len(bytes) > MESSAGE_MAX:
                    left.append(conn)
            if refused is not None:
                raise refused
            conns = left

    def _apply(self, parts: list[builtins.bytes], consumed: list[Consumed]) -> None:
        """Applies the inputs of one call, and adds what the server has consumed of each."""
        data = b"".join(parts)
        self._write(data)
        taken = self._takes()
        length = self._export("hydrant_handle", len(data), taken, self._clock())
        self._returned("hydrant_handle", length, len(parts), consumed)

    def _start(self, call: str, record: builtins.bytes) -> None:
        result = self._call(call, record, StartResult)
        self._poll_at, self._more = result.poll_at, result.has_output

    def _restore(self, snapshot: builtins.bytes) -> None:
        length = self._export("hydrant_snapshot_room", len(snapshot))
        room = self._decode("hydrant_snapshot_room", length, MemorySpan)
        self._exports["memory"].write(self._store, snapshot, room.address)
        result = self._decode("hydrant_restore", self._export("hydrant_restore", len(snapshot)), StartResult)
        self._poll_at, self._more = result.poll_at, result.has_output

    def _export(self, name: str, *arguments: int) -> int:
        try:
            # The runtime's numbers are signed.
            return int(self._exports[name](self._store, *arguments)) & 0xFFFFFFFF
        except (wasmtime.Trap, wasmtime.WasmtimeError) as error:
            raise PluginError(f"{name}: {error}") from error

    def _record(self, length: int) -> builtins.bytes:
        return builtins.bytes(self._exports["memory"].read(self._store, self._output, self._output + length))

    def _takes(self) -> int:
        """Returns the number of replies that the host has taken, for a call which withdraws the others."""
        taken, self._taken = self._taken, 0
        self._more = self._more or bool(self._offered)
        self._offered.clear()
        return taken

    def _returned(self, call: str, length: int, inputs: int, consumed: list[Consumed]) -> None:
        """Reads a return, and adds what the server has consumed of each input."""
        left = self._record(length)
        try:
            head = TurnHead(*TurnHead.LAYOUT.unpack_from(left))
            self._poll_at = head.poll_at if head.flags & DEADLINE else None
            self._more = bool(head.flags & MORE)
            at = TurnHead.LAYOUT.size
            if head.results > inputs or (head.results < inputs and not head.error):
                raise PluginError(f"{call}: {head.results} results of {inputs} inputs")
            for _ in range(head.results):
                result = InputResult(*InputResult.LAYOUT.unpack_from(left, at))
                consumed.append(Consumed(result.bytes, bool(result.again)))
                at += InputResult.LAYOUT.size
            if head.error:
                raise CallFailed(call, CallError.read(Reader(left[at : at + head.error])), consumed)
            for _ in range(head.outputs):
                part = Part(*Part.LAYOUT.unpack_from(left, at))
                at += Part.LAYOUT.size
                data = left[at : at + part.len]
                at += part.len
                is_reply = part.conn != RECORD
                output = OutputBytes(part.conn, data) if is_reply else Output.read(Reader(data))
                self._offered.append((is_reply, output))
        except (InvalidRecord, struct.error) as invalid:
            raise PluginError(f"{call}: {invalid}") from invalid
        if at > length:
            raise PluginError(f"{call}: the return is truncated")

    def _write(self, data: builtins.bytes) -> None:
        if len(data) > self._input_size:
            raise ValueError(f"{len(data)} bytes are longer than the plugin's buffer of {self._input_size}")
        self._exports["memory"].write(self._store, data, self._input)

    def _call(self, name: str, record: builtins.bytes, result: type[R]) -> R:
        self._write(record)
        return self._decode(name, self._export(name, len(record)), result)

    def _decode(self, call: str, length: int, result: type[R]) -> R:
        """Decodes the record that a call left: a result, or an error."""
        try:
            reader = Reader(self._record(length))
            failed = read_bool(reader)
            error = CallError.read(reader) if failed else None
            value = None if failed else result.read(reader)
            reader.end()
        except InvalidRecord as invalid:
            raise PluginError(f"{call}: {invalid}") from invalid
        if error is not None:
            raise CallFailed(call, error)
        assert value is not None, "a call that does not fail has a result"
        return value

