"""The embedded services' process: ``python -m pipeline.services.embedded_host ADDRESSES``."""

import json
import logging
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from moto.server import ThreadedMotoServer

from pipeline.services.asking import HOST

ANSWER_SECONDS = 30.0


def main(addresses: Path) -> None:
    """Serve until SIGTERM; both addresses go into the file ``addresses`` once settled."""
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda _number, _frame: stop.set())
    # The mock cluster lives as long as the producer that made it.
    cluster: Any = Producer({"test.mock.num.brokers": 1, "log_level": 4})
    broker = next(iter(cluster.list_topics(timeout=ANSWER_SECONDS).brokers.values()))
    store = _start_store()
    part = addresses.with_suffix(".part")
    part.write_text(json.dumps({"broker": f"{broker.host}:{broker.port}", "store": store}))
    part.replace(addresses)
    while not stop.wait(1.0):
        cluster.poll(0)


def _start_store() -> str:
    logging.getLogger("werkzeug").setLevel(logging.WARNING)  # a line per request otherwise
    server = ThreadedMotoServer(ip_address=HOST, port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    return f"{host}:{port}"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
