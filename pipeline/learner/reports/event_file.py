"""TensorBoard's event files: scalars by step, as TensorBoard reads them.

Written here and not by a library: those that there are write in a thread of their own, which a full disk ends, and then
block whoever logs or lose what comes after; and they bring dependencies that only the viewer needs. The format is small
and has not changed in years: records of length, masked CRC-32C, an ``Event`` in protobuf encoding, masked CRC-32C
(tensorflow/core/lib/io/record_writer.h, tensorboard/compat/proto/event.proto and summary.proto).
"""

import os
import socket
import struct
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

# Tags of the fields: number << 3 | kind of encoding.
_WALL_TIME, _STEP, _FILE_VERSION, _SUMMARY, _SESSION_LOG = b"\x09", b"\x10", b"\x1a", b"\x2a", b"\x3a"
_VALUE, _TAG, _SIMPLE_VALUE = b"\x0a", b"\x0a", b"\x15"
_SESSION_START = b"\x08\x01"
_NAME = "events.out.tfevents."
_AROUND = 16
"""Bytes of a record beside its event: length, and the checksums of both."""
_POLYNOMIAL = 0x82F63B78
_MASK_DELTA = 0xA282EAD8


class EventFile:
    """One event file; each :meth:`write` is in the file, whole or not at all, when it returns.

    TensorBoard reads the files of a folder in the order of their names, which is that of their making.

    Args:
        folder: made if need be.
        step: where this file goes on. What earlier files of the folder hold from there on is cut off, unless it is 0:
            TensorBoard's fast reader would show it, though the new file says that it counts for nothing.

    Raises:
        OSError: it cannot be made.
    """

    def __init__(self, folder: Path, step: int = 0) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        if step:
            for path in sorted(folder.glob(f"{_NAME}*")):
                _cut_off(path, step)
        now = time.time()
        self.path = folder / f"{_NAME}{now:017.6f}.{socket.gethostname()}.{os.getpid()}"
        self._file = self.path.open("ab", buffering=0)
        self._size = 0
        self._append(_event(now, 0, _FILE_VERSION + _with_length(b"brain.Event:2")))
        self._append(_event(now, step, _SESSION_LOG + _with_length(_SESSION_START)))

    def write(self, step: int, figures: Mapping[str, float]) -> None:
        """Add one value of each of these figures.

        Raises:
            OSError: the disk does not take them. What was written before stays readable.
        """
        values = b"".join(
            _VALUE + _with_length(_TAG + _with_length(name.encode()) + _SIMPLE_VALUE + _float(value))
            for name, value in figures.items()
        )
        self._append(_event(time.time(), step, _SUMMARY + _with_length(values)))

    def close(self) -> None:
        """Nothing can be written any more."""
        self._file.close()

    def _append(self, event: bytes) -> None:
        length = struct.pack("<Q", len(event))
        record = length + struct.pack("<I", _masked_crc(length)) + event + struct.pack("<I", _masked_crc(event))
        try:
            written = self._file.write(record)
            if written != len(record):
                raise OSError(f"{self.path}: the disk took {written} of {len(record)} bytes")
        except OSError:
            # Half a record would end the reading of this file for good.
            with suppress(OSError):
                self._file.truncate(self._size)
            raise
        self._size += len(record)


def crc32c(data: bytes) -> int:
    """CRC-32C (Castagnoli) of the data (RFC 3720, appendix B.4)."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def _masked_crc(data: bytes) -> int:
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + _MASK_DELTA) & 0xFFFFFFFF


def _event(wall_time: float, step: int, what: bytes) -> bytes:
    return _WALL_TIME + struct.pack("<d", wall_time) + _STEP + _varint(step) + what


def _with_length(data: bytes) -> bytes:
    return _varint(len(data)) + data


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _cut_off(path: Path, step: int) -> None:
    """Shorten a file to what is before its first event of this step or a later one, and before half a record."""
    data = path.read_bytes()
    at = 0
    while at + _AROUND <= len(data):
        end = at + _AROUND + struct.unpack_from("<Q", data, at)[0]
        if end > len(data) or _step_of(data[at + 12 : end - 4]) >= step:
            break
        at = end
    if at < len(data):
        os.truncate(path, at)


def _step_of(event: bytes) -> int:
    at = 9 if event[:1] == _WALL_TIME else 0
    if event[at : at + 1] != _STEP:
        return 0  # what is 0 may be left out
    step = shift = 0
    for byte in event[at + 1 : at + 11]:
        step |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    return step


def _float(value: float) -> bytes:
    try:
        return struct.pack("<f", value)
    except OverflowError:  # beyond float32
        return struct.pack("<f", float("inf") if value > 0 else float("-inf"))


def _table_entry(index: int) -> int:
    for _ in range(8):
        index = index >> 1 ^ (_POLYNOMIAL if index & 1 else 0)
    return index


_TABLE = tuple(map(_table_entry, range(256)))
