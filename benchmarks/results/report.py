"""``docs/results.md`` and its plots, from the runs that there are."""

from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import matplotlib

from benchmarks.results.progress import ALL, FIRST
from benchmarks.results.records import OURS, PEER
from benchmarks.results.rows import Linear, Row

matplotlib.use("Agg")
from matplotlib import pyplot as plt

DOCS = Path(__file__).parents[2] / "docs"
_COLOURS = {OURS: "tab:blue", PEER: "tab:orange"}
_HEAD = f"""# Results

Made by `make results`; what was measured is in `benchmarks/results/results.jsonl`. Both systems learn on the same
machine, in turns, one run at a time; where the table says one core, beside other work, with a core of their own.

- **This pipeline** runs as its users run it: Apache Kafka and MinIO (`services=local`), a learner process, a client
  process with its uplink. Settings: `conf/experiment/<row>.yaml`, that is `experiment=<row>` for learner and client.
- **stable-baselines3** runs with the hyper-parameters that its zoo publishes, in a process of its own. Where the budget
  of a row is larger than the published number of steps, schedules end where they end there.
- **Solved**: the greedy policy is evaluated at regular marks, for both sides the same, in {FIRST} episodes. Where their
  mean return reaches the threshold, more are played; the first mark at which {ALL} episodes reach it counts.
- **Steps**: environment steps over all environments at that mark. Those of this pipeline are counted on the log; its
  newest version is evaluated, which was made from fewer.
- **Seconds**: wall time from the start of the processes to that mark, imports and the wait for the first weights
  included. While a policy is evaluated everything stands still, and the clock as well. Kafka and MinIO run before.
- Each cell is the median over the seeds and, in brackets, the range. An unsolved run counts as worse than any solved
  one.
"""


def write(rows: Sequence[Row], runs: Sequence[dict[str, Any]]) -> None:
    """Write the page and the plots; rows without runs are named."""
    folder = DOCS / "results"
    folder.mkdir(parents=True, exist_ok=True)
    by_row = {row.name: [run for run in runs if run["row"] == row.name] for row in rows}
    there = [row for row in rows if by_row[row.name]]
    parts = [_HEAD, _table(there, by_row)]
    missing = _missing(rows, by_row)
    if missing:
        parts.append("Not run, and so left out:\n\n" + "".join(f"- {name}\n" for name in missing))
    parts.append(_made(runs))
    for row in there:
        _plot(row, by_row[row.name], folder / f"{row.name}.png")
        parts.append(f"## {row.environment}, {row.title}\n\n![{row.name}](results/{row.name}.png)\n")
    parts.append(_peers(rows))
    (DOCS / "results.md").write_text("\n".join(parts))


def _table(rows: Sequence[Row], by_row: dict[str, list[dict[str, Any]]]) -> str:
    head = (
        "| environment | threshold | algorithm | cores | solved | steps | seconds "
        "| peer | cores | solved | steps | seconds |\n"
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n"
    )
    lines = [_line(row, by_row[row.name]) for row in rows if row.threshold is not None]
    text = head + "".join(lines) if lines else ""
    for row in rows:
        if row.threshold is None:
            text += f"\n{_final(row, by_row[row.name])}\n"
    return text


def _line(row: Row, runs: Sequence[dict[str, Any]]) -> str:
    cells = [
        row.environment,
        f"{row.threshold:g}",
        row.title,
        *_cells([r for r in runs if r["system"] == OURS]),
    ]
    peer = f"SB3 {row.peer.algorithm}" if row.peer else "–"
    cells += [peer, *_cells([r for r in runs if r["system"] == PEER])]
    return "| " + " | ".join(cells) + " |\n"


def _cells(runs: Sequence[dict[str, Any]]) -> list[str]:
    """On how many cores, how many runs were solved, in how many steps and seconds."""
    if not runs:
        return ["–", "–", "–", "–"]
    cores = ", ".join(str(count) for count in sorted({run["cores"] for run in runs}))
    solved = [run["solved"] for run in runs]
    count = sum(point is not None for point in solved)
    cells = [cores, f"{count} of {len(runs)}"]
    for name in ("steps", "seconds"):
        values = [float("inf") if point is None else float(point[name]) for point in solved]
        spent = [run["last"][name] for run in runs if run["solved"] is None and run["last"]]
        cells.append(_spread(values, f"> {min(spent, default=0):,.0f}"))
    return cells


def _spread(values: Sequence[float], unsolved: str) -> str:
    def text(value: float) -> str:
        return unsolved if value == float("inf") else f"{value:,.0f}"

    # An even number of runs of which half are solved has no finite median.
    return f"**{text(median(values))}** ({text(min(values))} – {text(max(values))})"


def _final(row: Row, runs: Sequence[dict[str, Any]]) -> str:
    ours = [run["last"] for run in runs if run["system"] == OURS and run["last"]]
    means = sorted(point["mean"] for point in ours)
    seconds = median(point["seconds"] for point in ours)
    return (
        f"{row.environment}, {row.title}, {len(ours)} seeds: after {row.budget:,} steps {FIRST} greedy episodes return "
        f"**{median(means):.1f}** ({means[0]:.1f} – {means[-1]:.1f}) on average, after a median of {seconds:,.0f} "
        "seconds. Nothing is published for stable-baselines3 there."
    )


def _missing(rows: Sequence[Row], by_row: dict[str, list[dict[str, Any]]]) -> list[str]:
    missing: list[str] = []
    for row in rows:
        for system in (OURS, PEER) if row.peer else (OURS,):
            made = {run["seed"] for run in by_row[row.name] if run["system"] == system}
            left = [str(seed) for seed in range(row.seeds) if seed not in made]
            if left:
                seeds = f", seed{'s' if len(left) > 1 else ''} {', '.join(left)}" if made else ""
                missing.append(f"{row.name} with {system}{seeds}")
    return missing


def _made(runs: Sequence[dict[str, Any]]) -> str:
    text = ""
    for key, title in (("machine", "Machine"), ("versions", "Versions")):
        found = sorted({_said(run[key]) for run in runs})
        text += f"{title}: " + "; ".join(found) + ".\n" if found else ""
    # What ran before a run, another run most often, leaves a load of about the cores behind.
    busy = [run for run in runs if run["load"] > 1.5 * run["cores"] > 1.5]
    if busy:
        text += (
            f"{len(busy)} of {len(runs)} runs began on a busy machine (load above 1.5 for each core): their seconds "
            "may be too many.\n"
        )
    return text


def _said(value: Any) -> str:
    return value if isinstance(value, str) else ", ".join(f"{name} {version}" for name, version in value.items())


def _plot(row: Row, runs: Sequence[dict[str, Any]], path: Path) -> None:
    figure, axes = plt.subplots(1, 2, figsize=(10, 3.5), sharey=True, layout="constrained")
    for run in sorted(runs, key=lambda run: run["system"] == OURS):
        label = f"{run['system']} {row.title if run['system'] == OURS else row.peer.algorithm if row.peer else ''}"
        for at, axis in enumerate(axes):
            known = axis.get_legend_handles_labels()[1]
            axis.plot(
                [point[at] for point in run["curve"]],
                [point[2] for point in run["curve"]],
                color=_COLOURS[run["system"]],
                linewidth=1,
                label=None if label in known else label,
            )
            if run["solved"]:
                place = run["solved"]["steps" if at == 0 else "seconds"]
                axis.plot(place, run["solved"]["mean"], "o", color=_COLOURS[run["system"]], markersize=4)
    for axis, name in zip(axes, ("environment steps", "seconds"), strict=True):
        axis.set_xlabel(name)
        axis.set_xlim(left=0)
        axis.grid(alpha=0.3)
        if row.threshold is not None:
            axis.axhline(row.threshold, color="grey", linestyle="--", linewidth=1)
    axes[0].set_ylabel(f"mean return of {FIRST} greedy episodes")
    axes[0].legend(loc="lower right")
    # No date in the file, so that it changes with the runs only.
    figure.savefig(path, dpi=90, metadata={"Software": None})
    plt.close(figure)


def _peers(rows: Sequence[Row]) -> str:
    text = "## Hyper-parameters of stable-baselines3\n"
    for row in rows:
        if row.peer is None:
            continue
        peer = row.peer
        settings = {**peer.settings, "n_timesteps": peer.steps, "n_envs": peer.environments}
        if peer.normalise:
            settings["normalize"] = True
        said = ", ".join(f"{name}={_value(value)}" for name, value in settings.items())
        text += f"\n- {row.environment}, {peer.algorithm}: `{said}`. From {peer.source}.\n"
    return text


def _value(value: Any) -> str:
    return f"lin_{value.start:g}" if isinstance(value, Linear) else str(value)
