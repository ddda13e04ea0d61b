"""GGUF files: a bounded header reader over a memory map, typed metadata and the tensor table.

``open_gguf(path)`` is the door. Lengths, counts, offsets, types and products are checked before they are used; what is
wrong with a file ends in a ``ModelFileError`` whose ``field`` names the place.
"""

from __future__ import annotations

from engine.gguf.metadata import Metadata
from engine.gguf.reader import GGUFFile, open_gguf
from engine.gguf.types import TENSOR_TYPES, TensorType

__all__ = ["TENSOR_TYPES", "GGUFFile", "Metadata", "TensorType", "open_gguf"]
