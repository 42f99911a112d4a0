"""Statistics of observations: made of what was accepted, in force with every version, sent with the weights."""

from pathlib import Path

import numpy as np

from pipeline.algorithms import Agent
from pipeline.algorithms.spec import network_spec
from pipeline.experience import Version
from tests.learner.made import chunk_of, feed, node_in, record_of

NORMALISED = "algorithm.normalise_observations=true"


def moments(numbers: range) -> tuple[np.ndarray, np.ndarray]:
    """Mean and deviation of the observations of these chunks, taken at once."""
    rows = np.concatenate([chunk_of(number, Version(1, 0)).columns["observation"] for number in numbers])
    return rows.mean(0, np.float64), np.sqrt(rows.var(0, dtype=np.float64) + 1e-8)


def normaliser(weights: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    (mean,), (std,) = (
        [array for name, array in weights.items() if "normaliser" in name and name.endswith(end)]
        for end in ("mean", "std")
    )
    return mean, std


def test_a_version_holds_the_statistics_of_all_that_was_accepted_before_it(tmp_path: Path):
    node = node_in(tmp_path, NORMALISED)
    node.positions = {0: 0}
    node.journal.begin(node.positions)
    node.publish()
    assert normaliser(node.in_force)[0].tolist() == [0.0] * 4  # type: ignore[arg-type]
    checked = 0
    for number in range(12):
        # What is refused does not count.
        feed(node, [record_of(node, number, 2 * number), record_of(node, number, 2 * number + 1)])
        assert node.accounting.duplicates == number + 1
        if node.version.number > checked:
            checked = node.version.number
            weights = node.in_force
            assert weights is not None
            for found, expected in zip(normaliser(dict(weights)), moments(range(number + 1)), strict=True):
                np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7)
            agent = Agent(node.layout, network_spec(node.config.algorithm), seed=5)
            agent.load(weights)
            columns = {"observation": chunk_of(3, Version(1, 0)).columns["observation"]}
            other = agent.values(columns)
            assert not np.array_equal(other, agent.values({"observation": columns["observation"] + 0.1}))
    assert checked >= 3


def test_a_run_that_starts_from_another_s_checkpoint_goes_on_with_its_statistics(tmp_path: Path):
    node = node_in(tmp_path / "old", NORMALISED)
    node.positions = {0: 0}
    node.journal.begin(node.positions)
    node.publish()
    feed(node, [record_of(node, number, number) for number in range(8)])
    node.checkpoint(tmp_path / "saved")
    other = node_in(tmp_path / "new", NORMALISED)
    other.load_checkpoint(tmp_path / "saved")
    assert other.statistics is not None and node.statistics is not None
    assert other.statistics.count == node.statistics.count == 8 * 11
    assert normaliser(other.weights())[0].tolist() == normaliser(node.weights())[0].tolist()


def test_without_it_weights_and_checkpoints_have_no_trace_of_it(tmp_path: Path):
    node = node_in(tmp_path)
    names = [*node.weights(), *node.state()[0]]
    assert not [name for name in names if "normalis" in name or "statistics" in name]
