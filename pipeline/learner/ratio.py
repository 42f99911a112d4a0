"""How many updates are due, by how many transitions were accepted."""

from collections.abc import Sequence


class TrainingRatio:
    """One update for every so many transitions; another ratio counts from where it is set.

    So a lower ratio brings no burst of updates for what came before it, and a higher one no pause.

    Args:
        transitions_per_update: at least 1; 0 where training is free-running, which asks for no update here.
        first: accepted transitions from which it counts.
    """

    def __init__(self, transitions_per_update: int, first: int) -> None:
        self._per_update = transitions_per_update
        self._transitions = first
        self._updates = 0

    def due(self, transitions: int) -> int:
        """Updates that should have been made after so many accepted transitions; 0 before the first of them counts."""
        return self._updates + self._since(transitions)

    def change(self, transitions_per_update: int, transitions: int) -> None:
        """Go on with another ratio. What is due by now stays due; transitions left over count for the next update."""
        made = self._since(transitions)
        self._updates += made
        self._transitions += made * self._per_update
        self._per_update = transitions_per_update

    def anchor(self, transitions: int, updates: int) -> None:
        """So many updates were made after so many transitions, whatever was due."""
        self._transitions, self._updates = transitions, updates

    def state(self) -> list[int]:
        """For the checkpoint, without the ratio itself."""
        return [self._transitions, self._updates]

    def load_state(self, state: Sequence[int]) -> None:
        """Take over what :meth:`state` gave."""
        self._transitions, self._updates = int(state[0]), int(state[1])

    def _since(self, transitions: int) -> int:
        return max(0, transitions - self._transitions) // self._per_update if self._per_update else 0
