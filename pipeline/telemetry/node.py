"""The telemetry process: reads the run's episodes from the start, so a restart shows the same figures."""

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server

from pipeline.broker import BrokerSettings, LogReader, Producer, Record, Topics, find_run
from pipeline.broker.commands import send_command
from pipeline.config import PipelineConfig
from pipeline.connect import connect, voucher_of, with_actors
from pipeline.errors import BrokerError, InvalidRecordError, RejectReason
from pipeline.experience import EpisodeInfo
from pipeline.telemetry.best import KIND, BestWindow, Candidate
from pipeline.telemetry.duplicates import Duplicates
from pipeline.telemetry.figure import save_figure
from pipeline.telemetry.results import Results
from pipeline.telemetry.statistics import Statistics
from pipeline.wire import Command, RecordHeaders, TelemetryWindow, Voucher, decode_episode

log = logging.getLogger(__name__)

_BATCH = 1_000
_SEND_S = 5.0


class TelemetryNode:
    """Keeps moving averages over episodes; writes windows, results and the figure; has the best version saved.

    What the log holds at the start is read first. Until then nothing is written or sent, so a restart repeats nothing.
    A full disk is said once; windows and commands go on without figure and results.

    Args:
        config: the whole configuration; ``run`` empty takes the newest run.
    """

    def __init__(self, config: PipelineConfig) -> None:
        self.config = config
        self.statistics = Statistics(config.telemetry.window_episodes)
        self.duplicates = Duplicates()
        self.refused = 0
        self._voucher: Voucher | None = None
        registry = CollectorRegistry()
        self._return = Gauge("pipeline_mean_return", "Mean return over the window.", registry=registry)
        self._steps = Gauge("pipeline_mean_episode_steps", "Mean episode length over the window.", registry=registry)
        self._episodes = Counter("pipeline_episodes", "Finished episodes.", registry=registry)
        self._repeated = Counter("pipeline_repeated_episodes", "Episodes that were sent again.", registry=registry)
        self._rejected = Counter("pipeline_refused_episodes", "Episode records that were refused.", registry=registry)
        self._turn_time = Gauge("pipeline_turn_time_seconds", "Unix time of the loop's last turn.", registry=registry)
        self._registry = registry
        self._results: Results | None = None
        self._disk_said = False

    def run(self, stop: Callable[[], bool] = lambda: False) -> None:
        """Read episodes until ``stop()`` says so.

        Raises:
            RunNotFoundError: there is no such run.
            BrokerUnreachableError: nobody answers at the address.
        """
        config = self.config
        self._broker = connect(config).broker
        # By the key at hand: episodes decide nothing that has to come out the same again.
        self._voucher = voucher_of(with_actors(config))
        manifest = find_run(self._broker, config.namespace, config.run or None, timeout=config.kafka.timeout_s)
        self._run = manifest.run
        self._topics = Topics(config.namespace, manifest.run)
        folder = Path(config.saves) / manifest.run
        self._figure = Path(config.telemetry.figure or folder / "telemetry.png")
        if config.telemetry.metrics_port:
            start_http_server(config.telemetry.metrics_port, addr=config.metrics_host, registry=self._registry)
        self._best = self._read_commands(self._broker)
        log.info("Telemetry of run %s; figure and results are in %s.", manifest.run, folder)
        reader = LogReader(self._broker, self._topics.episodes, start="earliest", open_timeout=config.kafka.timeout_s)
        with Producer(self._broker) as self._producer, reader:
            starts = {partition: offset for (_, partition), offset in reader.positions().items()}
            try:
                self._results = Results(folder / "results.csv", starts)
            except OSError as error:
                self._lose_results(error)
            try:
                self._follow(reader, stop)
            finally:
                self._close_results()

    def _follow(self, reader: LogReader, stop: Callable[[], bool]) -> None:
        ends = reader.end_offsets(self.config.kafka.timeout_s)
        caught_up, written, due = False, 0, 0.0
        while not stop():
            for record in reader.poll(_BATCH, 0.2):
                self._take(record)
            self._turn_time.set_to_current_time()
            if not caught_up:
                positions = reader.positions()
                caught_up = all(positions[place] >= end for place, end in ends.items())
            if caught_up:
                self._save_results()
            if caught_up and time.monotonic() >= due:
                due = time.monotonic() + self.config.telemetry.update_s
                written = self._write(written)
                self._tell(self._best.due)
        if caught_up:
            self._write(written)
            self._tell(self._best.left)

    def _take(self, record: Record) -> None:
        try:
            episode = decode_episode(record.value)
            if self._voucher is not None:
                _check_name(record, episode, self._voucher)
        except InvalidRecordError as error:
            level = logging.DEBUG if self.refused else logging.WARNING
            log.log(level, "An episode was refused: %s", error)
            self.refused += 1
            self._rejected.inc()
            return
        if self.duplicates.seen(record.value):
            self._repeated.inc()
            return
        statistics = self.statistics
        statistics.add(episode)
        self._episodes.inc()
        if self._best.improves(statistics.mean_return) and statistics.full:
            self._best.note(statistics.mean_return, statistics.median_version)
        if self._results is not None:
            try:
                self._results.add(record.partition, record.offset, record.timestamp_ms, episode)
            except OSError as error:
                self._lose_results(error)

    def _write(self, written: int) -> int:
        """Write a window and the figure if there is anything new since ``written`` episodes; how many there are now."""
        statistics = self.statistics
        if statistics.episodes == written:
            return written
        self._return.set(statistics.mean_return)
        self._steps.set(statistics.mean_steps)
        window = TelemetryWindow(
            run=self._run,
            first_ms=statistics.first_ms,
            last_ms=statistics.last_ms,
            episodes=statistics.episodes,
            mean_return=statistics.mean_return,
            mean_steps=statistics.mean_steps,
            best_return=statistics.best_return,
            version_number=statistics.version,
            transitions=statistics.transitions,
            metrics=statistics.mean_info(),
        )
        self._producer.send(self._topics.telemetry, window.encode(), key=self._run)
        self._producer.poll(0)
        try:
            save_figure(statistics.history, self._figure, self._run)
        except OSError as error:
            self._say_disk(error)
        return statistics.episodes

    # -- the best version ---------------------------------------------------------------------------------------------

    def _read_commands(self, broker: BrokerSettings) -> BestWindow:
        best = BestWindow(self._run, self.config.telemetry.window_episodes)
        if not self.config.telemetry.save_best:
            return best
        timeout = self.config.kafka.timeout_s
        with LogReader(broker, self._topics.commands, open_timeout=timeout) as reader:
            for record in reader.read_to_end(timeout):
                try:
                    best.known(Command.decode(record.value))
                except InvalidRecordError:
                    continue  # the learner says so
        return best

    def _tell(self, candidate: Candidate | None) -> None:
        """Have the learner keep the version; if the broker does not take it, it is tried again."""
        if candidate is None or not self.config.telemetry.save_best:
            return
        version, score = candidate
        arguments = {"epoch": version.epoch, "number": version.number, "score": score}
        try:
            send_command(
                self._broker,
                self._topics,
                KIND,
                arguments,
                issuer="telemetry",
                id=self._best.command_id(candidate),
                timeout=_SEND_S,
                producer=self._producer,
            )
        except BrokerError as error:
            log.warning("The learner is not told yet to keep version %s: %s", version, error)
            return
        self._best.told(candidate)
        log.info("The best window so far averages %.4g; version %s is to be kept.", score, version)

    # -- the disk -----------------------------------------------------------------------------------------------------

    def _save_results(self) -> None:
        if self._results is not None:
            try:
                self._results.publish()
                self._results.flush()
            except OSError as error:
                self._lose_results(error)

    def _lose_results(self, error: OSError) -> None:
        self._say_disk(error)
        self._close_results()

    def _close_results(self) -> None:
        results, self._results = self._results, None
        if results is not None:
            with suppress(OSError):  # what could not be flushed is in the log
                results.close()

    def _say_disk(self, error: OSError) -> None:
        level = logging.DEBUG if self._disk_said else logging.ERROR
        log.log(level, "Figure or results cannot be written: %s. The next start writes them anew from the log.", error)
        self._disk_said = True


def _check_name(record: Record, episode: EpisodeInfo, voucher: Voucher) -> None:
    headers = RecordHeaders.from_kafka(record.headers)
    voucher.check(headers)
    if (headers.actor, headers.session) != (episode.actor, episode.session):
        raise InvalidRecordError(
            RejectReason.HEADER_MISMATCH,
            f"the header says actor {headers.actor!r}, the episode {episode.actor!r}, or another session",
        )
