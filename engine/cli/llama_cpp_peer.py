"""The llama.cpp side of ``bench --peer``: run by the peer's own Python, needs llama-cpp-python and nothing of ours.

``llama_cpp_peer.py MODEL THREADS CONTEXT STREAMS TOKENS`` reads one JSON question per line and answers {"rate": tokens
per second}; no sequence is longer than CONTEXT, and STREAMS of them have at most TOKENS together.
"""

import json
import random
import sys
import time

import llama_cpp


class Engine:
    """A model and a context with room for ``streams`` sequences, ``tokens`` together, in one unified KV cache."""

    def __init__(self, path: str, threads: int, streams: int, tokens: int) -> None:
        llama_cpp.llama_backend_init()
        self.model = llama_cpp.llama_model_load_from_file(path.encode(), llama_cpp.llama_model_default_params())
        if not self.model:
            raise SystemExit("llama.cpp cannot load this file")
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = tokens
        params.n_batch = params.n_ubatch = 512
        params.n_threads = params.n_threads_batch = threads
        params.n_seq_max = streams
        params.kv_unified = True
        self.context = llama_cpp.llama_init_from_model(self.model, params)
        if not self.context:
            raise SystemExit("llama.cpp cannot make a context of this size")
        vocab = llama_cpp.llama_model_get_vocab(self.model)
        self.n_vocab = llama_cpp.llama_vocab_n_tokens(vocab)
        self.memory = llama_cpp.llama_get_memory(self.context)
        self.random = random.Random(0)

    def run(self, rows: list[tuple[int, int, int]]) -> None:
        """Decode rows of (position, sequence, wants logits) with random tokens."""
        batch = llama_cpp.llama_batch_init(len(rows), 0, 1)
        batch.n_tokens = len(rows)
        for i, (position, sequence, wanted) in enumerate(rows):
            batch.token[i] = self.random.randrange(5, self.n_vocab)
            batch.pos[i] = position
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = sequence
            batch.logits[i] = wanted
        if llama_cpp.llama_decode(self.context, batch) != 0:
            raise SystemExit("llama.cpp could not decode")
        llama_cpp.llama_synchronize(self.context)
        llama_cpp.llama_batch_free(batch)

    def read(self, n: int, sequence: int = 0) -> None:
        """Read a prompt of ``n`` tokens in batches of 512."""
        for start in range(0, n, 512):
            stop = min(start + 512, n)
            self.run([(p, sequence, int(p == n - 1)) for p in range(start, stop)])

    def prefill(self, n: int) -> float:
        """Tokens/s of reading ``n`` tokens into an empty cache."""
        llama_cpp.llama_memory_clear(self.memory, True)
        start = time.perf_counter()
        self.read(n)
        return n / (time.perf_counter() - start)

    def decode(self, width: int, context: int, steps: int, warm_up: int) -> float:
        """Tokens/s of ``width`` sequences advancing together."""
        llama_cpp.llama_memory_clear(self.memory, True)
        for sequence in range(width if context else 0):
            self.read(context, sequence)
        start = 0.0
        for step in range(warm_up + steps):
            if step == warm_up:
                start = time.perf_counter()
            self.run([(context + step, sequence, 1) for sequence in range(width)])
        return width * steps / (time.perf_counter() - start)


def main() -> None:
    path, threads, _, streams, tokens = sys.argv[1:]
    engine = Engine(path, int(threads), int(streams), int(tokens))
    for line in sys.stdin:
        question = json.loads(line)
        if "prefill" in question:
            rate = engine.prefill(question["prefill"])
        elif "decode" in question:
            rate = engine.decode(question["decode"], question["context"], question["steps"], question["warm_up"])
        else:
            rate = 0.0
        print(json.dumps({"rate": rate}), flush=True)


if __name__ == "__main__":
    main()
