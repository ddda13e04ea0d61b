"""What can go wrong before KVScope runs, as sentences that say what to do."""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# What a failed step printed, and the sentence for it; the first that matches counts.
_SENTENCES = (
    (
        r"No space left on device|Errno 28|disk quota exceeded",
        "The disk is full: free about 1.2 GB where {root} and the temporary files lie, then start again.",
    ),
    (
        r"Read-only file system|Errno 30|Permission denied|Errno 13",
        "KVScope cannot write to {root}: copy it to a folder of your own, then start again.",
    ),
    (
        r"connection broken|NewConnectionError|ConnectTimeout|ReadTimeout|Temporary failure in name resolution"
        r"|Name or service not known|Max retries exceeded|Network is unreachable|ProxyError|SSLError",
        "The packages could not be downloaded: check the network connection (or pip's settings), then start again.",
    ),
    (
        r"DO NOT MATCH THE HASHES|BadZipFile|is not a zip file|has an invalid wheel|is invalid|IncompleteRead",
        "A downloaded package arrived damaged and was not kept: start again to fetch it anew.",
    ),
    (
        r"No matching distribution|Could not find a version",
        "A package has no build for Python {python} on this system ({last}): start run.py with Python 3.11 to 3.14.",
    ),
    (r"", "KVScope could not be set up ({last}): put that right, then start again."),
)


class Problem(Exception):
    """Something that a person can put right; its text is the one sentence they read."""


def explain(output: str) -> str:
    """The sentence for what a failed step printed, or for the text of an OSError."""
    lines = [line.strip() for line in output.splitlines() if line.strip()] or ["no reason given"]
    last = next((line for line in reversed(lines) if "error" in line.lower()), lines[-1])
    sentence = next(text for pattern, text in _SENTENCES if re.search(pattern, output, re.IGNORECASE))
    python = ".".join(str(part) for part in sys.version_info[:2])
    return sentence.format(root=ROOT, python=python, last=last.removeprefix("ERROR: ").rstrip("."))


def say(text: str) -> None:
    """Print one line at once, so that it stands before what child processes print."""
    print(text, flush=True)
