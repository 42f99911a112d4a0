"""Avro bodies, read with no trust in them.

Avro's own readers follow whatever lengths and counts the bytes say. The reader compiled here
checks each against the bytes that are left before it takes them, bounds the number of array items
over the whole record, takes varints of at most ten bytes, and returns ``bytes`` fields as views
into the input: nothing is copied. It reads flat schemas only and refuses the others when it is
compiled.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, cast

from pipeline.errors import ConfigError, InvalidRecordError, RejectReason

MAX_ITEMS = 8192
"""Array items that one record may have, in all its arrays together."""

_DOUBLE = struct.Struct("<d")
_FLOAT = struct.Struct("<f")
_INT_LIMIT = 1 << 31


class Body:
    """The bytes of one record and how far they have been read."""

    __slots__ = ("data", "end", "items", "position")

    def __init__(self, data: memoryview, position: int) -> None:
        self.data = data
        self.position = position
        self.end = len(data)
        self.items = 0


Reader = Callable[[Body], Any]
"""Reads one value and moves the position; raises InvalidRecordError."""


def compile_reader(schema: Any, source: str) -> Reader:
    """A reader of bodies of the schema.

    Args:
        schema: an Avro schema as parsed by fastavro (full names).
        source: named in errors.

    Returns:
        A function from `Body` to plain values: records as dicts, arrays as lists, enums as
        strings, unions as the branch's value, bytes as memoryviews into the body.

    Raises:
        ConfigError: the schema has maps, recursion, or arrays whose items may take no bytes.
    """
    return _Compiler(source).compile(schema)[0]


def read_long(body: Body) -> int:
    """A zigzag varint of at most ten bytes that fits an int64.

    Raises:
        InvalidRecordError: CUT_SHORT or MALFORMED.
    """
    data, position, end = body.data, body.position, body.end
    value = shift = 0
    while True:
        if position >= end:
            raise _cut_short(body, "an integer")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 63:
            raise _malformed(body, "an integer of more than ten bytes")
    if value >> 64:
        raise _malformed(body, "an integer beyond 64 bits")
    body.position = position
    return (value >> 1) ^ -(value & 1)


class _Compiler:
    """Compiles a schema; each method returns a reader and the least bytes that a value takes."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._named: dict[str, tuple[Reader, int] | None] = {}

    def compile(self, schema: Any) -> tuple[Reader, int]:
        if isinstance(schema, list):
            return self._union(cast("list[Any]", schema))
        if isinstance(schema, str):
            return self._by_name(schema)
        fields = cast("dict[str, Any]", schema)
        kind: Any = fields["type"]
        if kind == "record":
            return self._record(fields)
        if kind == "enum":
            symbols: list[str] = fields["symbols"]
            return self._define(fields["name"], _enum_reader(symbols), 1)
        if kind == "fixed":
            size: int = fields["size"]
            return self._define(fields["name"], _fixed_reader(size), size)
        if kind == "array":
            return self._array(fields["items"])
        if not isinstance(kind, str) or "logicalType" in fields:
            raise self._refuse(f"a type {str(kind)[:64]} that is not carried")
        return self._by_name(kind)

    def _by_name(self, name: str) -> tuple[Reader, int]:
        if name in _PRIMITIVES:
            return _PRIMITIVES[name]
        known = self._named.get(name)
        if known is None:
            raise self._refuse("recursion" if name in self._named else f"the type {name!r}")
        return known

    def _define(self, name: str, reader: Reader, least: int) -> tuple[Reader, int]:
        self._named[name] = (reader, least)
        return reader, least

    def _record(self, schema: dict[str, Any]) -> tuple[Reader, int]:
        self._named[schema["name"]] = None
        readers: list[tuple[str, Reader]] = []
        least = 0
        for field in cast("list[dict[str, Any]]", schema["fields"]):
            reader, size = self.compile(field["type"])
            readers.append((field["name"], reader))
            least += size

        def read(body: Body) -> dict[str, Any]:
            return {name: reader(body) for name, reader in readers}

        return self._define(schema["name"], read, least)

    def _union(self, branches: list[Any]) -> tuple[Reader, int]:
        readers = [self.compile(branch)[0] for branch in branches]

        def read(body: Body) -> Any:
            index = read_long(body)
            if not 0 <= index < len(readers):
                raise _malformed(body, f"union branch {index} of {len(readers)}")
            return readers[index](body)

        return read, 1

    def _array(self, items: Any) -> tuple[Reader, int]:
        reader, least = self.compile(items)
        if least == 0:
            raise self._refuse("an array whose items may take no bytes")

        def read(body: Body) -> list[Any]:
            values: list[Any] = []
            while count := read_long(body):
                if count < 0:
                    count = -count
                    size = read_long(body)
                    if not 0 <= size <= body.end - body.position:
                        raise _cut_short(body, f"an array block of {size} bytes")
                if count * least > body.end - body.position:
                    raise _cut_short(body, f"an array block of {count} items")
                body.items += count
                if body.items > MAX_ITEMS:
                    raise _malformed(body, f"more than {MAX_ITEMS} array items")
                values.extend([reader(body) for _ in range(count)])
            return values

        return read, 1

    def _refuse(self, what: str) -> ConfigError:
        return ConfigError(f"schema {self._source} holds {what}, which hostile bytes could abuse")


def _read_null(body: Body) -> None:
    return None


def _read_boolean(body: Body) -> bool:
    value = _take(body, 1, "a boolean")[0]
    if value > 1:
        raise _malformed(body, f"a boolean of value {value}")
    return value == 1


def _read_int(body: Body) -> int:
    value = read_long(body)
    if not -_INT_LIMIT <= value < _INT_LIMIT:
        raise _malformed(body, f"{value} as an int, which has 32 bits")
    return value


def _read_float(body: Body) -> float:
    return _FLOAT.unpack(_take(body, 4, "a float"))[0]


def _read_double(body: Body) -> float:
    return _DOUBLE.unpack(_take(body, 8, "a double"))[0]


def _read_bytes(body: Body) -> memoryview:
    return _take(body, read_long(body), "bytes")


def _read_string(body: Body) -> str:
    try:
        return str(_take(body, read_long(body), "a string"), "utf-8")
    except UnicodeDecodeError as error:
        raise _malformed(body, "a string that is not UTF-8") from error


def _enum_reader(symbols: list[str]) -> Reader:
    def read(body: Body) -> str:
        index = read_long(body)
        if not 0 <= index < len(symbols):
            raise _malformed(body, f"enum symbol {index} of {len(symbols)}")
        return symbols[index]

    return read


def _fixed_reader(size: int) -> Reader:
    return lambda body: _take(body, size, "a fixed")


def _take(body: Body, length: int, what: str) -> memoryview:
    position = body.position
    stop = position + length
    if length < 0:
        raise _malformed(body, f"{what} of length {length}")
    if stop > body.end:
        raise _cut_short(body, f"{what} of {length} bytes")
    body.position = stop
    return body.data[position:stop]


def _cut_short(body: Body, what: str) -> InvalidRecordError:
    left = body.end - body.position
    return InvalidRecordError(RejectReason.CUT_SHORT, f"{what} at byte {body.position}, where {left} bytes are left")


def _malformed(body: Body, what: str) -> InvalidRecordError:
    return InvalidRecordError(RejectReason.MALFORMED, f"{what} near byte {body.position}")


_PRIMITIVES: dict[str, tuple[Reader, int]] = {
    "null": (_read_null, 0),
    "boolean": (_read_boolean, 1),
    "int": (_read_int, 1),
    "long": (read_long, 1),
    "float": (_read_float, 4),
    "double": (_read_double, 8),
    "bytes": (_read_bytes, 1),
    "string": (_read_string, 1),
}
