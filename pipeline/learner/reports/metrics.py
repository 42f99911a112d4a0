"""Prometheus metrics of the learner."""

import time
from collections.abc import Generator
from contextlib import contextmanager, suppress

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

ACTOR_VERDICTS = ("accepted", "stale", "refused")
"""What an actor's transitions are told apart by: more reasons would be more figures for each actor."""

_LAGS = (0, 1, 2, 3, 4, 6, 8, 12, 16, 32, 64)


class LearnerMetrics:
    """The learner's gauges and counters, in a registry of their own.

    Args:
        port: 0 serves nothing and leaves :attr:`enabled` False.
        host: the address that they are served on.
    """

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        self.enabled = port > 0
        registry = self.registry = CollectorRegistry()
        self.accepted = Counter("pipeline_accepted_transitions", "Transitions inserted.", registry=registry)
        self.rejected = Counter("pipeline_rejected_records", "Records refused.", ["reason"], registry=registry)
        self.duplicates = Counter("pipeline_duplicate_records", "Records seen before.", registry=registry)
        self.expired = Counter("pipeline_expired_offsets", "Offsets the log did not show.", registry=registry)
        self.policy_lag = Histogram(
            "pipeline_policy_lag_versions",
            "Versions between the one that acted and the one in force, of accepted chunks.",
            registry=registry,
            buckets=_LAGS,
        )
        self.actor_transitions = Counter(
            "pipeline_actor_transitions",
            "Transitions judged of the actors heard of last: accepted, stale, or refused for another reason.",
            ["actor", "verdict"],
            registry=registry,
        )
        self.actor_stale_share = Gauge(
            "pipeline_actor_stale_share",
            "Share of transitions that were too old, lately, of the actors heard of last.",
            ["actor"],
            registry=registry,
        )
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

    def forget_actor(self, actor: str) -> None:
        """Drop the figures of an actor: of those that are remembered there is a bound."""
        with suppress(KeyError):
            self.actor_stale_share.remove(actor)
        for verdict in ACTOR_VERDICTS:
            with suppress(KeyError):
                self.actor_transitions.remove(actor, verdict)

    @contextmanager
    def timing(self, gauge: Gauge) -> Generator[None]:
        """Set ``gauge`` to the seconds that the block took; only when Prometheus is on."""
        if not self.enabled:
            yield
            return
        started = time.perf_counter()
        yield
        gauge.set(time.perf_counter() - started)
