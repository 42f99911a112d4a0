"""One version's weights in memory that the uplink process writes and the environment loop reads."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline.client.processes import Processes
from pipeline.experience import Version

_EPOCH, _NUMBER, _STAMP = range(3)


class TensorSpec(NamedTuple):
    """Where one tensor lies in the mailbox."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int


class Mailbox:
    """A slot for the newest weights, with their version and the exploration that goes with it.

    A lock guards the slot; the reader only ever *tries* it, so a writer that is killed while it holds the lock delays
    updates (until the connector gives the next uplink a new mailbox) but never stops the environment loop.

    Picklable only while multiprocessing starts a process (the memory is inherited).
    """

    def __init__(self, context: Processes, tensors: Mapping[str, NDArray[Any]]) -> None:
        offset = 0
        specs: list[TensorSpec] = []
        for name, tensor in tensors.items():
            specs.append(TensorSpec(name, tensor.dtype.str, tensor.shape, offset))
            offset += -(-tensor.nbytes // 64) * 64
        self._specs = specs
        self._memory = context.RawArray("b", max(64, offset))
        self._header = context.RawArray("q", 3)
        self._exploration = context.RawArray("d", 1)
        self._lock = context.Lock()
        self._views: dict[str, NDArray[Any]] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_views": None}

    @property
    def stamp(self) -> int:
        """Grows with every write; 0: nothing has been written."""
        return self._header[_STAMP]

    def write(self, tensors: Mapping[str, NDArray[Any]], version: Version, exploration: float) -> None:
        """Put weights in.

        Args:
            tensors: by name, all that the slot was made for.
            version: theirs.
            exploration: share of random actions that go with them, 0 to 1.

        Raises:
            ValueError: a tensor is missing or has another dtype or shape than the slot.
        """
        views = self._tensors()
        for spec in self._specs:
            tensor = tensors.get(spec.name)
            if tensor is None or tensor.dtype.str != spec.dtype or tensor.shape != spec.shape:
                found = "missing" if tensor is None else f"{tensor.dtype}{tensor.shape}"
                raise ValueError(f"tensor {spec.name!r} is {found}, needed {spec.dtype}{spec.shape}")
        with self._lock:
            for spec in self._specs:
                views[spec.name][...] = tensors[spec.name]
            self._header[_EPOCH], self._header[_NUMBER] = version
            self._exploration[0] = exploration
            self._header[_STAMP] += 1

    def try_read(self) -> "Letter | None":
        """Hold the slot for reading, without waiting; None while it is being written."""
        if not self._lock.acquire(block=False):
            return None
        version = Version(self._header[_EPOCH], self._header[_NUMBER])
        return Letter(self, version, self._exploration[0], self._header[_STAMP], self._tensors())

    def release(self) -> None:
        """Let the slot go after :meth:`try_read`."""
        self._lock.release()

    def _tensors(self) -> dict[str, NDArray[Any]]:
        if self._views is None:
            memory = memoryview(self._memory).cast("B")
            self._views = {
                spec.name: np.frombuffer(
                    memory, spec.dtype, int(np.prod(spec.shape, dtype=np.int64)), spec.offset
                ).reshape(spec.shape)
                for spec in self._specs
            }
        return self._views


class Letter(NamedTuple):
    """The slot while it is held: a context manager that lets it go."""

    mailbox: Mailbox
    version: Version
    exploration: float
    stamp: int
    tensors: Mapping[str, NDArray[Any]]

    def __enter__(self) -> "Letter":
        return self

    def __exit__(self, *_: object) -> None:
        self.mailbox.release()
