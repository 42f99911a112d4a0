"""An iteration's chunks in one order, whatever order they came in."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.algorithms import Rollout
from pipeline.config import load_config
from pipeline.environment import read_layout
from pipeline.errors import CheckpointError, LearnerError
from pipeline.experience import Chunk, Identity, RewardTransform
from pipeline.learner.members.rollouts import Rollouts
from tests.learner.made_ppo import chunk_of, session_of

LAYOUT = read_layout(load_config([]).environment, on_policy=True)
PLAIN = RewardTransform()


def arrays(rollout: Rollout) -> dict[str, bytes]:
    """Everything that training sees of a rollout, as bytes."""
    named = {**rollout.observations, **rollout.columns}
    for name in ("reward", "length", "ending", "continues"):
        named[name] = getattr(rollout, name)
    return {name: array.tobytes() + str(array.dtype).encode() for name, array in named.items()}


def collected(chunks: dict[Identity, Chunk]) -> Rollouts:
    rollouts = Rollouts(LAYOUT)
    for identity, chunk in chunks.items():
        rollouts.add(identity, chunk)
    return rollouts


def iteration() -> dict[Identity, Chunk]:
    """Three clients with two sub-environments each; three chunks, of which the second goes on where the first ends."""
    chunks: dict[Identity, Chunk] = {}
    for actor in ("b", "a", "c"):
        for sequence, (first, ending, episode) in enumerate([(0, 0, 0), (4, 1, 0), (0, 2, 2)]):
            chunks[Identity(actor, session_of(actor), sequence)] = chunk_of(
                actor, 1, 4, first=first, ending=ending, episode=episode, environments=2, final=sequence == 2
            )
    return chunks


@settings(max_examples=60, deadline=None)
@given(st.permutations(list(iteration())))
def test_the_order_of_arrival_leaves_no_trace(order: list[Identity]):
    chunks = iteration()
    expected = arrays(collected(chunks).rollout(PLAIN))
    assert arrays(collected({identity: chunks[identity] for identity in order}).rollout(PLAIN)) == expected


def test_segments_stand_by_client_environment_and_step():
    chunks = iteration()
    rollout = collected(chunks).rollout(PLAIN)
    # By client: environment 0 with its chunks in order, then environment 1.
    assert rollout.ending.tolist() == [0, 1, 2, 0, 1, 2] * 3
    assert rollout.continues.tolist() == [True, False, False] * 6
    row = 0
    for actor in "abc":
        for environment in range(2):
            for sequence in range(3):
                chunk = chunks[Identity(actor, session_of(actor), sequence)]
                expected = chunk.columns["observation"][environment * 5 : environment * 5 + 5]
                assert rollout.observations["observation"][row : row + 5].tobytes() == expected.tobytes()
                row += 5
    reward = chunks[Identity("a", session_of("a"), 1)].columns["reward"][:4]
    assert rollout.reward[4:8].tobytes() == reward.tobytes()
    assert rollout.columns.keys() == {"action", "log_prob"}


@pytest.mark.parametrize(
    ("second", "continues"),
    [
        ({"first": 4}, True),
        ({"first": 5}, False),  # a step is missing between them
        ({"first": 4, "episode": 1}, False),
    ],
)
def test_a_chain_goes_on_only_where_the_next_step_follows(second: dict[str, int], continues: bool):
    chunks = {
        Identity("a", session_of("a"), 0): chunk_of("a", 1, 4),
        Identity("a", session_of("a"), 1): chunk_of("a", 1, 4, **second),
    }
    assert collected(chunks).rollout(PLAIN).continues.tolist() == [continues, False]


def test_another_client_s_segment_is_never_gone_on_with():
    chunks = {
        Identity("a", session_of("a"), 0): chunk_of("a", 1, 4),
        Identity("b", session_of("b"), 0): chunk_of("b", 1, 4, first=4),
    }
    assert collected(chunks).rollout(PLAIN).continues.tolist() == [False, False]


def test_rewards_are_scaled_and_then_clipped():
    chunks = iteration()
    plain = collected(chunks).rollout(PLAIN).reward
    transformed = collected(chunks).rollout(RewardTransform(3.0, 1.5)).reward
    np.testing.assert_array_equal(transformed, np.clip(plain.astype(np.float64) * 3, -1.5, 1.5).astype(np.float32))


def test_a_checkpoint_in_between_leaves_no_trace():
    rollouts = collected(iteration())
    again = Rollouts(LAYOUT)
    again.load_state(*rollouts.state())
    assert arrays(again.rollout(PLAIN)) == arrays(rollouts.rollout(PLAIN))
    assert len(again) == len(rollouts) == 72
    tensors, identities = rollouts.state()
    with pytest.raises(CheckpointError, match="cannot be read"):
        again.load_state({name: array[:-1] for name, array in tensors.items()}, identities)
    assert len(again) == 72


def test_nothing_collected_is_nothing_to_train_on():
    rollouts = collected(iteration())
    rollouts.clear()
    with pytest.raises(LearnerError, match="nothing to train on"):
        rollouts.rollout(PLAIN)
