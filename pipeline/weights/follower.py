"""Following a run's weights: always the newest, checked, never backwards."""

import logging
import random
import time
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from pipeline.broker import BrokerSettings, LogReader, Topics
from pipeline.broker.reader import Record
from pipeline.errors import InvalidRecordError, StoreError
from pipeline.experience import Version
from pipeline.weights.store import ObjectStore
from pipeline.wire import ModelVersionRecord

logger = logging.getLogger("pipeline.weights")

_TAIL = 16
_NOTHING = Version(-1, -1)


@dataclass(frozen=True)
class FollowedVersion:
    """A newer version, fetched.

    Attributes:
        record: its announcement.
        data: the safetensors bytes, of the announced size and sha256.
    """

    record: ModelVersionRecord
    data: bytes

    @property
    def version(self) -> Version:
        """Epoch and number."""
        return self.record.version


class Follower:
    """Reads the versions topic and fetches the newest weights, skipping what they overtook.

    Announcements of an epoch below the newest claimed or announced one come from a learner that
    was replaced, and are ignored, as in a `Lineage`. When the store fails, what the caller has stays good, and the
    fetch is tried again by later polls, with growing pauses. Connects with the first ``poll``. Not
    thread-safe.

    Args:
        settings: the broker.
        store: holds the weights.
        topics: of the run.
        max_bytes: larger announcements are ignored.
        open_timeout: seconds that the first ``poll`` waits for broker and topic.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        store: ObjectStore,
        topics: Topics,
        *,
        max_bytes: int = 2**31,
        open_timeout: float = 10.0,
    ) -> None:
        self._store = store
        self._topic = topics.versions
        self._run = topics.run
        self._max_bytes = max_bytes
        self._open_timeout = open_timeout
        self._reader = LogReader(settings, self._topic, partitions=[0], open_timeout=open_timeout)
        self._opened = False
        self._epoch = -1
        self._wanted: ModelVersionRecord | None = None
        self._held = _NOTHING
        self._seen = _NOTHING
        self._retry_at = 0.0
        self._pause = 0.0
        self._told = False
        self.skipped = 0
        """Versions that were overtaken before they were fetched."""

    @property
    def held(self) -> Version:
        """The newest version that ``poll`` returned; (−1, −1) before the first."""
        return self._held

    @property
    def announced(self) -> Version:
        """The newest version seen on the log; (−1, −1) before the first."""
        return self._seen

    def poll(self, timeout: float = 0.1) -> FollowedVersion | None:
        """The newest version, if it is newer than the one returned last.

        Waits at most ``timeout`` seconds for an announcement (the fetch takes its own time).

        Raises:
            BrokerError: on the first call, if there is no broker or no topic (see
                ``LogReader.open``). A store that fails is not an error but ``None``.
        """
        if not self._opened:
            self._open()
        wait = timeout
        if self._wanted is not None:
            wait = min(timeout, max(0.0, self._retry_at - time.monotonic()))
        records = self._reader.poll(1000, wait)
        while records:
            self._note(records)
            records = self._reader.poll(1000, 0.0)
        return self._fetch()

    def close(self) -> None:
        """Disconnect. Closing twice is fine."""
        self._reader.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _open(self) -> None:
        """Start near the end: the topic keeps every version for ever, and only the last counts."""
        self._reader.open(self._open_timeout)
        place = (self._topic, 0)
        low, high = self._reader.watermarks()[place]
        tail = _TAIL
        # The last offsets may be commit markers and claims, so the tail grows until it has weights.
        while True:
            start = max(low, high - tail)
            self._reader.seek(place, start)
            self._note(self._reader.read_to_end(self._open_timeout))
            if self._wanted is not None or start == low:
                break
            tail *= 8
        self._opened = True

    def _note(self, records: list[Record]) -> None:
        for record in records:
            try:
                version = ModelVersionRecord.decode(record.value)
            except InvalidRecordError as exc:
                logger.warning("%s@%d is no version: %s", record.topic, record.offset, exc)
                continue
            # A pin names a version of any epoch, and neither makes nor fences one.
            if version.run != self._run or version.kind == "pin" or version.epoch < self._epoch:
                continue
            self._epoch = version.epoch
            if version.kind == "claim" or version.number <= self._seen.number:
                continue
            if version.size > self._max_bytes:
                logger.warning(
                    "version %s is ignored: %d bytes, at most %d are fetched",
                    version.version,
                    version.size,
                    self._max_bytes,
                )
                continue
            if self._wanted is not None:
                self.skipped += 1
            self._seen = version.version
            self._wanted = version
            self._retry_at = 0.0

    def _fetch(self) -> FollowedVersion | None:
        wanted = self._wanted
        if wanted is None or time.monotonic() < self._retry_at:
            return None
        try:
            data = self._store.get(wanted.key, wanted.size, wanted.sha256)
        except StoreError as exc:
            self._pause = min(5.0, max(0.2, self._pause * 2))
            self._retry_at = time.monotonic() + self._pause * random.uniform(0.5, 1.0)
            if not self._told:
                self._told = True
                logger.warning(
                    "version %s cannot be fetched, %s stays in use: %s",
                    wanted.version,
                    f"version {self._held}" if self._held != _NOTHING else "nothing yet",
                    exc,
                )
            return None
        if self._told:
            logger.info("version %s is fetched, the store is back", wanted.version)
        self._told = False
        self._pause = 0.0
        self._wanted = None
        self._held = wanted.version
        return FollowedVersion(wanted, data)
