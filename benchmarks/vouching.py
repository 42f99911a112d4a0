"""What it costs to sign a chunk's headers and to check them, beside reading headers and decoding the chunk."""

import time
from collections.abc import Callable

import gymnasium
import numpy as np

from pipeline.experience import Ending, Layout, Segments, Version
from pipeline.experience.chunk import Chunk
from pipeline.wire import (
    RecordHeaders,
    Signer,
    Voucher,
    client_key,
    decode_chunk,
    encode_chunk,
    fingerprint,
)

TIMES = 20_000
STEPS, WIDTH = 256, 75
KEY = "5a" * 32


def main() -> None:
    """Print the figures, in microseconds a chunk."""
    signer, voucher = Signer("alice", client_key(KEY, "alice")), Voucher(KEY)
    plain = RecordHeaders("run", "alice/1", signer.new_session(), 7, Version(1, 2), fingerprint("chunk"), STEPS)
    signed = signer.sign(plain)
    raw = signed.to_kafka()
    layout = Layout(gymnasium.spaces.Box(-np.inf, np.inf, (WIDTH,), np.float32), gymnasium.spaces.Discrete(4))
    data = encode_chunk(_chunk(), layout)
    _report("sign", lambda: signer.sign(plain))
    _report("check", lambda: voucher.check(signed))
    _report("read the headers", lambda: RecordHeaders.from_kafka(raw))
    _report(f"decode {len(data) // 1000} kB", lambda: decode_chunk(data, layout), TIMES // 20)


def _chunk() -> Chunk:
    random = np.random.default_rng(0)
    return Chunk(
        version=Version(1, 2),
        segments=Segments(
            environment=np.zeros(1, np.int32),
            episode=np.zeros(1, np.int64),
            first_step=np.zeros(1, np.int32),
            length=np.array([STEPS], np.int32),
            ending=np.array([Ending.OPEN], np.uint8),
        ),
        columns={
            "observation": random.standard_normal((STEPS + 1, WIDTH)).astype(np.float32),
            "action": random.integers(0, 4, STEPS),
            "reward": random.standard_normal(STEPS).astype(np.float32),
        },
    )


def _report(name: str, call: Callable[[], object], times: int = TIMES) -> None:
    took = np.empty(times)
    for i in range(times):
        begun = time.perf_counter()
        call()
        took[i] = time.perf_counter() - begun
    print(f"{name:<24} {np.median(took) * 1e6:8.1f} µs", flush=True)
