"""One fuzzing process: ``python -m tests.fuzz.worker CORPUS [libFuzzer options]``, with atheris installed.

Beside crashes and hangs, a message that takes much memory is a finding.
"""

import gc
import resource
import sys

import atheris

with atheris.instrument_imports(include=["pipeline"]):
    from tests.fuzz.targets import call_any

MOST_MEMORY_KIB = 64 << 10
"""How much a message may add to the most memory that the process ever had."""


def one_input(data: bytes) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    call_any(data)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    if grown > MOST_MEMORY_KIB:
        raise MemoryError(f"a message of {len(data)} bytes took {grown >> 10} MiB")


if __name__ == "__main__":
    gc.freeze()  # what is loaded by now stays: nobody looks through it again
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()
