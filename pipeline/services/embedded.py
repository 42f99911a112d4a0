"""Kafka's protocol and S3 from Python packages alone: librdkafka's mock cluster and moto's server in one process.

For a quick start and for tests. Nothing is durable: topics appear on first use with 4 partitions, and what is beyond
5 MB a partition is forgotten.
"""

import json
import logging
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any, cast

from pipeline.services.asking import HOST, broker_answers, http_answers
from pipeline.services.process import Command, Service

READY_SECONDS = 60.0


class EmbeddedServices(Service):
    """Broker and store in one child process; a new start takes new ports and forgets what they held.

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
        return Command([sys.executable, "-m", "pipeline.services.embedded", str(self._addresses)], {"PYTHONPATH": path})

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


def main(addresses: Path) -> None:
    """Serve until SIGTERM; writes both addresses into ``addresses`` once they are settled."""
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    cluster = _start_cluster()
    broker = next(iter(cluster.list_topics(timeout=READY_SECONDS).brokers.values()))
    store = _start_store()
    part = addresses.with_suffix(".part")
    part.write_text(json.dumps({"broker": f"{broker.host}:{broker.port}", "store": store}))
    part.replace(addresses)
    while not stop.wait(1.0):
        cluster.poll(0)


def _start_cluster() -> Any:
    from confluent_kafka import Producer

    # The mock cluster lives as long as the producer that made it.
    return Producer({"test.mock.num.brokers": 1, "log_level": 4})


def _start_store() -> str:
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    server = ThreadedMotoServer(ip_address=HOST, port=0, verbose=False)
    server.start()
    host, port = cast(tuple[str, int], server.get_host_and_port())
    return f"{host}:{port}"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
