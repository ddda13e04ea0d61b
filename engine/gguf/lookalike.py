"""What a file that is not GGUF seems to be, in words a person can act on."""

from __future__ import annotations

import struct

_MAGICS: tuple[tuple[bytes, str], ...] = (
    (
        b"version https://git-lfs",
        "a Git LFS pointer: the model itself was never downloaded; fetch it with `git lfs pull`",
    ),
    (b"PK\x03\x04", "a zip archive (a PyTorch checkpoint or a packed model); unpack it or look for the GGUF edition"),
    (b"\x1f\x8b", "a gzip archive; unpack it first"),
    (b"(\xb5/\xfd", "a zstd archive; unpack it first"),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive; unpack it first"),
    (b"\x80\x02", "a Python pickle (an old PyTorch checkpoint); look for the GGUF edition of the model"),
    (b"\x89HDF", "an HDF5 file; look for the GGUF edition of the model"),
    (b"lmgg", "a GGML file, the format before GGUF; look for the GGUF edition of the model"),
    (b"fmgg", "a GGML file, the format before GGUF; look for the GGUF edition of the model"),
    (b"tjgg", "a GGML file, the format before GGUF; look for the GGUF edition of the model"),
    (b"algg", "an adapter in the format before GGUF; look for the GGUF edition"),
    (b"\x7fELF", "a program, not a model"),
    (b"%PDF", "a PDF document, not a model"),
)


def describe(head: bytes, size: int) -> str:
    """Say what a file looks like, given its first bytes (a few hundred are enough) and its size in bytes.

    Returns a phrase that completes "it looks like …", or an empty string if nothing is recognised.
    """
    for magic, words in _MAGICS:
        if head.startswith(magic):
            return words
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if text.startswith((b"<!doctype", b"<html", b"<head", b"<?xml")):
        return "a web page: the download link led to a page or an error, not to the file; download it again"
    if _is_safetensors(head, size):
        return "a safetensors file; look for the GGUF edition of the model"
    if text.startswith((b"{", b"[")):
        return "a JSON file, not a model; pick the .gguf file"
    if head and not head.strip(b"\0"):
        return "an unfinished download (it begins with zeros); download it again"
    return ""


def _is_safetensors(head: bytes, size: int) -> bool:
    """True if the file starts with a plausible length and a JSON object, as safetensors files do."""
    if len(head) < 9 or head[8:9] != b"{":
        return False
    return 2 <= struct.unpack_from("<Q", head)[0] <= size - 8
