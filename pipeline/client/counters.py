"""What connector and uplink share beside the mailbox: an ``int64`` array, each place written by one side only.

The connector writes the first three, the uplink the others. The array outlives an uplink that dies.
"""

PUSHED = 0
"""Transitions pushed in this session."""
DROPPED = 1
"""Transitions that the bounded queue has dropped."""
ALIVE = 2
"""Grows while the environment loop shows life: it pushes, or waits for the learner."""
LEARNER_SEQUENCE = 3
"""The newest chunk of this session that the learner has judged; -1: none."""
JUDGED = 4
"""Transitions of this session that the learner has judged."""
STALE = 5
"""Those of them that it refused as too old."""
LEARNER_BEATS = 6
"""Grows with every heartbeat of the learner."""
LINK_UP = 7
"""1 while the broker answers, otherwise 0."""
RUN_ENDED = 8
"""1 when the manifest says that the run is over, otherwise 0."""

COUNTERS = 9
