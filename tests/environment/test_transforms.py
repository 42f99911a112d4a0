"""Frame stacks and mapped actions, for one environment and for vectors of them."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.algorithms import Agent, NetworkSettings
from pipeline.config import EnvironmentConfig
from pipeline.environment import (
    Frames,
    action_masks,
    check_module,
    declare,
    last_observations,
    make_vector,
    read_layout,
    rows,
    stacked_space,
    wrap,
)
from pipeline.errors import ConfigError
from pipeline.experience import Layout, flatten
from tests.environment.counting import ACTIONS, Counting, mask, stack

COUNTING = "tests.environment.counting:Counting-v0"


def same(left: Any, right: Any) -> bool:
    """Whether two nested observations are equal, dtypes included."""
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, tuple):
        return len(left) == len(right) and all(map(same, left, right))
    return left.dtype == right.dtype and np.array_equal(left, right)


@settings(max_examples=50, deadline=None)
@given(
    depth=st.integers(2, 5),
    lengths=st.lists(st.lists(st.integers(1, 7), min_size=1, max_size=3), min_size=1, max_size=3),
    mode=st.sampled_from([AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP]),
)
def test_every_stack_is_what_a_plain_loop_would_make(depth: int, lengths: list[list[int]], mode: AutoresetMode):
    """Nested observations, episodes of one step, both ways to reset; final stacks never hold a new episode's frames."""
    makers = [lambda n=n, each=each: Counting(tuple(each), n) for n, each in enumerate(lengths)]
    vector = wrap(SyncVectorEnv(makers, autoreset_mode=mode), EnvironmentConfig(frame_stack=depth))
    count = len(lengths)
    seen, _ = vector.reset()
    assert vector.observation_space.contains(seen)
    at = [(0, 0)] * count
    for _ in range(20):
        following, _, terminated, truncated, info = vector.step(np.full(count, 3))
        ended = terminated | truncated
        last = last_observations(following, ended, info) if mode is AutoresetMode.SAME_STEP else following
        for n, (episode, step) in enumerate(at):
            length = lengths[n][episode % len(lengths[n])]
            if step == length:  # only with NEXT_STEP: this step was the reset
                at[n] = episode + 1, 0
            else:
                at[n] = episode, step + 1
                assert ended[n] == (step + 1 == length)
                if ended[n] and mode is AutoresetMode.SAME_STEP:
                    assert same(rows(last, n), stack(n, episode, step + 1, depth))
                    at[n] = episode + 1, 0
            assert same(rows(following, n), stack(n, *at[n], depth))
    assert vector.observation_space.contains(following)


def test_one_environment_and_a_loop_without_gymnasium_see_the_same():
    config = EnvironmentConfig(frame_stack=3, actions=[6, 2])
    environment, bare = wrap(Counting((4,)), config), Counting((4,))
    frames = Frames(bare.observation_space, 3)
    for episode in range(2):
        stacked, info = environment.reset()
        told = frames.begin(bare.reset()[0])
        for step in range(4):
            assert same(stacked, told) and same(stacked, stack(0, episode, step, 3))
            assert environment.observation_space.contains(stacked)
            assert info["action_mask"].tolist() == mask(step)[[4, 0]].tolist()
            stacked, reward, _, _, info = environment.step(step % 2)
            told = frames.push(bare.step(2)[0])
            assert reward == (6, 2)[step % 2]
    assert environment.action_space == spaces.Discrete(2)


def test_an_environment_with_a_vectorised_version_of_its_own():
    """CartPole resets in the step after the one that ends an episode."""
    config = EnvironmentConfig(frame_stack=4)
    stacked, plain = make_vector(config, 3), make_vector(EnvironmentConfig(), 3)
    assert stacked.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    seen, raw = stacked.reset(seed=1)[0], plain.reset(seed=1)[0]
    history = [[row] * 4 for row in raw]
    resets = 0
    ended = np.zeros(3, bool)
    for _ in range(120):
        seen, _, terminated, truncated, _ = stacked.step(np.ones(3, int))
        raw = plain.step(np.ones(3, int))[0]
        for n, row in enumerate(raw):
            history[n] = [row] * 4 if ended[n] else [*history[n][1:], row]
        resets += int(ended.sum())
        ended = (terminated | truncated) & ~ended
        assert np.array_equal(seen, np.array(history))
    assert resets > 5


@pytest.mark.parametrize("frames", [1, 2])
def test_masks_follow_the_mapping(frames: int):
    """Those of the last observations of episodes that ended in the same step too."""
    config = EnvironmentConfig(
        id=COUNTING, envs=2, actions=[5, 2, 4], frame_stack=frames, action_masks=True, kwargs={"lengths": (2, 3)}
    )
    table = [3, 0, 2]
    vector = make_vector(config)
    _, info = vector.reset()
    assert action_masks(info, vector).tolist() == [mask(0)[table].astype(bool).tolist()] * 2
    _, reward, _, _, info = vector.step(np.array([0, 2]))
    assert reward.tolist() == [5.0, 4.0]
    _, _, _, truncated, info = vector.step(np.array([1, 1]))
    assert truncated.all()
    assert action_masks(info, vector).tolist() == [mask(0)[table].astype(bool).tolist()] * 2
    assert action_masks(info["final_info"], vector).tolist() == [mask(2)[table].astype(bool).tolist()] * 2


def test_the_run_s_layout_is_that_of_what_the_agent_sees():
    config = EnvironmentConfig(id=COUNTING, frame_stack=2, actions=[2, 3], action_masks=True)
    layout = read_layout(config)
    assert {c.name: c.shape for c in layout.columns} == {
        "observation/flags": (2, 2),
        "observation/numbers": (2, 3),
        "observation/pair/0": (2,),
        "observation/pair/1": (2, 2),
        "action": (),
        "reward": (),
        "action_mask": (2,),
    }
    assert Layout.from_json(layout.to_json()) == layout
    vector = make_vector(config, 3)
    assert vector.single_observation_space == layout.observation_space
    assert vector.single_action_space == layout.action_space
    on_policy = read_layout(config, on_policy=True)
    assert [c.name for c in on_policy.extras] == ["log_prob", "acted_mask"]
    agent = Agent(layout, NetworkSettings((8,)), seed=0)
    assert set(agent.act(vector.reset()[0], 1.0)) <= {0, 1}


def test_a_stack_of_images_is_one_axis_more():
    image = spaces.Box(0, 255, (8, 9, 3), np.uint8)
    assert stacked_space(image, 4) == spaces.Box(0, 255, (4, 8, 9, 3), np.uint8)
    bounds = spaces.Box(np.array([0.0, -1.0]), np.array([1.0, np.inf]), dtype=np.float64)
    stacked = stacked_space(bounds, 2)
    assert isinstance(stacked, spaces.Box)
    assert stacked.low.tolist() == [[0.0, -1.0]] * 2 and stacked.dtype == np.float64
    assert set(flatten("observation", stacked, np.zeros((5, 2, 2)), batch=True)) == {"observation"}


@pytest.mark.parametrize("actions", [[2, 2], [1, 2], [2, 7]])
def test_actions_that_the_environment_has_not_are_refused(actions: list[int]):
    config = EnvironmentConfig(id=COUNTING, actions=actions)
    for build in (read_layout, make_vector):
        with pytest.raises(ConfigError, match=r"must be different ones of 2 … 6"):
            build(config)
    assert ACTIONS == 5


def test_what_cannot_be_mapped_or_stacked_is_refused():
    with pytest.raises(ConfigError, match="needs Discrete actions"):
        read_layout(EnvironmentConfig(id="Pendulum-v1", actions=[0]))
    vector = SyncVectorEnv([Counting], autoreset_mode=AutoresetMode.DISABLED)
    with pytest.raises(ConfigError, match="resets itself"):
        wrap(vector, EnvironmentConfig(frame_stack=2))


@pytest.mark.parametrize(
    "name", ["Nothing-v0", "no.such.module:Counting-v0", "tests.environment.counting:Nothing-v0", "a:b:c"]
)
def test_what_gymnasium_cannot_make_is_one_sentence(name: str):
    config = EnvironmentConfig(id=name)
    for build in (read_layout, make_vector):
        with pytest.raises(ConfigError, match=r"environment\.id=.* cannot be made"):
            build(config)


def test_an_environment_that_lives_elsewhere_is_declared():
    space = spaces.Box(-1, 1, (3,))
    declare("Elsewhere-v0", space, spaces.Discrete(4))
    layout = read_layout(EnvironmentConfig(id="Elsewhere-v0", frame_stack=2))
    assert layout.observation_space == stacked_space(space, 2)
    assert layout.action_space == spaces.Discrete(4)
    with pytest.raises(ConfigError, match="only declared here"):
        gymnasium.make("Elsewhere-v0").reset()


def test_no_module_is_imported_because_a_manifest_names_it():
    told = EnvironmentConfig(id=COUNTING)
    with pytest.raises(ConfigError, match=r"say so with environment\.id=tests"):
        check_module(told, EnvironmentConfig())
    check_module(told, EnvironmentConfig(id=COUNTING))
    check_module(EnvironmentConfig(id="Acrobot-v1"), EnvironmentConfig())
