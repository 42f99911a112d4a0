"""`pipeline replay show`: records of any topic, decoded, as readable lines or as JSON."""

import base64
import dataclasses
import itertools
import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from pipeline.broker import Record
from pipeline.config import PipelineConfig
from pipeline.errors import InvalidRecordError, RejectReason
from pipeline.experience import Chunk, Ending, EpisodeInfo, Layout, Version
from pipeline.learner.intake.arrival import Arrival, Examiner
from pipeline.offline.bounded import BoundedReader
from pipeline.offline.progress import progress
from pipeline.offline.ranges import Range, Selection, clock
from pipeline.offline.recorded import find_recorded
from pipeline.offline.spans import of_versions
from pipeline.weights import read_lineage
from pipeline.wire import (
    Command,
    DeadLetter,
    Heartbeat,
    Journal,
    Limits,
    ModelVersionRecord,
    TelemetryWindow,
    decode_episode,
)


@dataclass(frozen=True)
class Shown:
    """One record, for people and for programs.

    Attributes:
        line: a readable line, without coordinates.
        fields: all that it holds, JSON-able.
        versions: numbers of the versions that it belongs to; None where it belongs to none.
        refused: why it is no record of its topic; empty for a good one.
    """

    line: str
    fields: Mapping[str, Any]
    versions: int | None = None
    refused: str = ""


Decoder = Callable[[Record], Shown]


def show(config: PipelineConfig) -> int:
    """Print the records that ``replay.*`` asks for; the exit status."""
    selection = Selection.of(config.replay)
    run = find_recorded(config)
    kind = config.replay.topic
    decoder = decoder_of(kind, run.layout, run.name, run.limits)
    spans = None
    if not selection.versions.everything and kind in ("samples", "commands"):
        # What a version was made of is what its journal says, not what the records say of themselves.
        spans = of_versions(read_lineage(run.broker, run.topics, run.timeout), selection.versions, kind)
        selection = dataclasses.replace(selection, versions=Range())
    with (
        BoundedReader(run.broker, run.topic(kind), selection, spans, run.timeout) as reader,
        progress(f"reading {run.topic(kind)}", reader.total, "offsets") as advance,
    ):
        for line in lines(reader.records(advance), decoder, selection, config.replay.json):
            print(line)
    return 0


def lines(records: Iterator[Record], decoder: Decoder, selection: Selection, as_json: bool) -> Iterator[str]:
    """The lines that are printed for some records."""
    shown = ((record, decoder(record)) for record in records)
    within = (pair for pair in shown if _within(pair[1], selection.versions))
    for record, item in itertools.islice(within, selection.limit):
        yield _as_json(record, item) if as_json else _as_line(record, item)


def decoder_of(kind: str, layout: Layout, run: str, limits: Limits) -> Decoder:
    """What decodes the records of a topic; refused ones are shown with their reason, never raised.

    Args:
        kind: as in the setting ``replay.topic``.
        layout: the run's columns.
        run: its name.
        limits: bounds on a chunk.
    """
    if kind == "samples":
        examiner = Examiner(layout, run, limits)
        return lambda record: _sample(examiner.examine(record))
    plain: dict[str, Callable[[bytes], Shown]] = {
        "episodes": lambda data: _episode(decode_episode(data)),
        "versions": lambda data: _version(ModelVersionRecord.decode(data)),
        "commands": lambda data: _command(Command.decode(data)),
        "heartbeats": lambda data: _heartbeat(Heartbeat.decode(data)),
        "progress": lambda data: _heartbeat(Heartbeat.decode(data)),
        "telemetry": lambda data: _window(TelemetryWindow.decode(data)),
        "dead-letters": lambda data: _dead_letter(DeadLetter.decode(data)),
    }
    decode = plain[kind]

    def decoded(record: Record) -> Shown:
        try:
            return decode(record.value)
        except InvalidRecordError as error:
            return _refused(record, error)

    return decoded


def _within(shown: Shown, versions: Range) -> bool:
    return versions.everything or (shown.versions is not None and shown.versions in versions)


def _as_line(record: Record, shown: Shown) -> str:
    place = f"{record.topic.rpartition('.')[2]}[{record.partition}]@{record.offset}"
    return printable(f"{place} {clock(record.timestamp_ms)} {shown.line}")


def _as_json(record: Record, shown: Shown) -> str:
    place = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
    }
    refused = {"refused": shown.refused} if shown.refused else {}
    return json.dumps({**place, **refused, "record": _plain(shown.fields)}, allow_nan=False)


# -- one topic each ---------------------------------------------------------------------------------------------------


def _sample(arrival: Arrival) -> Shown:
    headers, chunk, record = arrival.headers, arrival.chunk, arrival.record
    fields: dict[str, Any] = {} if headers is None else {"headers": dataclasses.asdict(headers)}
    who = "" if headers is None else f"{headers.actor}/{headers.session[:8]}#{headers.sequence} "
    if chunk is None:
        error = arrival.error or InvalidRecordError(RejectReason.MALFORMED, "it was not decoded")
        refused = _refused(record, error)
        version = None if headers is None else headers.version.number
        return Shown(f"{who}{refused.line}", {**fields, **refused.fields}, version, refused.refused)
    rewards = chunk.columns["reward"]
    endings = [Ending(ending).name.lower() for ending in chunk.segments.ending.tolist()]
    ended = "".join(f", {endings.count(name)} {name}" for name in ("terminated", "truncated") if name in endings)
    line = (
        f"{who}version {chunk.version}: {_count(chunk.steps, 'step')} in {_count(len(chunk.segments), 'segment')}"
        f"{ended}, reward {_figure(float(rewards.sum(dtype=np.float64)))}, {_count(len(record.value), 'byte')}"
    )
    return Shown(line, {**fields, **_chunk_fields(chunk, endings)}, chunk.version.number)


def _chunk_fields(chunk: Chunk, endings: list[str]) -> dict[str, Any]:
    table = chunk.segments
    segments = [
        {"environment": e, "episode": n, "first_step": first, "length": length, "ending": ending}
        for e, n, first, length, ending in zip(
            table.environment.tolist(),
            table.episode.tolist(),
            table.first_step.tolist(),
            table.length.tolist(),
            endings,
            strict=True,
        )
    ]
    return {
        "version": str(chunk.version),
        "steps": chunk.steps,
        "dropped": chunk.dropped,
        "segments": segments,
        "columns": chunk.columns,
    }


def _episode(episode: EpisodeInfo) -> Shown:
    ending = Ending(episode.ending).name.lower()
    line = (
        f"{episode.actor}/{episode.session[:8]} environment {episode.environment} episode {episode.episode}: "
        f"return {_figure(episode.total_return)} in {_count(episode.steps, 'step')}, {ending}, "
        f"version {episode.version}{_metrics(episode.info)}"
    )
    return Shown(line, {**dataclasses.asdict(episode), "ending": ending}, episode.version.number)


def _version(record: ModelVersionRecord) -> Shown:
    fields = dataclasses.asdict(record)
    note = f", {record.note}" if record.note else ""
    if record.kind == "claim":
        return Shown(
            f"claim of epoch {record.epoch}, newest number then {record.number}; {record.platform}{note}".rstrip("; "),
            {**fields, "journal": None},
            record.number,
        )
    if record.kind == "pin":
        return Shown(f"pin of version {record.version}{note}", {**fields, "journal": None}, record.number)
    parent = "no parent" if record.parent_number is None else f"parent {record.parent_number}"
    line = (
        f"version {record.version}, {parent}: {record.transitions:,} transitions, {record.updates:,} updates, "
        f"{record.size:,} bytes, sha256 {record.sha256[:12]}"
    )
    journal, said = _journal(record.journal)
    return Shown(f"{line}, {said}{note}", {**fields, "journal": journal}, record.number)


def _journal(data: bytes | None) -> tuple[dict[str, Any] | None, str]:
    if data is None:
        return None, "no journal"
    try:
        journal = Journal.decode(data)
    except InvalidRecordError as error:
        return {"refused": str(error)}, f"journal refused: {error}"
    commands = f" and {_count(len(journal.commands), 'command')}" if journal.commands else ""
    events = f" and {_count(len(journal.events), 'event')}" if journal.events else ""
    broken = f", broken: {journal.broken}" if journal.broken else ""
    origin = f", from {journal.origin}" if journal.origin else ""
    fields = dataclasses.asdict(journal)
    fields["parent"] = None if journal.parent is None else str(journal.parent)
    steps = _count(len(journal.steps), "step")
    return fields, f"journal of {steps}{commands}{events} in {len(data):,} bytes{origin}{broken}"


def _command(command: Command) -> Shown:
    issuer = f" by {command.issuer}" if command.issuer else ""
    return Shown(f"{command.kind} {command.argument_json} (id {command.id}){issuer}", dataclasses.asdict(command))


def _heartbeat(beat: Heartbeat) -> Shown:
    version = Version(beat.version_epoch, beat.version_number)
    stale = sum(position.stale for position in beat.positions)
    stale_said = f" ({stale:,} of the sessions named as stale)" if stale else ""
    outcomes = "".join(f"; command {o.id}: {'done' if o.done else 'not done'}, {o.detail}" for o in beat.outcomes)
    line = (
        f"{beat.role} {beat.node}/{beat.session[:8]}#{beat.sequence}: version {version}, "
        f"{beat.transitions:,} transitions, {beat.dropped:,} dropped, {beat.rejected:,} rejected{stale_said}{outcomes}"
    )
    return Shown(line, dataclasses.asdict(beat), beat.version_number)


def _window(window: TelemetryWindow) -> Shown:
    line = (
        f"{_count(window.episodes, 'episode')}: mean return {_figure(window.mean_return)}, best "
        f"{_figure(window.best_return)}, mean steps {_figure(window.mean_steps)}, version {window.version_number}, "
        f"{window.transitions:,} transitions{_metrics(window.metrics)}"
    )
    return Shown(line, dataclasses.asdict(window), window.version_number)


def _dead_letter(letter: DeadLetter) -> Shown:
    actor = f" of {letter.actor}" if letter.actor else ""
    place = f"{letter.topic.rpartition('.')[2]}[{letter.partition}]@{letter.offset}"
    line = f"{place}{actor}: {letter.reason}: {letter.detail}; sha256 {letter.sha256[:12]}, begins {letter.head[:16]!r}"
    return Shown(line, dataclasses.asdict(letter))


def _refused(record: Record, error: InvalidRecordError) -> Shown:
    fields = {"detail": error.detail, "bytes": len(record.value)}
    line = f"refused: {error.reason.value}: {error.detail} ({_count(len(record.value), 'byte')})"
    return Shown(line, fields, refused=error.reason.value)


# -- words and figures ------------------------------------------------------------------------------------------------


def _plain(value: Any) -> Any:
    """JSON-able: arrays as lists, bytes as base64, what is not a number as null."""
    if isinstance(value, np.ndarray):
        return _plain(cast("NDArray[Any]", value).tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, Version):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in cast("list[Any]", value)]
    return value


def printable(text: str) -> str:
    """Text from the wire without what a terminal would take as an order: escaped as in Python."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def _metrics(metrics: Mapping[str, float]) -> str:
    return "".join(f", {name} {_figure(value)}" for name, value in sorted(metrics.items()))


def _figure(value: float) -> str:
    return f"{value:.6g}"


def _count(number: int, unit: str) -> str:
    return f"{number:,} {unit}{'' if number == 1 else 's'}"
