"""Encoding of records: postcard 1 (docs/wasm-abi.md)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from enum import IntEnum
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

R = TypeVar("R", bound="Record")


class InvalidRecord(ValueError):
    """Bytes of the plugin that are not a record of the expected type."""


class Reader:
    """Bytes of a record that are not decoded yet."""

    def __init__(self, record: bytes) -> None:
        self.record, self.at = record, 0

    def take(self, length: int) -> bytes:
        """Returns the next bytes."""
        end = self.at + length
        if end > len(self.record):
            raise InvalidRecord("the record is truncated")
        taken, self.at = self.record[self.at : end], end
        return taken

    def varint(self, bits: int) -> int:
        """Returns the next number: seven bits a byte, lowest first."""
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            shift += 7
            if value >> bits:
                raise InvalidRecord(f"a number of more than {bits} bits")
            if byte < 0x80:
                return value

    def end(self) -> None:
        """Checks that nothing follows."""
        if self.at != len(self.record):
            raise InvalidRecord(f"{len(self.record) - self.at} bytes behind the record")


class Codec(NamedTuple):
    """Encoding of a type."""

    write: Callable[[bytearray, Any], None]
    read: Callable[[Reader], Any]


def write_varint(out: bytearray, value: int) -> None:
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def unsigned(bits: int) -> Codec:
    def write(out: bytearray, value: int) -> None:
        if value < 0 or value >> bits:
            raise ValueError(f"{value} is not a number of {bits} bits")
        write_varint(out, value)

    return Codec(write, lambda reader: reader.varint(bits))


def write_u8(out: bytearray, value: int) -> None:
    out.append(value)  # Raises ValueError for other values.


def write_i32(out: bytearray, value: int) -> None:
    if not -(1 << 31) <= value < 1 << 31:
        raise ValueError(f"{value} is not a signed number of 32 bits")
    write_varint(out, (value << 1) ^ (value >> 31))


def read_i32(reader: Reader) -> int:
    zigzag = reader.varint(32)
    return zigzag >> 1 ^ -(zigzag & 1)


def read_bool(reader: Reader) -> bool:
    byte = reader.take(1)[0]
    if byte > 1:
        raise InvalidRecord(f"{byte} is not a bool")
    return byte == 1


def write_bytes(out: bytearray, value: bytes) -> None:
    write_varint(out, len(value))
    out += value


def read_bytes(reader: Reader) -> bytes:
    return reader.take(reader.varint(32))


def read_str(reader: Reader) -> str:
    try:
        return read_bytes(reader).decode()
    except UnicodeDecodeError as error:
        raise InvalidRecord("a text that is not UTF-8") from error


U8 = Codec(write_u8, lambda reader: reader.take(1)[0])
U32, U64 = unsigned(32), unsigned(64)
I32 = Codec(write_i32, read_i32)
BOOL = Codec(lambda out, value: out.append(bool(value)), read_bool)
BYTES = Codec(write_bytes, read_bytes)
STR = Codec(lambda out, value: write_bytes(out, value.encode()), read_str)


def option(codec: Codec) -> Codec:
    """A value, or None."""

    def write(out: bytearray, value: Any) -> None:
        out.append(value is not None)
        if value is not None:
            codec.write(out, value)

    return Codec(write, lambda reader: codec.read(reader) if read_bool(reader) else None)


def number(type: type[IntEnum]) -> Codec:
    """A variant of an enum without fields."""

    def read(reader: Reader) -> IntEnum:
        value = reader.varint(32)
        try:
            return type(value)
        except ValueError as error:
            raise InvalidRecord(f"{type.__name__} has no variant {value}") from error

    return Codec(lambda out, value: write_varint(out, type(value)), read)


def record(type: type[Record]) -> Codec:
    """A struct, or a variant of an enum with fields."""

    def write(out: bytearray, value: Record) -> None:
        if not isinstance(value, type):
            raise TypeError(f"{value!r} is no {type.__name__}")
        value.write(out)

    return Codec(write, lambda reader: type.read(reader))


class UnknownField(TypeError):
    """A field that a record does not have. It is no `AttributeError`, which a `case` with that field would take for another record."""


class Record:
    """A struct. Its subclasses are dataclasses."""

    CODECS: ClassVar[tuple[Codec, ...]] = ()

    if not TYPE_CHECKING:  # Type checkers know the fields.

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_"):
                raise AttributeError(name)
            known = ", ".join(field.name for field in fields(self))
            raise UnknownField(f"{type(self).__name__} has no field {name}; its fields: {known or 'none'}")

    def write(self, out: bytearray) -> None:
        """Appends the encoded fields."""
        for field, codec in zip(fields(self), self.CODECS, strict=True):  # type: ignore[arg-type]
            codec.write(out, getattr(self, field.name))

    @classmethod
    def read(cls: type[R], reader: Reader) -> R:
        """Decodes the fields."""
        return cls(*[codec.read(reader) for codec in cls.CODECS])


class Variant(Record):
    """An enum with fields, and the base class of its variants, which have a `NUMBER`."""

    NUMBER: ClassVar[int]
    VARIANTS: ClassVar[tuple[type[Record], ...]]

    def write(self, out: bytearray) -> None:
        write_varint(out, self.NUMBER)
        super().write(out)

    @classmethod
    def read(cls: type[R], reader: Reader) -> R:
        variants: tuple[type[R], ...] = cls.VARIANTS  # type: ignore[attr-defined]
        number = reader.varint(32)
        if number >= len(variants):
            raise InvalidRecord(f"{cls.__name__} has no variant {number}")
        variant = variants[number]
        return variant(*[codec.read(reader) for codec in variant.CODECS])


def encode(value: Record) -> bytes:
    """Returns an encoded record."""
    out = bytearray()
    value.write(out)
    return bytes(out)
