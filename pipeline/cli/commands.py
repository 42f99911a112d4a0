"""What each sub-command does; heavy imports happen inside, so that help is quick."""

import logging
import signal
import threading
from collections.abc import Callable, Sequence
from typing import Any

from pipeline.config import PipelineConfig, documentation, settings
from pipeline.errors import ConfigError, PipelineError

log = logging.getLogger(__name__)


def services(config: PipelineConfig, action: str, overrides: Sequence[str]) -> int:
    """``pipeline services up|down|status|fetch``."""
    from pipeline.services import services_down, services_fetch, services_status, services_up

    section = config.services
    if action == "up" and section.security == "tls":
        from pipeline.cli.secrets import apply_secrets, init_secrets

        init_secrets(config)
        secrets = config.secrets.folder
        return services_up(section.folder, section.kind, section.detach, secrets, lambda: apply_secrets(config))
    if action == "up":
        return services_up(section.folder, section.kind, section.detach)
    if action == "down":
        return services_down(section.folder)
    if action == "fetch":
        return services_fetch(section.kind)
    return services_status(section.folder)


def topics(config: PipelineConfig, action: str, overrides: Sequence[str]) -> int:
    """``pipeline topics check|create run=NAME``."""
    from pipeline.broker import Topics, check_topics, ensure_topics
    from pipeline.connect import connect

    if not config.run:
        raise ConfigError("Which run's topics? Give run=NAME.")
    kafka = config.kafka
    broker = connect(config).broker
    specs = Topics(config.namespace, config.run).specs(**kafka.topic_settings())
    if action == "create":
        created = ensure_topics(broker, specs, timeout=kafka.timeout_s, replication=kafka.replication)
        print("\n".join(f"created {name}" for name in created) or "Every topic was there already.")
        return 0
    problems = check_topics(broker, specs, timeout=kafka.timeout_s)
    print("\n".join(problems) or f"All {len(specs)} topics are as they should be.")
    return 1 if problems else 0


def learner(config: PipelineConfig, action: str, overrides: Sequence[str]) -> int:
    """``pipeline learner``."""
    from pipeline.learner import new_node

    node = new_node(config)
    _on_signals(node.shutdown)
    node.run()
    return 0


def client(config: PipelineConfig, action: str, overrides: Sequence[str]) -> int:
    """``pipeline client``."""
    from pipeline.client.acting import act

    act(config, _stop_on_signals())
    return 0


def telemetry(config: PipelineConfig, action: str, overrides: Sequence[str]) -> int:
    """``pipeline telemetry``."""
    from pipeline.telemetry.node import TelemetryNode

    TelemetryNode(config).run(_stop_on_signals())
    return 0


def quicksave(config: PipelineConfig, action: str, overrides: Sequence[str]) -> int:
    """``pipeline quicksave run=NAME``: prints the folder of the checkpoint."""
    from pipeline.broker import Topics, find_run
    from pipeline.broker.commands import order
    from pipeline.connect import connect

    broker = connect(config).broker
    run = config.run or find_run(broker, config.namespace, timeout=config.kafka.timeout_s).run
    topics = Topics(config.namespace, run)
    outcome = order(broker, topics, "quicksave", issuer="pipeline quicksave", timeout=config.command.timeout_s)
    print(outcome.detail)
    return 0


def set_parameters(config: PipelineConfig, action: str, overrides: Sequence[str]) -> int:
    """``pipeline set algorithm.NAME=VALUE … run=NAME``: prints each setting with its old and new value."""
    from pipeline.broker import Topics, find_run
    from pipeline.broker.commands import order
    from pipeline.connect import connect

    changes = _changes(config, overrides)
    broker = connect(config).broker
    run = config.run or find_run(broker, config.namespace, timeout=config.kafka.timeout_s).run
    topics = Topics(config.namespace, run)
    outcome = order(broker, topics, "set", changes, issuer="pipeline set", timeout=config.command.timeout_s)
    print(outcome.detail)
    return 0


def replay(config: PipelineConfig, action: str, overrides: Sequence[str]) -> int:
    """``pipeline replay ls|show|export|verify``."""
    if action == "show":
        from pipeline.offline.show import show

        return show(config)
    if action == "export":
        from pipeline.offline.export import export

        return export(config)
    if action == "verify":
        from pipeline.offline.verify import verify

        return verify(config)
    from pipeline.offline.ls import ls

    return ls(config)


def cleanup(config: PipelineConfig, action: str, overrides: Sequence[str]) -> int:
    """``pipeline cleanup run=NAME``: removes old weights by the policy of ``cleanup``, once or again and again."""
    if not config.run:
        raise ConfigError("Which run's weights? Give run=NAME.")
    every = config.cleanup.every_s
    if not every:
        _clean_up(config)
        return 0
    stop = threading.Event()
    _on_signals(stop.set)
    while not stop.is_set():
        try:
            _clean_up(config)
        except PipelineError as error:
            # Broker and store come and go, and the run may be yet to begin.
            log.warning("%s Next time in %g s.", error, every)
        stop.wait(every)
    return 0


def _clean_up(config: PipelineConfig) -> None:
    from pipeline.broker import Topics, find_run
    from pipeline.connect import connect
    from pipeline.learner.durable.run_folder import RunFolder
    from pipeline.weights import ObjectStore, run_clean_up

    folder = RunFolder(config.saves, config.run)
    if not folder.path.is_dir():
        raise ConfigError(
            f"{folder.path} is not here, so which versions its checkpoints need is unknown, and nothing is removed; "
            "give saves=FOLDER, the one that the learner saves in."
        )
    connection = connect(config)
    manifest = find_run(connection.broker, config.namespace, config.run, timeout=config.kafka.timeout_s)
    store = ObjectStore(connection.with_manifest(manifest).store)
    policy = config.cleanup
    removed = run_clean_up(
        store,
        connection.broker,
        Topics(config.namespace, config.run),
        policy.keep_last,
        policy.keep_every,
        folder.needed_versions(),
        config.kafka.timeout_s,
    )
    said = f"removed {len(removed)} versions: {removed[0]} … {removed[-1]}" if removed else "nothing to remove"
    print(said, flush=True)


def demo(config: PipelineConfig, action: str, overrides: Sequence[str]) -> int:
    """``pipeline demo``."""
    from pipeline.demo.demo import run_demo

    return run_demo(config)


def show_settings(config: PipelineConfig, action: str, overrides: Sequence[str]) -> int:
    """``pipeline settings``."""
    texts = documentation()
    for name, default in settings().items():
        print(f"{name}={default}\n    {texts.get(name, '')}")
    return 0


def _changes(config: PipelineConfig, overrides: Sequence[str]) -> dict[str, Any]:
    """The algorithm's settings that were named, with the values that the configuration has for them."""
    names = [override.lstrip("+").partition("=")[0] for override in overrides]
    chosen = [name for name in names if name.startswith("algorithm.")]
    known = settings()
    if not chosen:
        raise ConfigError("Which setting? Name it with its new value, such as algorithm.lr=1e-4.")
    for name in chosen:
        if name not in known:
            raise ConfigError(f"{name!r} is a group of settings; name each of those that are to change.")
    values: dict[str, Any] = {}
    for name in chosen:
        value: Any = config
        for part in name.split("."):
            value = getattr(value, part)
        values[name] = value
    return values


def _stop_on_signals() -> Callable[[], bool]:
    stop = threading.Event()
    _on_signals(stop.set)
    return stop.is_set


def _on_signals(stop: Callable[[], None]) -> None:
    """End in order on Ctrl-C and SIGTERM; a second Ctrl-C ends at once."""

    def handle(number: int, frame: object) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        stop()

    signal.signal(signal.SIGINT, handle)
    signal.signal(signal.SIGTERM, handle)
