"""MinAtar's games, made known to Gymnasium when this module is imported (Young and Tian, 2019, arXiv 1903.03176).

``environment.id=pipeline.environment.minatar:MinAtar/Breakout-v1``; needs the package ``minatar``, which does not
register its games by itself.
"""

from importlib import import_module

import_module("minatar.gym").register_envs()
