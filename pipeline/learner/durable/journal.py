"""The journal in the making: what the fold does between two versions, written down as it happens."""

import hashlib
from collections.abc import Mapping

from pipeline.broker import Record
from pipeline.experience import Version
from pipeline.wire import COMMANDS, EVENTS, Command, Journal, JournalCommand, JournalCounters, JournalEvent, JournalStep

MOST_STEPS = 4_000
"""Beyond it a version is cut early, so that its record stays within what readers take."""


class JournalWriter:
    """Collects the steps since the last version, neighbouring ones of one source as one.

    Where training is triggered by counts, train steps follow from what was applied and are not written down.

    Args:
        seed: of networks and sampling.
        free_running: whether train steps are written down.
    """

    def __init__(self, seed: int, *, free_running: bool) -> None:
        self._seed = seed
        self._free_running = free_running
        self._steps: list[JournalStep] = []
        self._commands: list[JournalCommand] = []
        self._events: list[JournalEvent] = []
        self._positions: dict[int, int] = {}
        self._last = (0, 0)
        self._origin = ("", "")
        self._broken = ""
        self._samples = b""

    @property
    def empty(self) -> bool:
        """Whether nothing was applied since the version."""
        return not self._steps

    @property
    def full(self) -> bool:
        """Whether a version should be cut for the journal's sake."""
        return len(self._steps) >= MOST_STEPS

    def begin(self, positions: Mapping[int, int], *, origin: tuple[str, str] = ("", ""), broken: str = "") -> None:
        """The next version does not begin where its parent ended.

        Args:
            positions: where reading begins, by source.
            origin: run and version that the state was loaded from, and the sha256 of that checkpoint's manifest.
            broken: why the parent's state could not be reached again.
        """
        self._positions = dict(positions)
        self._origin = origin
        self._broken = broken

    def sample(self, record: Record) -> None:
        """A record of the samples topic was applied."""
        # A chain, so that its state between two records is eight bytes that a checkpoint can hold.
        digest = hashlib.blake2b(self._samples, digest_size=8)
        for _, value in record.headers or ():
            digest.update(value or b"")
        digest.update(record.value)
        self._samples = digest.digest()
        self.applied(record.partition, record.offset + 1)

    def applied(self, source: int, next_offset: int) -> None:
        """The record before ``next_offset`` was applied."""
        if source != COMMANDS:
            self._last = (source, next_offset)
        steps = self._steps
        if steps and steps[-1].source == source != COMMANDS and not steps[-1].updates:
            steps[-1] = JournalStep(source, next_offset)
        else:
            steps.append(JournalStep(source, next_offset))

    def command(self, command: Command, next_offset: int) -> None:
        """The command before ``next_offset`` was applied."""
        self._commands.append(JournalCommand(command.id, command.kind, command.argument_json))
        self.applied(COMMANDS, next_offset)

    def event(self, event: JournalEvent) -> None:
        """A decision that depends on time was applied."""
        self._events.append(event)
        # It lies on no topic, so there is no position to remember.
        self._steps.append(JournalStep(EVENTS, 0))

    def updated(self) -> None:
        """A train step was made."""
        if not self._free_running:
            return
        if not self._steps:
            # Nothing was read since the version: a step that stays where it is carries the updates.
            self._steps.append(JournalStep(*self._last))
        step = self._steps[-1]
        self._steps[-1] = JournalStep(step.source, step.next_offset, step.updates + 1)

    def journal(self, parent: Version | None, counters: JournalCounters) -> Journal:
        """What was written down so far.

        Args:
            parent: the version before; None for the first.
            counters: the sums by now.
        """
        return Journal(
            parent=parent,
            seed=self._seed,
            free_running=self._free_running,
            steps=tuple(self._steps),
            commands=tuple(self._commands),
            events=tuple(self._events),
            positions=self._positions,
            counters=counters,
            samples=self._samples,
            origin=self._origin[0],
            origin_sha256=self._origin[1],
            broken=self._broken,
        )

    def cut(self) -> None:
        """A version was made of what is written down: begin anew."""
        self._steps = []
        self._commands = []
        self._events = []
        self._positions = {}
        self._origin = ("", "")
        self._broken = ""
        self._samples = b""

    def load(self, journal: Journal) -> None:
        """Go on with a journal that :meth:`journal` gave."""
        self._steps = list(journal.steps)
        self._commands = list(journal.commands)
        self._events = list(journal.events)
        self._positions = dict(journal.positions)
        self._origin = (journal.origin, journal.origin_sha256)
        self._broken = journal.broken
        self._samples = journal.samples
        for step in self._steps:
            if step.source >= 0:
                self._last = (step.source, step.next_offset)
