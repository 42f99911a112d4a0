"""The simulated fight: what it promises, and that it can be won."""

import gymnasium
import numpy as np
import pytest

import examples.souls
from examples.souls.environment import SoulsEnv
from examples.souls.game import ATTACKS, Action, BossAnimation, Fight, PlayerAnimation
from pipeline.config import EnvironmentConfig
from pipeline.environment import read_layout


def played(seed: int, choose) -> tuple[float, list[dict]]:
    """Return and observations of one fight."""
    environment = gymnasium.make(examples.souls.ID)
    observation, info = environment.reset(seed=seed)
    seen, total, over = [observation], 0.0, False
    while not over:
        assert environment.observation_space.contains(observation)
        observation, reward, terminated, truncated, info = environment.step(choose(observation, info))
        seen.append(observation)
        total += float(reward)
        over = terminated or truncated
    return total, seen


def careful(observation: dict, info: dict) -> int:
    """Rolls away when a strike is about to land, strikes while the boss recovers."""
    attack = ATTACKS.get(BossAnimation(observation["boss_animation"]))
    distance = float(observation["relative"][0])
    choice = Action.FORWARD if distance > 1.8 else Action.STRIKE
    if attack is not None:
        ticks = round(float(observation["boss_animation_time"][0]) / 0.2)
        hits_in = attack.hits_at - (int(observation["phase"]) - 1) - ticks
        if hits_in > 0:
            choice = Action.ROLL_LEFT if hits_in <= 2 else Action.WAIT
    elif distance <= 3.0:
        choice = Action.WAIT
    return int(choice if info["action_mask"][choice] else Action.WAIT)


def test_a_careful_player_wins_and_a_random_one_does_not():
    random = np.random.default_rng(0)
    returns = [played(seed, careful)[0] for seed in range(8)]
    blind = [played(seed, lambda _, info: random.choice(np.flatnonzero(info["action_mask"])))[0] for seed in range(8)]
    assert np.mean(returns) > 1.2
    assert np.mean(blind) < 0.0


def test_the_same_seed_and_actions_make_the_same_fight():
    first, again, other = (played(seed, careful)[1] for seed in (3, 3, 4))
    assert len(first) == len(again)
    for left, right in zip(first, again, strict=True):
        assert all(np.array_equal(left[name], right[name]) for name in left)
    assert any(not np.array_equal(first[0][name], other[0][name]) for name in first[0])


def test_whoever_is_committed_can_only_wait_and_a_roll_is_safe():
    for action, hurt in ((Action.WAIT, True), (Action.ROLL_LEFT, False)):
        fight = Fight(np.random.default_rng(0))
        fight.player.x, fight.player.y = 1.5, 0.0
        fight.boss.angle = 0.0
        attack = ATTACKS[BossAnimation.SWING]
        fight.boss_animation, fight.boss_ticks = BossAnimation.SWING, attack.hits_at - 1
        _, lost = fight.tick(action)
        assert lost == (attack.damage if hurt else 0.0)
        assert fight.player_animation is (PlayerAnimation.STAGGER if hurt else PlayerAnimation.ROLL)
        assert [a for a in Action if fight.allowed()[a]] == [Action.WAIT]


def test_without_stamina_there_is_nothing_but_walking():
    fight = Fight(np.random.default_rng(0))
    fight.player_sp = 0.1
    assert [a for a in Action if fight.allowed()[a]] == list(Action)[:5]


@pytest.mark.parametrize("name", ["examples.souls:Souls-v0", "examples.robot:Arm-v0"])
def test_a_learner_reads_the_spaces(name: str):
    layout = read_layout(EnvironmentConfig(id=name))
    if "souls" in name:
        assert layout.observation_space == SoulsEnv().observation_space
        assert len(layout.observation) == 11
    else:
        assert [column.shape for column in layout.observation] == [(3,)]
