"""Orders to a learner, and what became of them.

A command is a record on the commands topic; whichever learner leads the run applies it when its turn comes, once per
id. Its outcome is in the learner's heartbeats. So it survives a broker or a learner that is away: it waits in the log.
"""

import json
import secrets
import time
from collections.abc import Mapping
from typing import Any

from pipeline.broker.producer import Producer
from pipeline.broker.reader import LogReader
from pipeline.broker.settings import BrokerSettings
from pipeline.broker.topics import Topics
from pipeline.errors import CommandError, InvalidRecordError
from pipeline.wire import Command, Heartbeat, Outcome


def send_command(
    settings: BrokerSettings,
    topics: Topics,
    kind: str,
    arguments: Mapping[str, Any] | None = None,
    issuer: str = "",
    id: str | None = None,
    *,
    timeout: float = 10.0,
    producer: Producer | None = None,
) -> Command:
    """Put a command into the log; the command as it is there.

    Args:
        settings: the broker.
        topics: of the run.
        kind: what to do, such as ``quicksave``, ``save_best`` or ``stop``.
        arguments: JSON-able.
        issuer: who gives it, for people.
        id: what makes it one command however often it is sent; ``None``: a new random one.
        timeout: seconds that the broker has to acknowledge it.
        producer: sends it; ``None``: one of its own.

    Raises:
        DeliveryError: not acknowledged in time; sending it again with the same id is safe.
        BrokerUnreachableError, BrokerAuthenticationError, UnknownTopicError: known reasons.
    """
    command = Command(
        id=id or secrets.token_hex(16),
        kind=kind,
        argument_json=json.dumps(dict(arguments or {})),
        issued_ms=int(time.time() * 1000),
        issuer=issuer,
    )
    if producer is not None:
        producer.send_and_wait(topics.commands, command.encode(), timeout=timeout)
        return command
    with Producer(settings) as own:
        own.send_and_wait(topics.commands, command.encode(), timeout=timeout)
    return command


def order(
    settings: BrokerSettings,
    topics: Topics,
    kind: str,
    arguments: Mapping[str, Any] | None = None,
    issuer: str = "",
    id: str | None = None,
    *,
    timeout: float = 30.0,
) -> Outcome:
    """Send a command and wait until the learner has carried it out.

    Args: as of :func:`send_command`; ``timeout``: seconds that the learner has, from when the log holds the command.
        The broker has its own: a slow one is not taken for a learner that is away.

    Raises:
        CommandError: the learner refused, or did not confirm in time; says whether one is alive.
        BrokerError: as :func:`send_command`.
    """
    # Opened first: a learner that is told to stop says so once.
    with LogReader(settings, topics.progress, "latest") as progress:
        command = send_command(settings, topics, kind, arguments, issuer, id)
        return await_outcome(settings, topics, command.id, timeout, progress)


def await_outcome(
    settings: BrokerSettings,
    topics: Topics,
    id: str,
    timeout: float = 30.0,
    progress: LogReader | None = None,
) -> Outcome:
    """Wait for the outcome of a command that was sent.

    Args:
        settings: the broker.
        topics: of the run.
        id: the command's.
        timeout: seconds.
        progress: reads the learner's heartbeats from before the command was sent; ``None``: those from now on are read,
            each of which tells the outcomes of the last commands.

    Raises:
        CommandError: the learner refused, or did not confirm in time; says whether one is alive.
        BrokerError: the heartbeats cannot be read.
    """
    if progress is None:
        with LogReader(settings, topics.progress, "latest") as own:
            return await_outcome(settings, topics, id, timeout, own)
    deadline = time.monotonic() + timeout
    alive: Heartbeat | None = None
    while time.monotonic() < deadline:
        for record in progress.poll(500, min(0.1, timeout)):
            beat = _learners(record.value)
            if beat is None:
                continue
            alive = beat
            for outcome in beat.outcomes:
                if outcome.id == id:
                    return _confirmed(outcome, topics, settings)
    raise CommandError(_unconfirmed(id, topics, settings, timeout, alive))


def _learners(value: bytes) -> Heartbeat | None:
    try:
        beat = Heartbeat.decode(value)
    except InvalidRecordError:
        return None  # what is no heartbeat tells nothing; the learner's next one tells the same
    return beat if beat.role == "learner" else None


def _confirmed(outcome: Outcome, topics: Topics, settings: BrokerSettings) -> Outcome:
    if outcome.done:
        return outcome
    raise CommandError(
        f"the learner of run {topics.run} at {settings.address} did not carry out command {outcome.id}: "
        f"{outcome.detail}"
    )


def _unconfirmed(id: str, topics: Topics, settings: BrokerSettings, timeout: float, alive: Heartbeat | None) -> str:
    if alive is None:
        return (
            f"no learner of run {topics.run} was heard of at {settings.address} within {timeout:.1f} s; command {id} "
            f"waits in the log: start one with `pipeline learner run={topics.run}`, and it is carried out"
        )
    return (
        f"the learner of run {topics.run} at {settings.address} lives (version {alive.version_epoch}."
        f"{alive.version_number}), but did not confirm command {id} within {timeout:.1f} s; it may still carry it out: "
        "look into its log, or raise command.timeout_s"
    )
