"""Loaders for damaged model files that go beyond the reader; name one with ``--load tests.fuzz.loaders:…``."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from engine.model.language_model import load_model

CONTEXT = 64


def load_and_run(path: Path) -> None:
    """Load the model, build its tokenizer, tokenize a text and evaluate a prompt and a generated token.

    The interpreter stands in for the compiled kernels: what a damaged file can break is decided before them.
    """
    with load_model(path, n_ctx=CONTEXT, backend="numpy") as model:
        ids = model.tokenizer.encode("Hello, world")[:4] or [0]
        with closing(model.new_pool(capacity_pages=8)) as pool, model.new_session(pool, seed=1) as session:
            model.eval(session, ids)
            model.eval_batch([session], [ids[0]])
            assert session.logits is not None
            assert session.logits.shape == (model.n_vocab,)
