"""Kafka's protocol and S3 from Python packages alone: librdkafka's mock cluster and moto's server
in one process.

For a quick start and for tests. Nothing is durable: topics appear on first use with 4 partitions,
and what is beyond 5 MB a partition is forgotten.
"""

import json
import os
import sys
from pathlib import Path

from pipeline.services.asking import broker_answers, http_answers
from pipeline.services.process import Command, Service

READY_SECONDS = 60.0


class EmbeddedServices(Service):
    """Broker and store in one child process; a new start takes new ports and forgets what they
    held.

    Args:
        folder: the process writes its addresses there.
        log: the process's log file.
    """

    def __init__(self, folder: Path, log: Path) -> None:
        super().__init__("The embedded broker and store", log, READY_SECONDS)
        self._addresses = folder / "embedded.json"

    def prepare(self) -> Command:
        """Forget the addresses of an earlier start."""
        self._addresses.parent.mkdir(parents=True, exist_ok=True)
        self._addresses.unlink(missing_ok=True)
        root = str(Path(__file__).resolve().parents[2])
        path = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
        return Command(
            [sys.executable, "-m", "pipeline.services.embedded_host", str(self._addresses)],
            {"PYTHONPATH": path},
        )

    def answers(self) -> bool:
        """Whether both have settled their addresses and answer there."""
        if not self._addresses.exists():
            return False
        return broker_answers(self.broker) and http_answers(self.store, "/moto-api/")

    @property
    def broker(self) -> str:
        """The bootstrap address, ``host:port``."""
        return str(json.loads(self._addresses.read_text())["broker"])

    @property
    def store(self) -> str:
        """The S3 endpoint, ``host:port``, without TLS."""
        return str(json.loads(self._addresses.read_text())["store"])
