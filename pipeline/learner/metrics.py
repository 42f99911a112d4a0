"""Prometheus metrics of the learner."""

import time
from collections.abc import Generator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server


class LearnerMetrics:
    """The learner's gauges and counters, in a registry of their own.

    Args:
        port: 0 serves nothing and leaves :attr:`enabled` False.
        host: the address that they are served on.
    """

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        self.enabled = port > 0
        registry = CollectorRegistry()
        self.accepted = Counter("pipeline_accepted_transitions", "Transitions inserted.", registry=registry)
        self.rejected = Counter("pipeline_rejected_records", "Records refused.", ["reason"], registry=registry)
        self.duplicates = Counter("pipeline_duplicate_records", "Records seen before.", registry=registry)
        self.expired = Counter("pipeline_expired_offsets", "Offsets the log did not show.", registry=registry)
        self.updates = Counter("pipeline_updates", "Train steps.", registry=registry)
        self.version = Gauge("pipeline_version", "Newest version number.", registry=registry)
        self.buffer = Gauge("pipeline_buffer_transitions", "Transitions in the replay buffer.", registry=registry)
        self.letters = Counter("pipeline_dead_letters", "Dead letters written.", registry=registry)
        self.withheld = Counter(
            "pipeline_withheld_dead_letters", "Dead letters beyond learner.dead_letters_per_s.", registry=registry
        )
        self.actors = Gauge("pipeline_sessions", "Sessions heard of.", registry=registry)
        self.update_seconds = Gauge("pipeline_update_seconds", "Time of the last train step.", registry=registry)
        self.version_age = Gauge("pipeline_version_age_seconds", "Since the newest announcement.", registry=registry)
        self.checkpoint_seconds = Gauge("pipeline_checkpoint_seconds", "Pause for the last one.", registry=registry)
        self.publish_seconds = Gauge("pipeline_publish_seconds", "Time to hand a version over.", registry=registry)
        self.turn_time = Gauge("pipeline_turn_time_seconds", "Unix time of the loop's last turn.", registry=registry)
        if self.enabled:
            start_http_server(port, addr=host, registry=registry)

    @contextmanager
    def timing(self, gauge: Gauge) -> Generator[None]:
        """Set ``gauge`` to the seconds that the block took; only when Prometheus is on."""
        if not self.enabled:
            yield
            return
        started = time.perf_counter()
        yield
        gauge.set(time.perf_counter() - started)
