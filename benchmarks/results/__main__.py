"""Run what is missing of the table, and write the page: ``python -m benchmarks.results [NAME=VALUE …]``.

- ``rows=cartpole-dqn,acrobot-ppo``: only these; without it all.
- ``seeds=0,1``: only these; without it as many as the row asks for.
- ``systems=pipeline``: only this side; without it both, in turns.
- ``again=true``: also what is there already.
- ``run=false``: only the page.

Each run is written down as soon as it ends, so the whole can be stopped and gone on with. A run that was made with
other settings than the row has now is made again.
"""

import signal
import sys
from contextlib import ExitStack
from pathlib import Path

from benchmarks.results import report
from benchmarks.results.ours import run_ours
from benchmarks.results.peers import run_peer
from benchmarks.results.records import OURS, PEER, append, read, record
from benchmarks.results.rows import BY_NAME, ROWS, Row
from pipeline.services import running_services, services_fetch

SAVES = Path("saves") / "results"


def main(arguments: list[str]) -> None:
    """Run and report."""
    options = {"rows": ",".join(BY_NAME), "seeds": "", "systems": f"{OURS},{PEER}", "again": "false", "run": "true"}
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if not equals or name not in options:
            sys.exit(f"{argument!r} is none of {', '.join(f'{name}=…' for name in options)}")
        options[name] = value
    rows = [_known(name, BY_NAME) for name in options["rows"].split(",")]
    systems = [_known(name, {OURS: OURS, PEER: PEER}) for name in options["systems"].split(",")]
    seeds = [int(seed) for seed in options["seeds"].split(",") if seed]
    # An order to end is heard like Ctrl-C, so that services and processes end as well.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if options["run"] == "true":
        _run(rows, seeds, systems, options["again"] == "true")
    report.write(ROWS, read(BY_NAME))
    print(f"written: {report.DOCS / 'results.md'}")


def _run(rows: list[Row], seeds: list[int], systems: list[str], again: bool) -> None:
    made = set() if again else {(run["row"], run["seed"], run["system"]) for run in read(BY_NAME)}
    left = [
        (row, seed, system)
        for row in rows
        for seed in seeds or range(row.seeds)
        for system in systems
        if (system == OURS or row.peer) and (row.name, seed, system) not in made
    ]
    with ExitStack() as stack:
        folder = SAVES / "services"
        if any(system == OURS for _, _, system in left):
            services_fetch("local")
            stack.enter_context(running_services("local", folder))
        for number, (row, seed, system) in enumerate(left, 1):
            print(f"{number} of {len(left)}: {row.name}, seed {seed}, {system}", end=" … ", flush=True)
            progress = run_ours(row, seed, folder, SAVES) if system == OURS else run_peer(row, seed)
            append(record(row, system, seed, progress))
            found = progress.solved or progress.last
            said = "solved" if progress.solved else "not solved"
            print(f"{said}: {found.steps} steps, {found.seconds:.0f} s, mean {found.mean:.1f}" if found else "nothing")


def _known(name: str, names: dict) -> object:
    if name not in names:
        sys.exit(f"{name!r} is none of {', '.join(names)}")
    return names[name]


if __name__ == "__main__":
    main(sys.argv[1:])
