"""``python -m tests.fuzz``: atheris on every core, from the corpus, for a while; what it found stays in ``.fuzz/``.

``--executions`` lets it go on until there were so many, however slow the machine is.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz.seeds import corpus, seeds
from tests.fuzz.targets import input_for

_DONE = re.compile(r"stat::number_of_executed_units:\s+(\d+)")
_PEAK = re.compile(r"stat::peak_rss_mb:\s+(\d+)")
_SLOWEST_S = 5
_RSS_MIB = 1024
_LONGEST = 2048
"""Bytes of an input, of which structure needs some hundred; test_fuzz.py has bombs of a MiB."""
_GRACE_S = 120


@dataclass(frozen=True)
class Outcome:
    """What a run of the fuzzer came to.

    Attributes:
        executions: of all processes together.
        peak_mib: the most memory that one of them had.
        failures: the end of the output of each that found something.
    """

    executions: int
    peak_mib: int
    failures: tuple[str, ...]


def fuzz(seconds: int, workers: int, findings: Path, seed: int = 0, executions: int = 0) -> Outcome:
    """Run the fuzzer.

    Args:
        seconds: how long; loading takes some more.
        workers: processes.
        findings: the folder for inputs that crash, hang or take too much.
        seed: of the mutations; 0: another one each time.
        executions: as many at least, if nothing is found: it goes on, from the inputs that it has come to.
    """
    findings.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        start = Path(folder) / "start"
        start.mkdir()
        known = [*corpus(), *((target, data) for target, _, data in seeds())]
        for number, (target, data) in enumerate(known):
            (start / f"{number:04d}").write_bytes(input_for(target, data))
        outcome = _round(seconds, workers, start, findings, seed)
        while 0 < outcome.executions < executions and not outcome.failures:
            print(f"{outcome.executions} executions so far", flush=True)
            seed += workers if seed else 0
            more = _round(seconds, workers, start, findings, seed)
            outcome = Outcome(outcome.executions + more.executions, max(outcome.peak_mib, more.peak_mib), more.failures)
    return outcome


def _round(seconds: int, workers: int, start: Path, findings: Path, seed: int) -> Outcome:
    """One run of so many processes; inputs that reach something new are added to ``start``."""
    running = [_start(seconds, start, findings, seed + index if seed else 0) for index in range(workers)]
    said = [_finish(process, seconds) for process in running]
    executions = [int(found[1]) for text in said if (found := _DONE.search(text))]
    peaks = [int(found[1]) for text in said if (found := _PEAK.search(text))]
    failures = [text[-4_000:] for process, text in zip(running, said, strict=True) if process.returncode]
    return Outcome(sum(executions), max(peaks, default=0), tuple(failures))


def _start(seconds: int, start: Path, findings: Path, seed: int) -> "subprocess.Popen[str]":
    options = {
        "max_total_time": seconds,
        "timeout": _SLOWEST_S,
        "rss_limit_mb": _RSS_MIB,
        "max_len": _LONGEST,
        "print_final_stats": 1,
        "verbosity": 0,
        "artifact_prefix": f"{findings}{os.sep}",
        "seed": seed,
    }
    command = [sys.executable, "-m", "tests.fuzz.worker", str(start)]
    return subprocess.Popen(
        [*command, *(f"-{name}={value}" for name, value in options.items())],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )


def _finish(process: "subprocess.Popen[str]", seconds: int) -> str:
    try:
        return process.communicate(timeout=seconds + _GRACE_S)[0]
    except subprocess.TimeoutExpired:
        process.kill()
        return process.communicate()[0]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--executions", type=int, default=0, help="goes on until there were so many")
    parser.add_argument("--findings", type=Path, default=Path(".fuzz"))
    chosen = parser.parse_args()
    started = time.monotonic()
    outcome = fuzz(chosen.seconds, chosen.workers, chosen.findings, executions=chosen.executions)
    for failure in outcome.failures:
        print(failure)
    print(
        f"{outcome.executions} executions in {time.monotonic() - started:.0f} s by {chosen.workers} processes, "
        f"at most {outcome.peak_mib} MiB each: {len(outcome.failures)} findings"
        + (f", in {chosen.findings}" if outcome.failures else "")
    )
    return 1 if outcome.failures or outcome.executions < chosen.executions else 0


if __name__ == "__main__":
    sys.exit(main())
