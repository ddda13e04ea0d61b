"""What ``info`` says a model needs, against what the process grows by (in a process of its own)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TINY = ROOT / "tests" / "data" / "tiny" / "llama.gguf"
TOKENS = 500
SCRIPT = f"""
import json, sys
from engine.model.language_model import load_model

def resident():
    lines = (line.split(":") for line in open("/proc/self/status"))
    return {{key: int(value.split()[0]) * 1024 for key, value in lines if key in ("VmRSS", "RssFile")}}

with load_model({str(TINY)!r}) as warm_up:
    warm_up.logits([1, 2, 3])
before = resident()
with load_model(sys.argv[1]) as model:
    with model.new_session() as session:
        model.eval(session, range(1, {TOKENS} + 1))
        after = resident()
        print(json.dumps([before, after, model.info()["memory"]]))
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="only Linux tells a process's memory in this form")
def test_estimate_and_growth(smollm2_path: Path) -> None:
    command = [sys.executable, "-c", SCRIPT, str(smollm2_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    before, after, memory = json.loads(done.stdout)
    growth = after["VmRSS"] - before["VmRSS"]
    estimate = memory["weights_bytes"] + memory["workspace_bytes"] + TOKENS * memory["kv_bytes_per_token"]
    assert abs(growth - estimate) <= 0.1 * growth
    assert after["RssFile"] - before["RssFile"] < 10 << 20, "the file's pages should have been given back"
