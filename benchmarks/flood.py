"""What the others lose while one client floods the broker, with its quota and without.

Two clients write chunks and wait for each acknowledgement; a third writes as much as it can. Each phase is measured
beside one without the flood, in turns. All run on this machine, so the flood's own work is in it.
"""

import multiprocessing
import statistics
import tempfile
import time
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

from pipeline.broker import BrokerSettings, Producer, Topics
from pipeline.broker.quotas import Quota, set_quota
from pipeline.config import PipelineConfig, load_config
from pipeline.connect import connect
from pipeline.errors import BrokerError, QueueFullError
from pipeline.secrets.folder import SETUP, Hosts, SecretsFolder
from pipeline.secrets.users import Users
from pipeline.services import running_services

SECONDS = 5.0
ROUNDS = 3
CHUNK = 40_000
CLIENTS = ("alice", "carol")
FLOODS = {"large records": 500_000, "small records": 200}
HOSTS = Hosts(["127.0.0.1"], ["127.0.0.1"])


def main() -> None:
    """Print the figures."""
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as base:
        folder = SecretsFolder(Path(base) / "secrets")
        folder.init(HOSTS)
        with running_services("local", Path(base) / "services", keep_data=False, secrets=folder.path) as services:
            config = load_config(
                [
                    f"services.folder={services.folder}",
                    f"secrets.folder={folder.path}",
                    "run=flood",
                    "kafka.timeout_s=60",
                ]
            )
            users = Users(config)
            users.apply()
            for name in (*CLIENTS, "mallory"):
                users.client(name)
            section = config.secrets
            quota = Quota(section.client_bytes_per_s, section.client_bytes_per_s, section.client_requests)
            print(f"quota: {quota.write / 1e6:.1f} MB/s, {quota.requests:g} % of a thread")
            for what, size in FLOODS.items():
                for said, bound in (("with the quota", quota), ("without", None)):
                    set_quota(_broker(config, folder, SETUP), "mallory", bound)
                    _compare(context, config, folder, f"{what}, {said}", size)


def _compare(context: Any, config: PipelineConfig, folder: SecretsFolder, what: str, size: int) -> None:
    rates: dict[bool, list[float]] = {False: [], True: []}
    flooded: list[float] = []
    for _ in range(ROUNDS):
        for flooding in (False, True):
            others, flood = _phase(context, config, folder, size if flooding else 0)
            rates[flooding].append(others)
            if flooding:
                flooded.append(flood)
    alone, beside = statistics.median(rates[False]), statistics.median(rates[True])
    print(
        f"{what:<32} flood {statistics.median(flooded) / 1e6:6.1f} MB/s   others {alone / 1e6:6.2f} -> "
        f"{beside / 1e6:6.2f} MB/s, {100 * (1 - beside / alone):+5.1f} % lost",
        flush=True,
    )


def _phase(context: Any, config: PipelineConfig, folder: SecretsFolder, size: int) -> tuple[float, float]:
    """Bytes a second of the others together, and of the flood."""
    topic, stop, results = Topics(config.namespace, "flood").samples, context.Event(), context.Queue()
    work = [(_steadily, _broker(config, folder, name), CHUNK) for name in CLIENTS]
    if size:
        work.append((_flood, _broker(config, folder, "mallory"), size))
    processes = [
        context.Process(target=_run, args=(target, settings, topic, size, stop, results), daemon=True)
        for target, settings, size in work
    ]
    for process in processes:
        process.start()
    ready = [results.get() for _ in processes]
    assert all(name == "ready" for name, _ in ready)
    time.sleep(SECONDS)
    stop.set()
    done = [results.get() for _ in processes]
    for process in processes:
        process.join()
    return sum(rate for name, rate in done if name == "_steadily"), sum(rate for name, rate in done if name == "_flood")


def _run(target: Any, settings: BrokerSettings, topic: str, size: int, stop: Event, results: Any) -> None:
    with Producer(settings, linger_ms=0, queue_buffering_max_kbytes=16 * 1024) as producer:
        producer.send_and_wait(topic, b"x", timeout=60.0)
        results.put(("ready", 0.0))
        begun = time.monotonic()
        acknowledged = target(producer, topic, bytes(size), stop)
        results.put((target.__name__, acknowledged * size / (time.monotonic() - begun)))
        producer._producer.purge()


def _steadily(producer: Producer, topic: str, value: bytes, stop: Event) -> int:
    count = 0
    while not stop.is_set():
        producer.send_and_wait(topic, value, timeout=60.0)
        count += 1
    return count


def _flood(producer: Producer, topic: str, value: bytes, stop: Event) -> int:
    acknowledged = 0

    def delivered(delivery: Any) -> None:
        nonlocal acknowledged
        acknowledged += delivery.error is None

    while not stop.is_set():
        try:
            for _ in range(100):
                producer.send(topic, value, on_delivery=delivered)
            producer.poll(0.0)
        except QueueFullError:
            producer.poll(0.01)
        except BrokerError:
            break
    return acknowledged


def _broker(config: PipelineConfig, folder: SecretsFolder, user: str) -> BrokerSettings:
    path = folder.role(user) if user == SETUP else folder.client(user)
    return connect(load_config([f"secret={path}", f"services.folder={config.services.folder}"])).broker
