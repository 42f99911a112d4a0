"""What a learner says of itself: heartbeats on the progress topic while it lives, and its run's manifest."""

import json
import logging
import time
from collections.abc import Callable

from pipeline.broker import publish_manifest
from pipeline.config import to_dict
from pipeline.errors import PipelineError
from pipeline.learner.fold import Fold
from pipeline.learner.links import Links
from pipeline.wire import Heartbeat, Member, RunManifest, fingerprint

log = logging.getLogger(__name__)

_READ_SCHEMAS = ("chunk", "episode", "command", "heartbeat")


class Presence:
    """Tells actors, telemetry and whoever gave an order how far the learner is.

    Args:
        fold: whose state is told.
        links: of the learner.
        session: of this learner.
        members: says who takes part.
    """

    def __init__(self, fold: Fold, links: Links, session: str, members: Callable[[], tuple[Member, ...]]) -> None:
        self._fold = fold
        self._links = links
        self._session = session
        self._members = members
        self._created_ms = int(time.time() * 1000)
        self._sequence = 0
        self._due = 0.0

    def beat(self, *, now: bool = False) -> None:
        """One heartbeat, at most every ``learner.heartbeat_s`` unless it is wanted ``now``."""
        clock = time.monotonic()
        if clock < self._due and not now:
            return
        fold = self._fold
        self._due = clock + fold.config.learner.heartbeat_s
        positions = fold.identities.positions()
        beat = Heartbeat(
            run=fold.run_name,
            node="learner",
            role="learner",
            session=self._session,
            sequence=self._sequence,
            sent_ms=int(time.time() * 1000),
            version_epoch=fold.version.epoch,
            version_number=max(0, fold.version.number),
            transitions=fold.accounting.accepted_transitions,
            rejected=fold.accounting.rejected_transitions,
            positions=positions,
            members=self._members(),
            outcomes=fold.commands.outcomes(),
        )
        self._sequence += 1
        try:
            self._links.producer.send(self._links.topics.progress, beat.encode(), key="learner")
            self._links.producer.poll(0)
        except PipelineError as error:
            log.debug("no heartbeat: %s", error)
        fold.metrics.actors.set(len(positions))
        fold.metrics.turn_time.set_to_current_time()

    def announce(self, state: str) -> None:
        """Publish the run's manifest, and wait until the broker has it.

        Args:
            state: running or stopped.

        Raises:
            BrokerError: see ``publish_manifest``.
        """
        fold, links = self._fold, self._links
        store = links.connection.store
        manifest = RunManifest(
            run=fold.run_name,
            namespace=fold.config.namespace,
            created_ms=self._created_ms,
            epoch=links.epoch,
            config_json=json.dumps(to_dict(fold.config)),
            layout_json=json.dumps(fold.layout.to_json()),
            schemas=tuple(fingerprint(name) for name in _READ_SCHEMAS),
            store_endpoint=store.endpoint,
            store_bucket=store.bucket,
            store_secure=store.secure,
            algorithm=fold.config.algorithm.name,
            environment=fold.config.environment.id,
            state=state,
        )
        publish_manifest(links.producer, links.topics, manifest)
