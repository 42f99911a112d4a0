"""A connector without services: its uplink is a script, and what it sends lies in a list."""

import copy
import json
import threading
from collections.abc import Callable, Mapping
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pipeline.broker import BrokerSettings
from pipeline.client.connector import Connector
from pipeline.client.counters import JUDGED, LEARNER_BEATS, LEARNER_SEQUENCE, RUN_ENDED, STALE
from pipeline.client.mailbox import Mailbox
from pipeline.client.outbox import Item, Outbox
from pipeline.client.transition import Transition
from pipeline.client.uplink import UplinkSettings
from pipeline.config import PipelineConfig, load_config, to_dict
from pipeline.connect import Connection
from pipeline.environment import read_layout
from pipeline.experience import Chunk, EpisodeInfo, Version
from pipeline.weights import StoreSettings
from pipeline.wire import Member, RecordHeaders, RunManifest, decode_chunk, decode_episode, fingerprint

RUN = "made"
SMALL = ("algorithm.hidden=[8]", "client.actor=a", "client.first_weights_timeout_s=0.2")


@cache
def _config(words: tuple[str, ...]) -> PipelineConfig:
    return load_config([f"run={RUN}", *SMALL, *words])


class ScriptedUplink:
    """In the place of `UplinkHandle`: acknowledges everything, and tells what the test lets the learner say."""

    def __init__(
        self,
        context: Any,
        settings: UplinkSettings,
        counters: Any,
        outbox: Outbox,
        tensors: Mapping[str, np.ndarray],
        on_news: Callable[[str, Any], None],
        on_tick: Callable[[], float],
    ) -> None:
        self.settings = settings
        self.counters = counters
        self.tick = on_tick
        self.mailbox = Mailbox(context, tensors)
        self.restarts = 0
        self.sent: list[Item] = []
        self.closed = False
        self._outbox = outbox
        self._tensors = tensors
        self._on_news = on_news
        threading.Thread(target=self._acknowledge, daemon=True).start()

    def deliver(self, number: int, epoch: int = 1, exploration: float = 0.0) -> None:
        """Weights that tell which version they are."""
        weights = {name: np.full(array.shape, number, array.dtype) for name, array in self._tensors.items()}
        self.mailbox.write(weights, Version(epoch, number), exploration)
        self._on_news("version", Version(epoch, number))

    def say(self, state: str, since: int = -1, detail: str = "", others: tuple[Member, ...] = ()) -> None:
        """The learner's next heartbeat: where this client stands."""
        self.members(Member(self.settings.session, self.settings.actor, state, since, detail), *others)

    def members(self, *members: Member) -> None:
        """The learner's next heartbeat."""
        self._on_news("members", members)
        self.counters[LEARNER_BEATS] += 1

    def judge(self, sequence: int, transitions: int, stale: int = 0) -> None:
        """The learner has come so far in this session."""
        self.counters[LEARNER_SEQUENCE] = sequence
        self.counters[JUDGED] = transitions
        self.counters[STALE] = stale

    def end_run(self) -> None:
        """The manifest says that the run is over."""
        self.counters[RUN_ENDED] = 1

    def close(self) -> None:
        self.closed = True
        self._outbox.close()

    def _acknowledge(self) -> None:
        while not self.closed:
            taken = self._outbox.take(0.05)
            if taken is not None:
                self.sent.append(taken[1])
                self._outbox.acknowledge([taken[0]])


class Scene:
    """Makes connectors of one run, and reads what they sent.

    Args:
        monkeypatch: puts the script in the place of broker and uplink.
        words: of the run's and the client's configuration.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *words: str) -> None:
        self.config = copy.deepcopy(_config(words))
        algorithm = self.config.algorithm.name
        self.layout = read_layout(self.config.environment, on_policy=algorithm == "ppo")
        self.script: Callable[[ScriptedUplink], None] = begin
        manifest = RunManifest(
            run=RUN,
            namespace="rl",
            created_ms=0,
            epoch=1,
            config_json=json.dumps(to_dict(self.config)),
            layout_json=json.dumps(self.layout.to_json()),
            schemas=(fingerprint("chunk"), fingerprint("episode")),
            store_endpoint="",
            store_bucket="",
            store_secure=False,
            algorithm=algorithm,
            environment=self.config.environment.id,
        )
        where = Connection(BrokerSettings("127.0.0.1:1"), StoreSettings("127.0.0.1:1", "", "", "weights"))
        monkeypatch.setattr("pipeline.client.connector.connect", lambda _: where)
        monkeypatch.setattr("pipeline.client.connector.find_run", lambda *_, **__: manifest)
        monkeypatch.setattr("pipeline.client.connector.UplinkHandle", self._open)
        # The heap of the tests is not to be frozen.
        monkeypatch.setattr("pipeline.client.connector.gc", SimpleNamespace(collect=int, freeze=int))
        self.uplink: ScriptedUplink

    def _open(self, *arguments: Any) -> ScriptedUplink:
        self.uplink = ScriptedUplink(*arguments)
        self.script(self.uplink)
        return self.uplink

    def sample(self, number: int, **changes: Any) -> Transition:
        """A CartPole step that says its number, and follows the step before."""
        here, there = np.zeros(4, np.float32), np.zeros(4, np.float32)
        here[0], there[0] = number, number + 1
        extras = {"log_prob": np.float32(-0.7)} if "log_prob" in self.layout.by_name else None
        return Transition(**{
            "observation": here,
            "action": number % 2,
            "reward": 1.0,
            "next_observation": there,
            "terminated": False,
            "truncated": False,
            "extras": extras,
            **changes,
        })  # fmt: skip

    def chunks(self, connector: Connector[Any, Any]) -> list[tuple[RecordHeaders, Chunk]]:
        """What was sent so far, after it is."""
        assert connector._outbox.wait_empty(5.0)
        items = [item for item in self.uplink.sent if item.topic == "samples"]
        return [(RecordHeaders.from_kafka(item.headers), decode_chunk(item.value, self.layout)) for item in items]

    def episodes(self, connector: Connector[Any, Any]) -> list[EpisodeInfo]:
        """What was sent so far, after it is."""
        assert connector._outbox.wait_empty(5.0)
        return [decode_episode(item.value) for item in self.uplink.sent if item.topic == "episodes"]


def begin(uplink: ScriptedUplink) -> None:
    """A learner that has version 0 out, and takes the client in."""
    uplink.deliver(0, exploration=0.25)
    uplink.say("member", since=0)


def numbers(chunk: Chunk) -> list[int]:
    """The numbers of the samples in a chunk, see `Scene.sample`."""
    rows = [start + step for start, k in zip(chunk.segments.row_offsets, chunk.segments.length, strict=True)
            for step in range(k)]  # fmt: skip
    return chunk.columns["observation"][rows, 0].astype(int).tolist()
