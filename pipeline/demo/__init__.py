"""``pipeline demo``: the whole pipeline on one machine, until the environment is solved."""
