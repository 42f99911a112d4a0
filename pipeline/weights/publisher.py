"""Publishing a version: upload, look, and only then announce."""

import logging
import queue
import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import TracebackType
from typing import Self

import numpy as np

from pipeline.broker import Producer, Topics
from pipeline.errors import (
    BrokerError,
    FencedError,
    PipelineError,
    StoreError,
    WeightsCorruptError,
    WeightsExistError,
)
from pipeline.experience import Version
from pipeline.weights.keys import weights_key
from pipeline.weights.store import ObjectStore
from pipeline.weights.tensors import pack, sha256
from pipeline.wire import ModelVersionRecord

logger = logging.getLogger("pipeline.weights")


class Publisher:
    """Publishes versions, synchronously.

    Args:
        store: takes the weights.
        producer: announces; a transactional one does so in a transaction per version.
        topics: of the run.
        timeout: seconds that an announcement may take.
    """

    def __init__(self, store: ObjectStore, producer: Producer, topics: Topics, timeout: float = 10.0) -> None:
        self._store = store
        self._producer = producer
        self._topics = topics
        self._timeout = timeout

    def publish(self, record: ModelVersionRecord, tensors: Mapping[str, np.ndarray]) -> ModelVersionRecord:
        """Make a version visible to everybody; the record as announced.

        In this order: (1) PUT under the write-once key, (2) stat, which shows that the object is
        there with its size, (3) announce key, size and sha256 on the versions topic and wait for
        the broker. So what is announced can be fetched. A repetition after an error at any point
        is safe: an object that is there with the same bytes is not written again.

        Args:
            record: the version; key, size and sha256 are filled in here.
            tensors: the weights by name.

        Raises:
            WeightsExistError: other bytes are under the key: another learner has this epoch.
            StoreError: the store failed; nothing was announced.
            BrokerError: the announcement was not acknowledged; it may be in the log.
        """
        data = pack(tensors)
        announced = replace(record, key=weights_key(record.run, record.version), size=len(data), sha256=sha256(data))
        self._upload(announced, data)
        self._producer.send_and_wait(
            self._topics.versions,
            announced.encode(),
            key=announced.run,
            partition=0,
            timeout=self._timeout,
        )
        return announced

    def pin(self, version: Version, note: str = "") -> None:
        """Keep a version through clean-ups: say so on the versions topic, and wait for the broker.

        Args:
            version: an announced one, of whatever epoch.
            note: why.

        Raises:
            FencedError: another learner has taken this run over.
            BrokerError: the pin was not acknowledged; it may be in the log. Pinning again does no harm.
        """
        record = ModelVersionRecord(
            run=self._topics.run,
            epoch=version.epoch,
            number=version.number,
            key="",
            size=0,
            sha256="",
            created_ms=int(time.time() * 1000),
            kind="pin",
            note=note,
        )
        self._producer.send_and_wait(
            self._topics.versions, record.encode(), key=record.run, partition=0, timeout=self._timeout
        )

    @property
    def error(self) -> PipelineError | None:
        """What ended the announcing for good; None while it can go on."""
        return self._producer.error

    def _upload(self, record: ModelVersionRecord, data: bytes) -> None:
        try:
            self._store.put_once(record.key, data)
        except WeightsExistError:
            # An earlier try whose answer was lost leaves the same bytes: that is our own success.
            try:
                self._store.get(record.key, record.size, record.sha256)
            except WeightsCorruptError as exc:
                raise WeightsExistError(
                    f"{record.key} at {self._store.settings.address} holds other weights: another "
                    "learner publishes under this run and epoch; this one must stop"
                ) from exc
            return
        found = self._store.stat(record.key)
        if found.size != record.size:
            raise WeightsCorruptError(
                f"{record.key} at {self._store.settings.address} has {found.size} bytes after "
                f"{record.size} were written"
            )


class BackgroundPublisher:
    """Publishes versions in a thread, in the order they were handed over, every one of them.

    Training goes on while store or broker are away: the version at hand is tried again, with
    growing, jittered pauses. At most ``capacity`` versions wait; then ``submit`` does.

    Args:
        publisher: does the work.
        on_published: told of every announced version, in the publishing thread.
        capacity: versions that may wait.
        pause, max_pause: first and longest pause between two tries, seconds.
    """

    def __init__(
        self,
        publisher: Publisher,
        on_published: Callable[[ModelVersionRecord], None] | None = None,
        capacity: int = 1,
        pause: float = 0.2,
        max_pause: float = 10.0,
    ) -> None:
        self._publisher = publisher
        self._on_published = on_published
        self._pause = pause
        self._max_pause = max_pause
        self._waiting: queue.Queue[tuple[ModelVersionRecord, Mapping[str, np.ndarray]] | None]
        self._waiting = queue.Queue(capacity)
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._unpublished = 0
        self._error: PipelineError | None = None
        self._last: ModelVersionRecord | None = None
        self._published_at = time.monotonic()
        self._failures = 0
        self._failing = False
        self._jitter = random.Random()
        self._thread = threading.Thread(target=self._run, name="publisher", daemon=True)
        self._thread.start()

    @property
    def last(self) -> ModelVersionRecord | None:
        """The newest announced version."""
        return self._last

    @property
    def age(self) -> float:
        """Seconds since the newest announcement (or since the start)."""
        return time.monotonic() - self._published_at

    @property
    def failures(self) -> int:
        """Tries that failed so far."""
        return self._failures

    @property
    def failing(self) -> bool:
        """Whether a try failed and nothing has been published since."""
        return self._failing

    @property
    def error(self) -> PipelineError | None:
        """What ended the publishing for good: another learner has taken the run over; None while it goes on."""
        return self._error

    def __len__(self) -> int:
        """Versions handed over and not announced yet."""
        return self._unpublished

    def submit(
        self,
        record: ModelVersionRecord,
        tensors: Mapping[str, np.ndarray],
        timeout: float | None = None,
    ) -> bool:
        """Hand a version over; False if ``timeout`` seconds passed and the queue is still full.

        Args:
            record: the version, as for ``Publisher.publish``.
            tensors: the weights; not to be changed any more.
            timeout: ``None``: wait as long as it takes.

        Raises:
            FencedError, WeightsExistError: another learner has taken this run over; nothing more is published.
            BrokerError: closed.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._lock:
            self._unpublished += 1
        while True:
            if self._error is not None or self._stopping.is_set():
                with self._lock:
                    self._unpublished -= 1
                raise self._error or BrokerError("the publisher is closed")
            try:
                self._waiting.put((record, tensors), timeout=0.05)
                return True
            except queue.Full:
                if deadline is not None and time.monotonic() >= deadline:
                    with self._lock:
                        self._unpublished -= 1
                    return False

    def close(self, timeout: float = 10.0) -> int:
        """Publish what waits, for at most ``timeout`` seconds; how many versions were left over."""
        deadline = time.monotonic() + timeout
        while self._unpublished and self._thread.is_alive() and time.monotonic() < deadline:
            self._thread.join(0.02)
        self._stopping.set()
        self._thread.join(max(0.1, deadline - time.monotonic()))
        return self._unpublished

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                item = self._waiting.get(timeout=0.05)
            except queue.Empty:
                continue
            if item is None or not self._publish(*item):
                return
            with self._lock:
                self._unpublished -= 1

    def _publish(self, record: ModelVersionRecord, tensors: Mapping[str, np.ndarray]) -> bool:
        pause, told = self._pause, False
        while not self._stopping.is_set():
            try:
                announced = self._publisher.publish(record, tensors)
            except (WeightsExistError, FencedError) as exc:
                self._fail(exc)
                return False
            except (StoreError, BrokerError) as exc:
                if self._publisher.error is not None:
                    self._fail(exc)
                    return False
                self._failures += 1
                self._failing = True
                if not told:
                    told = True
                    logger.warning("version %s is not published yet, training goes on: %s", record.version, exc)
                self._stopping.wait(pause * self._jitter.uniform(0.5, 1.5))
                pause = min(self._max_pause, pause * 2)
            except PipelineError as exc:
                self._fail(exc)
                return False
            except Exception as exc:  # a programming error must not end the thread unseen
                self._fail(BrokerError(f"version {record.version} cannot be published: {exc!r}"))
                logger.exception("version %s cannot be published", record.version)
                return False
            else:
                if told:
                    logger.info("version %s is published now", record.version)
                self._failing = False
                self._last = announced
                self._published_at = time.monotonic()
                if self._on_published is not None:
                    self._on_published(announced)
                return True
        return False

    def _fail(self, error: PipelineError) -> None:
        logger.error("publishing stops: %s", error)
        self._failing = True
        self._error = error
