"""The figure: moving averages of return and length over transitions."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from pipeline.telemetry.statistics import Point


def save_figure(points: Sequence[Point], path: Path, title: str) -> None:
    """Draw the history and replace the file at ``path`` in one step."""
    figure = Figure(figsize=(8, 5), layout="constrained")
    FigureCanvasAgg(figure)
    returns, steps = figure.subplots(2, 1, sharex=True)
    transitions = [point.transitions for point in points]
    returns.plot(transitions, [point.mean_return for point in points], color="tab:blue")
    returns.set_ylabel("mean return")
    returns.set_title(title)
    steps.plot(transitions, [point.mean_steps for point in points], color="tab:orange")
    steps.set_ylabel("mean episode length [steps]")
    steps.set_xlabel("transitions")
    for axis in (returns, steps):
        axis.grid(alpha=0.3)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}")
    figure.savefig(  # pyright: ignore[reportUnknownMemberType]
        temporary, format=path.suffix.lstrip(".") or "png", dpi=110
    )
    temporary.replace(path)
