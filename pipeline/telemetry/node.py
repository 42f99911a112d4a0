"""The telemetry process: reads the run's episodes from the start, so a restart shows the same figure."""

import logging
import time
from collections.abc import Callable
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server

from pipeline.broker import LogReader, Producer, Topics, find_run
from pipeline.config import PipelineConfig
from pipeline.connect import connect
from pipeline.errors import InvalidRecordError
from pipeline.telemetry.figure import save_figure
from pipeline.telemetry.statistics import Statistics
from pipeline.wire import TelemetryWindow, decode_episode

log = logging.getLogger(__name__)


class TelemetryNode:
    """Keeps moving averages over episodes, writes windows, saves the figure, exposes metrics on loopback.

    Args:
        config: the whole configuration; ``run`` empty takes the newest run.
    """

    def __init__(self, config: PipelineConfig) -> None:
        self.config = config
        self.statistics = Statistics(config.telemetry.window_episodes)
        self.refused = 0
        registry = CollectorRegistry()
        self._return = Gauge("pipeline_mean_return", "Mean return over the window.", registry=registry)
        self._steps = Gauge("pipeline_mean_episode_steps", "Mean episode length over the window.", registry=registry)
        self._episodes = Counter("pipeline_episodes", "Finished episodes.", registry=registry)
        self._registry = registry

    def run(self, stop: Callable[[], bool] = lambda: False) -> None:
        """Read episodes until ``stop()`` says so.

        Raises:
            RunNotFoundError: there is no such run.
            BrokerUnreachableError: nobody answers at the address.
        """
        config = self.config
        connection = connect(config)
        manifest = find_run(connection.broker, config.namespace, config.run or None, timeout=config.kafka.timeout_s)
        topics = Topics(config.namespace, manifest.run)
        path = Path(config.telemetry.figure or Path(config.saves) / manifest.run / "telemetry.png")
        if config.telemetry.metrics_port:
            start_http_server(config.telemetry.metrics_port, addr="127.0.0.1", registry=self._registry)
        producer = Producer(connection.broker)
        reader = LogReader(connection.broker, [topics.episodes], start="earliest")
        log.info("Telemetry of run %s; the figure is %s.", manifest.run, path)
        due = 0.0
        written = 0
        try:
            while not stop():
                for record in reader.poll(1000, 0.2):
                    self._take(record.value or b"")
                if self.statistics.episodes > written and time.monotonic() >= due:
                    due = time.monotonic() + config.telemetry.update_s
                    written = self.statistics.episodes
                    self._write(producer, topics, manifest.run, path)
        finally:
            reader.close()
            if self.statistics.episodes > written:
                self._write(producer, topics, manifest.run, path)
            producer.close()

    def _take(self, value: bytes) -> None:
        try:
            episode = decode_episode(value)
        except InvalidRecordError as error:
            self.refused += 1
            log.log(
                logging.WARNING if self.refused == 1 else logging.DEBUG,
                "An episode was refused: %s",
                error,
            )
            return
        self.statistics.add(episode)
        self._episodes.inc()

    def _write(self, producer: Producer, topics: Topics, run: str, path: Path) -> None:
        statistics = self.statistics
        point = statistics.mark()
        self._return.set(point.mean_return)
        self._steps.set(point.mean_steps)
        window = TelemetryWindow(
            run=run,
            first_ms=statistics.first_ms,
            last_ms=statistics.last_ms,
            episodes=statistics.episodes,
            mean_return=point.mean_return,
            mean_steps=point.mean_steps,
            best_return=statistics.best_return,
            version_number=statistics.version,
            transitions=statistics.transitions,
            metrics=statistics.mean_info(),
        )
        producer.send(topics.telemetry, window.encode())
        producer.poll(0)
        save_figure(statistics.history, path, run)
