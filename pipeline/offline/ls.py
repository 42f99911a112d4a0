"""`pipeline replay ls`: which runs there are; of one run, its topics' ranges, its versions, and their sizes."""

import dataclasses
import itertools
import json
from collections.abc import Iterator, Sequence
from typing import Any

from pipeline.broker import list_runs
from pipeline.config import PipelineConfig
from pipeline.connect import connect
from pipeline.errors import InvalidRecordError, UnknownTopicError
from pipeline.offline.bounded import Extent, extents
from pipeline.offline.progress import progress
from pipeline.offline.ranges import Selection, clock
from pipeline.offline.recorded import RecordedRun, find_recorded
from pipeline.offline.show import printable
from pipeline.weights import Lineage, read_lineage
from pipeline.wire import Journal, JournalCounters, ModelVersionRecord

_TOPICS = ("samples", "episodes", "versions", "commands", "heartbeats", "progress", "telemetry", "dead-letters")
_LEFT = ("run", "topic", "state", "algorithm", "environment", "made", "sha256", "note")


def ls(config: PipelineConfig) -> int:
    """Print the runs of the namespace, or what there is of the run that is named; the exit status."""
    selection = Selection.of(config.replay)
    items = _run(find_recorded(config), selection) if config.run else _runs(config, selection)
    if config.replay.json:
        for item in items:
            print(json.dumps(item))
    else:
        print("\n".join(_tables(items)) or f"There are no runs in namespace {config.namespace!r}.")
    return 0


Item = dict[str, Any]
"""One line: values by the name of their column; ``kind`` says which table it is in."""


def _runs(config: PipelineConfig, selection: Selection) -> Iterator[Item]:
    connection = connect(config)
    manifests = list_runs(connection.broker, config.namespace, config.kafka.timeout_s)[: selection.limit]
    with progress("reading runs", len(manifests), "runs") as advance:
        for manifest in manifests:
            advance(1, manifest.run)
            run = RecordedRun(manifest, connection, config)
            lineage, held = _read(run)
            yield {
                "kind": "run",
                "run": manifest.run,
                "state": manifest.state,
                "algorithm": manifest.algorithm,
                "environment": manifest.environment,
                "made": clock(manifest.created_ms),
                "epoch": max(lineage.epoch, manifest.epoch),
                "versions": _numbers(lineage),
                "transitions": lineage.transitions,
                "updates": lineage.updates,
                "weights_bytes": sum(record.size for record in lineage.versions),
                "samples": sum(extent.high - extent.low for extent in held.values()),
            }


def _read(run: RecordedRun) -> tuple[Lineage, dict[int, Extent]]:
    """Of a run whose topics were deleted the manifest may still be there."""
    try:
        return read_lineage(run.broker, run.topics, run.timeout), extents(run.broker, run.samples, run.timeout)
    except UnknownTopicError:
        return Lineage(run.name), {}


def _run(run: RecordedRun, selection: Selection) -> Iterator[Item]:
    for kind in _TOPICS:
        for partition, extent in extents(run.broker, run.topic(kind), run.timeout).items():
            yield {
                "kind": "topic",
                "topic": kind,
                "partition": partition,
                "first": extent.low,
                "next": extent.high,
                "offsets": extent.high - extent.low,
            }
    lineage = read_lineage(run.broker, run.topics, run.timeout)
    for epoch, claim in sorted(lineage.claims.items()):
        yield {
            "kind": "epoch",
            "epoch": epoch,
            "versions": _numbers_of([record for record in lineage.versions if record.epoch == epoch]),
            "made": clock(claim.created_ms),
            "note": claim.platform,
        }
    within = (record for record in lineage.versions if record.number in selection.versions)
    for record in itertools.islice(within, selection.limit):
        yield _version(record, lineage)
    if lineage.newest is not None:
        yield {"kind": "counters", "version": str(lineage.newest.version), **_counters(lineage.newest)}


def _version(record: ModelVersionRecord, lineage: Lineage) -> Item:
    journal = _journal(record)
    pin = lineage.pins.get(record.version)
    notes = [
        record.note,
        "" if pin is None else f"pinned: {pin}",
        "" if journal is None or not journal.origin else f"from {journal.origin}",
        "" if journal is None or not journal.broken else f"broken: {journal.broken}",
    ]
    return {
        "kind": "version",
        "version": str(record.version),
        "parent": "-" if record.parent_number is None else record.parent_number,
        "made": clock(record.created_ms),
        "transitions": record.transitions,
        "updates": record.updates,
        "bytes": record.size,
        "steps": "-" if journal is None else len(journal.steps),
        "journal_bytes": len(record.journal or b""),
        "sha256": record.sha256[:12],
        "note": "; ".join(note for note in notes if note),
    }


def _counters(record: ModelVersionRecord) -> Item:
    journal = _journal(record)
    return dataclasses.asdict(JournalCounters() if journal is None else journal.counters)


def _journal(record: ModelVersionRecord) -> Journal | None:
    try:
        return None if record.journal is None else Journal.decode(record.journal)
    except InvalidRecordError:
        return None


def _numbers(lineage: Lineage) -> str:
    return _numbers_of(lineage.versions)


def _numbers_of(versions: Sequence[ModelVersionRecord]) -> str:
    return f"{versions[0].number}..{versions[-1].number}" if versions else "none"


def _tables(items: Iterator[Item]) -> Iterator[str]:
    """The items as aligned columns, a table for each kind."""
    for position, (_, group) in enumerate(itertools.groupby(items, key=lambda item: item["kind"])):
        rows = [{name: value for name, value in item.items() if name != "kind"} for item in group]
        names = [name for name in rows[0] if any(row[name] != "" for row in rows)]
        cells = [[name.replace("_", " ") for name in names], *([_cell(row[name]) for name in names] for row in rows)]
        widths = [max(len(row[column]) for row in cells) for column in range(len(names))]
        if position:
            yield ""
        for row in cells:
            aligned = (
                cell.ljust(width) if name in _LEFT else cell.rjust(width)
                for name, cell, width in zip(names, row, widths, strict=True)
            )
            yield printable("  ".join(aligned).rstrip())


def _cell(value: object) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.10g}" if isinstance(value, float) else str(value)
