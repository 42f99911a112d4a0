"""Java, Maven and Go: what the local services are made with."""

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from pipeline.errors import MissingToolError, ServiceError

JAVA_MAJOR = 17


def find_java() -> str:
    """The path of a ``java`` of version 17 or newer.

    Raises:
        MissingToolError: there is none.
    """
    home = os.environ.get("JAVA_HOME")
    java = (shutil.which("java", path=str(Path(home) / "bin")) if home else None) or shutil.which("java")
    if java is None:
        raise MissingToolError(f"Java is not installed: the local Kafka needs Java {JAVA_MAJOR} or newer.")
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    version = re.search(r'version "(?:1\.)?(\d+)', said.stderr + said.stdout)
    if said.returncode != 0 or version is None or int(version[1]) < JAVA_MAJOR:
        found = version[1] if version else "no version"
        raise MissingToolError(f"Java {JAVA_MAJOR} or newer is needed by the local Kafka; {java} says {found}.")
    return java


def find_maven() -> str:
    """The path of ``mvn``.

    Raises:
        MissingToolError: it is not installed.
    """
    return _find("mvn", "Maven is not installed: it fetches the jars of the local Kafka.")


def find_go() -> str:
    """The path of ``go``.

    Raises:
        MissingToolError: it is not installed.
    """
    return _find("go", "Go is not installed: it builds the local MinIO.")


def missing_tools(*finders: Callable[[], str]) -> list[str]:
    """What the finders miss: one sentence each."""
    sentences: list[str] = []
    for find in finders:
        try:
            find()
        except MissingToolError as error:
            sentences.append(str(error))
    return sentences


def run_tool(command: Sequence[str], purpose: str, environment: Mapping[str, str] | None = None) -> None:
    """Run a tool to its end.

    Raises:
        ServiceError: it failed; the message says what for and holds the end of its output.
    """
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env={**os.environ, **(environment or {})},
        check=False,
    )
    if done.returncode != 0:
        tail = "\n".join(done.stdout.splitlines()[-15:])
        raise ServiceError(f"{purpose} failed: {Path(command[0]).name} exited with {done.returncode}.\n{tail}")


def _find(name: str, missing: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise MissingToolError(missing)
    return path
