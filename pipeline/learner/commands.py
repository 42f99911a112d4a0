"""Commands to the learner: applied in the fold's order, once per id.

The journal holds which commands were applied and where. ``set`` is the one with a say in what is learned: whoever
follows the journal applies it in the same place. The others are passed over then: what they did outside of the fold was
done before the version that tells of them was announced; only the best model is saved in the background, and what is
pending of that is part of the state.
"""

import json
import logging
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol, cast

from pipeline.broker import Record
from pipeline.errors import (
    BrokerError,
    CommandError,
    FencedError,
    InvalidRecordError,
    PipelineError,
    StoreError,
    WeightsCorruptError,
    WeightsNotFoundError,
)
from pipeline.experience import Version
from pipeline.learner.best_model import Announced, Best, save_best
from pipeline.learner.durable.run_folder import RunFolder
from pipeline.wire import Command, JournalCommand, Outcome

log = logging.getLogger(__name__)

SET = "set"
"""Changes settings of the algorithm: its arguments are their new values by full name."""

_MOST_IDS = 10_000
_MOST_OUTCOMES = 16
_LONGEST_DETAIL = 500
_TELL_S = 60.0
_PAUSE_S, _MAX_PAUSE_S = 0.2, 10.0


class Adjustable(Protocol):
    """What ``set`` needs of the fold."""

    def set_parameters(self, changes: Mapping[str, Any]) -> str:
        """Change settings of the algorithm, by full name; what was changed, as a sentence.

        Raises:
            CommandError: it cannot be; nothing was changed then.
        """
        ...


class CommandTarget(Adjustable, Announced, Protocol):
    """What the handlers need of the node."""

    @property
    def folder(self) -> RunFolder:
        """Where the run is saved."""
        ...

    @property
    def version(self) -> Version:
        """The version in force."""
        ...

    def checkpoint(self, path: Path, options: Mapping[str, Any] | None = None) -> None:
        """Save the present state; returns when the folder is there whole.

        Raises:
            PipelineError, OSError: it could not be written; there is no such folder then.
        """
        ...

    def shutdown(self) -> None:
        """End after the record in hand."""
        ...


class Commands:
    """Which commands were applied, and what came of the last of them.

    :meth:`apply`, :meth:`remember`, :meth:`resume`, :meth:`state` and :meth:`load_state` are called by the fold's
    thread. At most 10,000 ids and 16 outcomes are remembered, the oldest go first.

    Attributes:
        refused: records of the commands topic that held no command.
    """

    def __init__(self) -> None:
        self.refused = 0
        self._ids: OrderedDict[str, None] = OrderedDict()
        self._outcomes: OrderedDict[str, tuple[Outcome, float]] = OrderedDict()
        self._untold: deque[JournalCommand] = deque(maxlen=_MOST_OUTCOMES)
        self._pending: Best | None = None
        self._target: CommandTarget | None = None
        self._changed = threading.Condition()
        self._stopping = False
        self._thread: threading.Thread | None = None
        self._handlers: dict[str, Callable[[str, Mapping[str, Any], CommandTarget], str | None]] = {
            "quicksave": _quicksave,
            "save_best": self._save_best,
            "stop": _stop,
            SET: _set,
        }

    def read(self, record: Record) -> Command | None:
        """The command in a record; None, counted and logged, if it holds none. Never raises."""
        try:
            return Command.decode(record.value)
        except InvalidRecordError as error:
            level = logging.DEBUG if self.refused else logging.WARNING
            log.log(level, "%s, offset %d, is no command and is passed over: %s", record.topic, record.offset, error)
            self.refused += 1
            return None

    def apply(self, command: Command, target: CommandTarget, *, earlier: bool = False) -> None:
        """Carry a command out, unless one of its id was; never raises.

        Call it when position and journal are past the record: a manual checkpoint then does not apply it again.

        Args:
            command: the next of the commands topic.
            target: what to do it with.
            earlier: whether it was in the log before this learner started. ``stop`` then is passed over: it was meant
                for another learner, and this one was started after it.
        """
        if command.id in self._ids:
            self._tell_again(command, target)
            return
        self._know(command.id)
        if earlier and command.kind == "stop":
            self._tell(command.id, False, "it was given before this learner started")
            return
        handler = self._handlers.get(command.kind)
        try:
            if handler is None:
                raise CommandError(f"there is no command {command.kind!r}; there are {', '.join(self._handlers)}")
            detail = handler(command.id, _arguments(command.argument_json), target)
        except (PipelineError, OSError) as error:
            log.warning("Command %s %s is not carried out: %s", command.kind, command.id, error)
            self._tell(command.id, False, str(error))
            return
        if detail is not None:
            log.info("Command %s %s: %s", command.kind, command.id, detail)
            self._tell(command.id, True, detail)

    def remember(self, command: Command | JournalCommand, target: Adjustable) -> None:
        """A command that the journal tells of: it was applied, by this learner or the one before.

        Args:
            command: the next of the journal.
            target: the fold, which ``set`` changes again as it did then.
        """
        if command.id in self._ids:
            return
        self._know(command.id)
        if command.kind == SET:
            try:
                self._tell(command.id, True, target.set_parameters(_arguments(command.argument_json)))
            except CommandError as error:
                self._tell(command.id, False, str(error))
        self._untold.append(JournalCommand(command.id, command.kind, command.argument_json))
        if command.kind == "save_best":
            with suppress(CommandError):  # it was refused then
                self._replace_pending(Best.from_arguments(_arguments(command.argument_json), command.id))

    def resume(self, target: CommandTarget) -> None:
        """The journal has been followed: finish what an earlier learner had begun, and tell of what it had finished."""
        while self._untold:
            command = self._untold.popleft()
            if command.kind != "save_best":
                self._tell_again(command, target)
        self._wake(target)

    def outcomes(self) -> tuple[Outcome, ...]:
        """What became of the commands of the last minute, the newest last: part of every heartbeat."""
        oldest = time.monotonic() - _TELL_S
        with self._changed:
            return tuple(outcome for outcome, told in self._outcomes.values() if told >= oldest)

    def close(self, timeout: float = 10.0) -> None:
        """Finish saving the best model, for at most ``timeout`` seconds; what is left over stays in the state."""
        thread = self._thread
        if thread is None:
            return
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        thread.join(timeout)

    def state(self) -> dict[str, Any]:
        """JSON-able values for the checkpoint."""
        with self._changed:
            return {
                "ids": list(self._ids),
                "outcomes": [[each.id, each.done, each.detail] for each, _ in self._outcomes.values()],
                "pending": None if self._pending is None else _pending_to_json(self._pending),
            }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take over what :meth:`state` gave; nothing is carried out before :meth:`resume`."""
        self._ids = OrderedDict.fromkeys(cast("list[str]", state["ids"]))
        self._outcomes.clear()
        self._untold.clear()
        for id, done, detail in state["outcomes"]:
            self._tell(id, done, detail)
        pending = cast("dict[str, Any] | None", state["pending"])
        self._pending = None if pending is None else Best.from_arguments(pending, pending["command"])

    # -- inside -------------------------------------------------------------------------------------------------------

    def _know(self, id: str) -> None:
        self._ids[id] = None
        if len(self._ids) > _MOST_IDS:
            self._ids.popitem(last=False)

    def _tell(self, id: str, done: bool, detail: str) -> None:
        with self._changed:
            self._outcomes[id] = Outcome(id, done, detail[:_LONGEST_DETAIL]), time.monotonic()
            self._outcomes.move_to_end(id)
            if len(self._outcomes) > _MOST_OUTCOMES:
                self._outcomes.popitem(last=False)

    def _tell_again(self, command: Command | JournalCommand, target: CommandTarget) -> None:
        """Its outcome once more, for whoever sent it again or waits across a restart."""
        with self._changed:
            known = self._outcomes.get(command.id)
            if self._pending is not None and self._pending.command == command.id:
                return
        if known is not None:
            self._tell(command.id, known[0].done, known[0].detail)
        elif command.kind == "quicksave":
            saved = target.folder.find_manual_save(command.id)
            self._tell(
                command.id, saved is not None, str(saved.resolve()) if saved else "it was not saved; see the log"
            )
        else:
            self._tell(command.id, True, "it was applied before")

    # -- the best model, in the background ----------------------------------------------------------------------------

    def _save_best(self, id: str, arguments: Mapping[str, Any], target: CommandTarget) -> None:
        self._replace_pending(Best.from_arguments(arguments, id))
        self._wake(target)

    def _replace_pending(self, best: Best) -> None:
        """Only the best of those that wait is worth saving."""
        with self._changed:
            other = self._pending
            overtaken = best if other is not None and other.score > best.score else other
            if overtaken is not best:
                self._pending = best
                self._changed.notify_all()
        if overtaken is not None:
            self._tell(overtaken.command, False, "another version scored higher before this one was saved")

    def _wake(self, target: CommandTarget) -> None:
        with self._changed:
            if self._pending is None:
                return
            self._target = target
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="commands", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def _work(self) -> None:
        pause = _PAUSE_S
        while (job := self._next_job()) is not None:
            best, target = job
            try:
                done, detail = True, save_best(target.folder.best_model, best, target)
            except FencedError as error:
                log.error("The best model is not saved: %s", error)
                return  # the learner that took the run over does it
            except (CommandError, WeightsNotFoundError, WeightsCorruptError, OSError) as error:
                done, detail = False, str(error)
            except (StoreError, BrokerError) as error:
                log.warning("Version %s, the best so far, is not saved yet: %s", best.version, error)
                with self._changed:
                    if self._changed.wait_for(lambda: self._stopping, pause):
                        return
                pause = min(_MAX_PAUSE_S, 2 * pause)
                continue
            except Exception as error:  # a programming error must not end the thread unseen
                log.exception("Version %s, the best so far, cannot be saved.", best.version)
                done, detail = False, repr(error)
            pause = _PAUSE_S
            log.info("The best model: %s", detail)
            self._finish(best, done, detail)

    def _next_job(self) -> tuple[Best, CommandTarget] | None:
        """What to save next; None: nothing any more."""
        with self._changed:
            self._changed.wait_for(lambda: self._pending is not None or self._stopping)
            if self._pending is None or self._target is None:
                return None
            return self._pending, self._target

    def _finish(self, best: Best, done: bool, detail: str) -> None:
        with self._changed:
            if self._pending is best:
                self._pending = None
        self._tell(best.command, done, detail)


def _quicksave(id: str, arguments: Mapping[str, Any], target: CommandTarget) -> str:
    folder = target.folder.find_manual_save(id)
    if folder is None:
        folder = target.folder.manual_save_of(target.version, id)
        target.checkpoint(folder, {"note": str(arguments.get("note", ""))})
    return str(folder.resolve())


def _set(id: str, arguments: Mapping[str, Any], target: CommandTarget) -> str:
    return target.set_parameters(arguments)


def _stop(id: str, arguments: Mapping[str, Any], target: CommandTarget) -> str:
    target.shutdown()
    return "the learner ends"


def _arguments(text: str) -> Mapping[str, Any]:
    try:
        arguments: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CommandError(f"its arguments are not JSON: {error}") from error
    if not isinstance(arguments, dict):
        raise CommandError("its arguments are no JSON object")
    return cast("dict[str, Any]", arguments)


def _pending_to_json(best: Best) -> dict[str, Any]:
    version = best.version
    return {"epoch": version.epoch, "number": version.number, "score": best.score, "command": best.command}
