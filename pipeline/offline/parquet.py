"""Transitions as Parquet: one row each, with where it comes from; written row group by row group."""

import importlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from pipeline.broker import Record
from pipeline.errors import ReplayError
from pipeline.experience import Column, Layout
from pipeline.experience.layout import REWARD
from pipeline.offline.steps import Steps
from pipeline.wire import RecordHeaders

_GROUP_ROWS = 65_536
_GROUP_BYTES = 64 << 20

_TEXTS = ("actor", "session", "verdict")
_OF_RECORD = ("sequence", "version_epoch", "version_number", "made_number", "partition", "offset", "timestamp_ms")
_OF_STEP = ("environment", "episode", "step", "terminated", "truncated")


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where the steps of one chunk come from.

    Attributes:
        record: the record that holds it.
        headers: its headers.
        made: number of the version in whose journal it is.
        verdict: what became of it.
    """

    record: Record
    headers: RecordHeaders
    made: int
    verdict: str


class ParquetFile:
    """A Parquet file of transitions that appears under its name when it is whole.

    Columns: those of the observation, action and extras by their names in the run's layout; ``reward``; the next
    observation's under ``next_observation`` instead of ``observation``; ``terminated``, ``truncated``; and actor,
    session, sequence, environment, episode, step, version_epoch, version_number (of the version that acted),
    made_number (the version that was made with it), partition, offset, timestamp_ms, verdict. Arrays are fixed-size
    lists, nested for more than one dimension. An extra that has a name of these stands under ``extras/``.

    Args:
        path: of the file; one that is there is replaced at the end.
        layout: the run's columns.
        note: text pairs that are kept with the file.

    Raises:
        ReplayError: pyarrow is not installed, or the folder cannot be written to.
    """

    def __init__(self, path: Path, layout: Layout, note: Mapping[str, str]) -> None:
        self._arrow: Any = _import("pyarrow")
        parquet: Any = _import("pyarrow.parquet")
        self._path = path
        self._layout = layout
        self._temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        self._fields = _fields(layout)
        schema = self._arrow.schema(
            [(name, _type(self._arrow, column)) for name, column in self._fields.items()]
            + [(name, self._arrow.dictionary(self._arrow.int32(), self._arrow.string())) for name in _TEXTS],
            metadata=dict(note),
        )
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._writer: Any = parquet.ParquetWriter(str(self._temporary), schema, compression="zstd")
        except OSError as error:
            raise ReplayError(f"{path} cannot be written: {error}; choose another file by replay.out.") from error
        self._schema = schema
        self._waiting: list[tuple[Steps, Provenance]] = []
        self._rows = self._bytes = 0
        self.rows = 0
        """Rows written so far, those that wait for their row group included."""

    def add(self, steps: Steps, provenance: Provenance) -> None:
        """Add the steps of one chunk."""
        self._waiting.append((steps, provenance))
        self.rows += len(steps)
        self._rows += len(steps)
        self._bytes += 2 * len(provenance.record.value)
        if self._rows >= _GROUP_ROWS or self._bytes >= _GROUP_BYTES:
            self._write()

    def finish(self, note: Mapping[str, str]) -> None:
        """Write what waits, more text pairs, and give the file its name."""
        if self._waiting:
            self._write()
        self._writer.add_key_value_metadata(dict(note))
        self._writer.close()
        self._temporary.replace(self._path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.close()
        self._temporary.unlink(missing_ok=True)

    def _write(self) -> None:
        arrays = self._columns()
        made = [_array(self._arrow, arrays[name], column) for name, column in self._fields.items()]
        made += [self._texts(name) for name in _TEXTS]
        self._writer.write_table(self._arrow.Table.from_arrays(made, schema=self._schema))
        self._waiting.clear()
        self._rows = self._bytes = 0

    def _columns(self) -> dict[str, NDArray[Any]]:
        """All columns but the texts, each with the rows of all chunks that wait."""
        steps = [waiting[0] for waiting in self._waiting]
        lengths = [len(part) for part in steps]
        arrays: dict[str, NDArray[Any]] = {}
        for column in self._layout.observation:
            arrays[column.name] = np.concatenate([part.observation[column.name] for part in steps])
            arrays[_next(column)] = np.concatenate([part.next_observation[column.name] for part in steps])
        for name, column in _of_steps(self._layout).items():
            arrays[name] = np.concatenate([part.columns[column.name] for part in steps])
        for name in _OF_STEP:
            arrays[name] = np.concatenate([getattr(part, name) for part in steps])
        for index, name in enumerate(_OF_RECORD):
            values = np.array([_of_record(waiting[1])[index] for waiting in self._waiting], np.int64)
            arrays[name] = np.repeat(values, lengths)
        return arrays

    def _texts(self, name: str) -> Any:
        values = [_text(name, provenance) for _, provenance in self._waiting]
        codes = {value: code for code, value in enumerate(dict.fromkeys(values))}
        indices = np.repeat(
            np.array([codes[value] for value in values], np.int32), [len(steps) for steps, _ in self._waiting]
        )
        return self._arrow.DictionaryArray.from_arrays(
            self._arrow.array(indices), self._arrow.array(list(codes), self._arrow.string())
        )


def _import(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ReplayError("An export needs pyarrow: install the extra, `pip install 'pipeline[offline]'`.") from error


def _fields(layout: Layout) -> dict[str, Column]:
    """The file's columns but the texts, in order."""
    integer = {name: Column(name, np.dtype(np.int64), ()) for name in _OF_RECORD}
    of_step = {
        name: Column(name, np.dtype(dtype), ())
        for name, dtype in zip(_OF_STEP, (np.int32, np.int64, np.int32, np.bool_, np.bool_), strict=True)
    }
    return {
        **{column.name: column for column in layout.observation},
        **_of_steps(layout),
        **{_next(column): column for column in layout.observation},
        **of_step,
        **integer,
    }


def _of_steps(layout: Layout) -> dict[str, Column]:
    """Action, reward and extras by the name they have in the file."""
    taken = {*_TEXTS, *_OF_RECORD, *_OF_STEP}
    extras = {
        f"extras/{column.name}"
        if column.name in taken or column.name.partition("/")[0] == "next_observation"
        else column.name: column
        for column in layout.extras
    }
    return {**{column.name: column for column in layout.action}, REWARD.name: REWARD, **extras}


def _next(column: Column) -> str:
    return "next_" + column.name


def _of_record(provenance: Provenance) -> tuple[int, ...]:
    headers, record = provenance.headers, provenance.record
    version = headers.version
    return (
        headers.sequence,
        version.epoch,
        version.number,
        provenance.made,
        record.partition,
        record.offset,
        record.timestamp_ms,
    )


def _text(name: str, provenance: Provenance) -> str:
    if name == "verdict":
        return provenance.verdict
    return provenance.headers.actor if name == "actor" else provenance.headers.session


def _type(arrow: Any, column: Column) -> Any:
    kind = arrow.from_numpy_dtype(column.dtype)
    for size in reversed(column.shape):
        kind = arrow.list_(kind, size)
    return kind


def _array(arrow: Any, array: NDArray[Any], column: Column) -> Any:
    """An Arrow array of as many rows, with fixed-size lists for the column's dimensions."""
    flat = np.ascontiguousarray(array.astype(column.dtype, copy=False)).reshape(-1)
    made = arrow.array(flat)
    for size in reversed(column.shape):
        made = arrow.FixedSizeListArray.from_arrays(made, size)
    return made
