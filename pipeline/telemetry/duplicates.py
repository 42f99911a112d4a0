"""Episodes that were sent again: an uplink that is replaced repeats what was not acknowledged."""

import hashlib
from collections import OrderedDict


class Duplicates:
    """Remembers the last records, by what they hold.

    A summary carries actor, session, environment, number and times of its episode, and is sent again as the same
    bytes: so equal bytes are one episode, whether or not an actor numbers its episodes.

    Args:
        most: records that are remembered; the oldest are forgotten.

    Attributes:
        found: duplicates so far.
    """

    def __init__(self, most: int = 65_536) -> None:
        self.found = 0
        self._most = most
        self._seen: OrderedDict[bytes, None] = OrderedDict()

    def seen(self, value: bytes) -> bool:
        """Whether these bytes came before; they are remembered either way."""
        digest = hashlib.blake2b(value, digest_size=16).digest()
        if digest in self._seen:
            self._seen.move_to_end(digest)
            self.found += 1
            return True
        self._seen[digest] = None
        if len(self._seen) > self._most:
            self._seen.popitem(last=False)
        return False
