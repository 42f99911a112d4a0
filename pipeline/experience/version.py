"""The version of a model: which claim of the run made it, and which model of the run it is."""

from __future__ import annotations

from typing import NamedTuple

EPOCH_LIMIT = 1 << 22
NUMBER_LIMIT = 1 << 40


class Version(NamedTuple):
    """A model version, ordered as a tuple.

    Attributes:
        epoch: the learner's claim, grows by one with each learner that takes the run over.
        number: counts published models over all epochs of the run and never goes back.
    """

    epoch: int
    number: int

    def __str__(self) -> str:
        return f"{self.epoch}.{self.number}"

    @staticmethod
    def parse(text: str) -> Version:
        """Read ``"epoch.number"``.

        Raises:
            ValueError: the text is anything else, or a figure is out of range.
        """
        epoch, dot, number = text.partition(".")
        if not (dot and _plain(epoch) and _plain(number)):
            raise ValueError(f"not a version: {text[:64]!r}; expected epoch.number, such as 1.42")
        version = Version(int(epoch), int(number))
        if not version.in_range():
            raise ValueError(f"version {version} is out of range")
        return version

    def in_range(self) -> bool:
        """Whether both figures fit the range that `key` and the wire can carry."""
        return 0 <= self.epoch < EPOCH_LIMIT and 0 <= self.number < NUMBER_LIMIT

    @property
    def key(self) -> int:
        """One int64 that orders as the version does, for vectorised minima over versions."""
        return (self.epoch << 40) | self.number

    @staticmethod
    def from_key(key: int) -> Version:
        """The version whose `key` this is."""
        return Version(key >> 40, key & (NUMBER_LIMIT - 1))


def _plain(digits: str) -> bool:
    return len(digits) <= 13 and digits.isascii() and digits.isdigit()
