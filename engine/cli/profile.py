"""Where the time of a step goes, and how near it comes to what the machine allows: ``bench --profile``."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.assembly import scheduler_over
from engine.cli.common import note
from engine.cli.demo_serving import FIRST_QUESTIONS, chat_requests
from engine.kernels.ceilings import bytes_per_s, multiply_adds_per_s
from engine.kernels.ops import Experts, Matmul, Op

if TYPE_CHECKING:
    from engine.model.language_model import LanguageModel

WIDTHS = (1, 8)
STEPS = 48
PROMPT = 512
_WORDS = {"rows": "norms and rows", "head": "vocabulary"}


@dataclass(frozen=True, slots=True)
class Weights:
    """What one row costs: ``multiply_adds``, and ``bytes`` of weights as they lie in the file."""

    multiply_adds: int
    bytes: int

    @classmethod
    def of(cls, ops: Iterable[Op]) -> Weights:
        """The products among ``ops``; of a mixture, the experts that a row uses."""
        products, size = 0, 0
        for op in ops:
            match op:
                case Matmul():
                    tensors, share = [op.weight], 1.0
                case Experts():
                    tensors, share = [op.gate, op.up, op.down], op.used / op.gate.shape[0]
                case _:
                    continue
            products += int(sum(np.prod(tensor.shape) for tensor in tensors) * share)
            size += int(sum(tensor.data.nbytes for tensor in tensors) * share)
        return cls(products, size)


def profile(model: LanguageModel) -> dict[str, Any]:
    """Decode steps of the scheduler at B = 1 and 8 (sampling included) and a prompt of 512 tokens.

    For each: nanoseconds by kind of work, summed over threads ("scheduler" is the time in which no kernel is called);
    bytes of weights a second and multiply-adds a second, beside the ceilings that the same threads reach here.
    """
    ceilings = {
        "bytes_per_s": bytes_per_s(model.threads),
        "multiply_adds_per_s": multiply_adds_per_s(model.threads),
    }
    note(
        f"ceilings     {ceilings['bytes_per_s'] / 1e9:.1f} GB/s, {ceilings['multiply_adds_per_s'] / 1e9:.0f} G "
        f"multiply-adds/s, {model.threads} threads"
    )
    body, head = Weights.of(model.program.body), Weights.of(model.program.head)
    result: dict[str, Any] = {"ceilings": ceilings}

    def add(name: str, times: dict[str, float], wall_s: float, multiply_adds: int, size: int) -> None:
        times["scheduler"] = max(0.0, wall_s * 1e9 * model.threads - sum(times.values()))
        rates = {"bytes_per_s": size / wall_s, "multiply_adds_per_s": multiply_adds / wall_s}
        result[name] = {"times_ns": times, **rates}
        note(f"{name:<12} {_shares(times)}")
        note(
            f"{'':<12} weights at {rates['bytes_per_s'] / 1e9:.1f} GB/s "
            f"({100 * rates['bytes_per_s'] / ceilings['bytes_per_s']:.0f} % of the ceiling), "
            f"{rates['multiply_adds_per_s'] / 1e9:.0f} G multiply-adds/s "
            f"({100 * rates['multiply_adds_per_s'] / ceilings['multiply_adds_per_s']:.0f} %)"
        )

    for width in WIDTHS:
        times, wall_s = _decode(model, width)
        rows = STEPS * width
        products = rows * (body.multiply_adds + head.multiply_adds)
        add(f"decode {width}", times, wall_s, products, STEPS * (body.bytes + head.bytes))
    times, wall_s = _prefill(model)
    products = PROMPT * body.multiply_adds + head.multiply_adds
    add(f"prefill {PROMPT}", times, wall_s, products, body.bytes + head.bytes)
    return result


def _decode(model: LanguageModel, width: int) -> tuple[dict[str, float], float]:
    """``STEPS`` steps in which ``width`` streams decode; the prompts are read before."""
    options = argparse.Namespace(chats=width, new_tokens=2 * STEPS, ignore_eos=True)
    with scheduler_over(model, max_streams=width) as scheduler:
        for request in chat_requests(model, FIRST_QUESTIONS, options):
            scheduler.submit(request)
        while scheduler.last_report is None or len(scheduler.last_report.decoded) < width:
            scheduler.step()

        def work() -> None:
            for _ in range(STEPS):
                scheduler.step()

        return _timed(model, work)


def _prefill(model: LanguageModel) -> tuple[dict[str, float], float]:
    tokens = np.random.default_rng(0).integers(5, model.n_vocab, PROMPT).tolist()
    with model.new_session() as session:
        return _timed(model, lambda: model.eval(session, tokens))


def _timed(model: LanguageModel, work: Callable[[], object]) -> tuple[dict[str, float], float]:
    start = time.perf_counter()
    times = model.profile(work)
    return times, time.perf_counter() - start


def _shares(times: dict[str, float]) -> str:
    total = sum(times.values()) or 1.0
    parts = sorted(times.items(), key=lambda item: -item[1])
    return ", ".join(f"{_WORDS.get(kind, kind)} {100 * ns / total:.1f} %" for kind, ns in parts if ns)
