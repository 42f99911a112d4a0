"""``pipeline COMMAND [ACTION] [OVERRIDES]``: every command takes Hydra overrides."""

import logging
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

from pipeline.cli import commands, secrets
from pipeline.config import PipelineConfig, documentation, load_config, settings
from pipeline.config.ranges import CHOICES
from pipeline.errors import PipelineError
from pipeline.logs import configure_logging
from pipeline.resources import conf_folder

log = logging.getLogger(__name__)


class Command(NamedTuple):
    """One sub-command.

    Attributes:
        run: gets the configuration, the action, and the overrides as they were typed; returns the exit status.
        actions: words that may follow the command; the first is the default.
        summary: one line of help.
        operand: the setting that one more word after the action is for; empty: there is none.
    """

    run: Callable[[PipelineConfig, str, Sequence[str]], int]
    actions: tuple[str, ...]
    summary: str
    operand: str = ""


COMMANDS: dict[str, Command] = {
    "demo": Command(commands.demo, (), "learner, clients and services in one command, until solved"),
    "services": Command(
        commands.services,
        ("status", "up", "down", "fetch"),
        "start, end or show broker and object store",
    ),
    "topics": Command(commands.topics, ("check", "create"), "check or create the topics of run=NAME"),
    "secrets": Command(
        secrets.secrets,
        ("init", "apply", "client", "revoke", "rotate"),
        "certificates, users and rights; client, revoke and rotate take a NAME",
        operand="secrets.name",
    ),
    "learner": Command(commands.learner, (), "the training node"),
    "client": Command(commands.client, (), "act in a vectorised environment, for the newest run"),
    "telemetry": Command(commands.telemetry, (), "moving averages, figure and metrics of a run"),
    "quicksave": Command(commands.quicksave, (), "have the learner of run=NAME (the newest) save its state now"),
    "set": Command(commands.set_parameters, (), "change algorithm.X=VALUE while run=NAME (the newest) goes on"),
    "replay": Command(
        commands.replay,
        ("ls", "show", "export", "verify"),
        "list, show, export or compute again what a run recorded",
    ),
    "cleanup": Command(commands.cleanup, (), "remove old weights of run=NAME from the store; pinned ones stay"),
    "settings": Command(commands.show_settings, (), "every setting, its default and what it means"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Returns:
        0; 1 after an error, which is said in one sentence; 2 for words that are no command; 130 after Ctrl-C.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] in ("-h", "--help", "help"):
        print(_usage())
        return 0 if words else 2
    name = words.pop(0)
    command = COMMANDS.get(name)
    if command is None:
        print(f"pipeline: there is no command {name!r}.\n\n{_usage()}", file=sys.stderr)
        return 2
    if any(word in ("-h", "--help") for word in words):
        print(_help(name, command))
        return 0
    action = command.actions[0] if command.actions else ""
    if command.actions and words and "=" not in words[0]:
        action = words.pop(0)
        if action not in command.actions:
            print(
                f"pipeline {name}: {action!r} is none of {', '.join(command.actions)}.",
                file=sys.stderr,
            )
            return 2
    if command.operand and words and "=" not in words[0]:
        words[0] = f"{command.operand}={words[0]}"
    try:
        config = load_config(words)
        configure_logging(config.log_level)
        return command.run(config, action, words)
    except PipelineError as error:
        print(f"pipeline {name}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _usage() -> str:
    width = max(len(name) for name in COMMANDS)
    lines = ["usage: pipeline COMMAND [SETTING=VALUE ...]", "", "commands:"]
    lines += [f"  {name:<{width}}  {command.summary}" for name, command in COMMANDS.items()]
    return "\n".join([*lines, "", "`pipeline COMMAND --help` shows a command's settings."])


def _help(name: str, command: Command) -> str:
    actions = f" [{'|'.join(command.actions)}]" if command.actions else ""
    lines = [f"usage: pipeline {name}{actions} [SETTING=VALUE ...]", "", command.summary, ""]
    for group in sorted(path for path in conf_folder().iterdir() if path.is_dir()):
        lines.append(f"group {group.name}={'|'.join(sorted(path.stem for path in group.glob('*.yaml')))}")
    lines.append("")
    texts = documentation()
    for setting, default in settings().items():
        lines.append(f"  {setting}={default}")
        lines.append(f"      {texts.get(setting, '')}")
        if setting in CHOICES:
            lines.append(f"      One of {', '.join(CHOICES[setting])}.")
    return "\n".join(lines)
