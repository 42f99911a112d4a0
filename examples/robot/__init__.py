"""A robot that is no Gymnasium environment; importing this lets a learner know its spaces under ``Arm-v0``."""

from examples.robot.arm import ACTIONS, OBSERVATIONS
from pipeline.environment import declare

declare("Arm-v0", OBSERVATIONS, ACTIONS)
