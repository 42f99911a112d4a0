"""The runs topic: a learner announces its run there, everybody else finds it."""

import logging
import time

from pipeline.broker.producer import Delivery, Producer
from pipeline.broker.reader import LogReader, Record
from pipeline.broker.settings import BrokerSettings
from pipeline.broker.topics import Topics, runs_topic
from pipeline.errors import ClientError, InvalidRecordError, RejectReason, RunNotFoundError, UnknownTopicError
from pipeline.wire import RunManifest, fingerprint, registry

logger = logging.getLogger("pipeline.broker")


def publish_manifest(producer: Producer, topics: Topics, manifest: RunManifest, timeout: float = 10.0) -> Delivery:
    """Announce a run, or its new state, and wait until the broker has it.

    Raises:
        DeliveryError, BrokerUnreachableError, UnknownTopicError: see ``Producer.send_and_wait``.
    """
    return producer.send_and_wait(topics.runs, manifest.encode(), key=manifest.run, timeout=timeout)


def list_runs(settings: BrokerSettings, namespace: str, timeout: float = 10.0) -> list[RunManifest]:
    """Newest manifest of every run of a namespace, oldest run first; empty without a runs topic.

    Raises:
        BrokerUnreachableError, BrokerAuthenticationError: the broker did not answer or refused.
    """
    runs: dict[str, RunManifest] = {}
    reader = LogReader(settings, runs_topic(namespace), open_timeout=timeout)
    try:
        _read(reader, runs, timeout, topics_s=2.0)
    except UnknownTopicError:
        return []
    finally:
        reader.close()
    return sorted(runs.values(), key=lambda manifest: manifest.created_ms)


def find_run(settings: BrokerSettings, namespace: str, run: str | None = None, timeout: float = 10.0) -> RunManifest:
    """The manifest of a run, waited for if it is not there yet.

    Args:
        run: its name, whatever its state; ``None``: the newest that is running.
        timeout: seconds; a learner that starts at the same time has that long to announce itself.

    Raises:
        RunNotFoundError: there is no such run, and those that there are are named; or a newer release announced it, so
            that this one cannot read how.
        BrokerUnreachableError, BrokerAuthenticationError: the broker did not answer or refused.
    """
    deadline = time.monotonic() + timeout
    runs, newer = dict[str, RunManifest](), set[str]()
    reader = LogReader(settings, runs_topic(namespace), open_timeout=timeout)
    try:
        _read(reader, runs, timeout, topics_s=timeout, newer=newer)
        while True:
            found = _choose(runs, run)
            if found is not None:
                return found
            if newer and (run in newer or run is None):
                raise RunNotFoundError(
                    f"run {run or ', '.join(sorted(newer))} at {settings.address} was announced by a newer release "
                    "than this one, which cannot read it; install the release that its learner has"
                )
            left = deadline - time.monotonic()
            if left <= 0:
                break
            _note(reader.poll(1000, min(0.2, left)), runs, newer)
    except UnknownTopicError:
        pass  # a topic without records says the same
    finally:
        reader.close()
    raise RunNotFoundError(_not_found(settings.address, namespace, run, runs, timeout))


def check_schemas(manifest: RunManifest) -> None:
    """Refuse to send what the run's learner cannot read.

    Raises:
        ClientError: the learner is of an older release.
    """
    known = {released.fingerprint for released in registry().released}
    newer = not known.issuperset(manifest.schemas)
    # A newer learner reads what older releases wrote.
    if not newer and fingerprint("chunk") not in manifest.schemas:
        raise ClientError(
            f"the learner of run {manifest.run} is of an older release, which cannot read what this one sends; install "
            "the release that the learner has, or bring the learner up to this one"
        )


def _read(
    reader: LogReader, runs: dict[str, RunManifest], timeout: float, topics_s: float, newer: set[str] | None = None
) -> None:
    # A missing topic is waited for only where a run is; an address is always given the whole time.
    reader.open(timeout, topics_s=topics_s)
    _note(reader.read_to_end(timeout), runs, newer)


def _note(records: list[Record], runs: dict[str, RunManifest], newer: set[str] | None = None) -> None:
    """Take in manifests; the names of runs whose newest one is of a newer release go into ``newer``."""
    newer = set() if newer is None else newer
    for record in records:
        if not record.value:
            continue
        try:
            manifest = RunManifest.decode(record.value)
        except InvalidRecordError as exc:
            logger.warning("%s[%d]@%d is no manifest: %s", *record.place, record.offset, exc)
            if exc.reason is RejectReason.UNKNOWN_SCHEMA and record.key:
                name = record.key.decode(errors="replace")
                newer.add(name)
                runs.pop(name, None)
            continue
        runs[manifest.run] = manifest
        newer.discard(manifest.run)


def _choose(runs: dict[str, RunManifest], run: str | None) -> RunManifest | None:
    if run is not None:
        return runs.get(run)
    running = [manifest for manifest in runs.values() if manifest.state == "running"]
    return max(running, key=lambda manifest: manifest.created_ms, default=None)


def _not_found(address: str, namespace: str, run: str | None, runs: dict[str, RunManifest], timeout: float) -> str:
    newest = sorted(runs.values(), key=lambda manifest: -manifest.created_ms)[:10]
    there = ", ".join(f"{m.run} ({m.state})" for m in newest) or "none"
    wanted = f"run {run!r}" if run is not None else "running run"
    return (
        f"no {wanted} in namespace {namespace!r} at {address} (waited {timeout:.1f} s); "
        f"runs there: {there}; start one with `pipeline learner`, or name one with run=NAME"
    )
