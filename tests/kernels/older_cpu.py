"""Run by ``test_older_cpu`` in a process that compiles for another CPU: prints a digest of what kernels compute.

What integers decide must agree with this machine bit for bit, and so must everything else where the other CPU has fused
multiply-add too.
"""

from __future__ import annotations

import hashlib
import json
import sys

import numpy as np
from gguf import GGMLQuantizationType as T

from engine.kernels.cpu import target
from engine.kernels.executor import Executor
from engine.kernels.packing import pack, unpack
from tests.kernels.programs import Sequences, Shape, random_llama, random_tensor
from tests.kernels.test_half import NARROW, WIDEN
from tests.kernels.test_matmul import inputs, multiply
from tests.kernels.test_quantize import activations, quantized

KINDS = (T.Q4_1, T.Q8_0, T.Q6_K, T.IQ4_NL)


def digest(*arrays: np.ndarray) -> str:
    made = hashlib.sha256()
    for array in arrays:
        made.update(np.ascontiguousarray(array).tobytes())
    return made.hexdigest()[:16]


def report() -> dict[str, object]:
    """Digests by name; and logits of a small model as numbers."""
    halves = np.arange(65536, dtype=np.uint16)
    halves = np.where(np.isnan(halves.view(np.float16)), 0, halves).astype(np.uint16)
    wide = np.zeros(65536, np.float32)
    WIDEN["hardware"].call(0, halves.ctypes.data, 0, 65536, wide.ctypes.data)
    narrow = np.zeros(65536, np.uint16)
    NARROW["hardware"].call(0, wide.ctypes.data, 0, 65536, narrow.ctypes.data)
    found: dict[str, object] = {
        "cpu": [target().name, target().avx2, target().fma, target().avx512],
        "half": digest(wide, narrow),
        "codes": digest(quantized(activations()).codes),
    }
    for kind in KINDS:
        packed = pack(random_tensor(np.random.default_rng(1), kind, 40, 256))
        found[f"unpack {kind.name}"] = digest(unpack(packed))
        x = inputs(7, 256)
        found[f"product {kind.name}"] = digest(multiply(packed, x).values)
        found[f"numbers {kind.name}"] = multiply(packed, x).values[:2, :4].tolist()
    program = random_llama(np.random.default_rng(2), T.Q4_1, Shape(layers=1), cap=30.0)
    executor = Executor(program, max_rows=32, threads=2)
    batch = Sequences(program, 1).batch([(0, list(range(20)))])
    executor.step(batch)
    executor.close()
    found["logits"] = digest(batch.logits[0])
    found["logits numbers"] = batch.logits[0][:8].tolist()
    return found


if __name__ == "__main__":
    json.dump(report(), sys.stdout)
