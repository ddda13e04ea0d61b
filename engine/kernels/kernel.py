"""Kernels: compiled C functions with one common signature, made or loaded from disk on first use.

Importing kernel modules compiles nothing. A kernel is called by its address, so each is compiled once, whoever runs
it, and two processes can compile different kernels at the same time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from numba import njit
from numba.core import types
from numba.core.ccallback import CFunc

from engine.kernels.cache_locator import KernelCache, cache_folder

KERNEL = types.void(types.int64, types.int64, types.int64, types.int64, types.int64)
"""(context, arguments, begin, end, scratch): work on units [begin, end). Context and arguments are addresses of int64
words (see ``layout``), scratch is the address of the calling thread's own memory."""

_OPTIONS = {"nopython": True, "error_model": "numpy"}

_HELPER_OPTIONS: dict[str, Any] = {"error_model": "numpy", "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
helper = njit(**_HELPER_OPTIONS)
"""Marks a function that kernels call; it is compiled with the first kernel that needs it, and never on its own. It has
no entry for Python, which would take a tenth of the compilation."""


def named_helper(name: str, function: Callable[..., Any]) -> Any:
    """A helper of its own name: variants of one function must not share their symbols in the on-disk cache."""
    function.__qualname__ = name
    return helper(function)


@dataclass(slots=True)
class Counts:
    """How many kernels this process has compiled, and loaded from disk."""

    compiled: int = 0
    loaded: int = 0


counts = Counts()
registry: dict[str, Kernel] = {}
"""All kernels by name: what ``warm`` compiles."""


class Kernel:
    """One compiled function. ``address`` and ``call`` compile it, or load it from disk, when first asked."""

    def __init__(self, name: str, function: Callable[..., Any], signature: Any = KERNEL, *, ahead: bool = True) -> None:
        function.__qualname__ = name  # names the cache file: variants of one function must not share it
        self.name = name
        self.signature = signature
        self._function = function
        self._compiled: Any = None
        if ahead and function.__module__.startswith(f"{__package__}."):  # a kernel of a test is never compiled ahead
            registry[name] = self

    @property
    def compiled(self) -> Any:
        """Numba's compiled C function."""
        if self._compiled is None:
            made: Any = CFunc(self._function, (self.signature.args, self.signature.return_type), {}, dict(_OPTIONS))
            if cache_folder() is not None:
                made._cache = KernelCache(self._function)
            made.compile()
            if made.cache_hits:
                counts.loaded += 1
            else:
                counts.compiled += 1
            self._compiled = made
        return self._compiled

    @property
    def is_cached(self) -> bool:
        """Whether it would be loaded from disk (or is loaded already)."""
        return self._compiled is not None or (cache_folder() is not None and KernelCache(self._function).exists())

    @property
    def address(self) -> int:
        """Where the machine code is, for ``invoke``."""
        return int(self.compiled.address)

    @property
    def call(self) -> Any:
        """The function for Python; it releases the GIL while it runs."""
        return self.compiled.ctypes

    def assembly(self) -> str:
        """The machine code as text (only for a kernel compiled in this process)."""
        return str(self.compiled._library.get_asm_str())


def kernel(function: Callable[..., Any]) -> Kernel:
    """Define a kernel with the common signature."""
    return Kernel(function.__name__, function)


def function(signature: Any, *, ahead: bool = True) -> Callable[[Callable[..., Any]], Kernel]:
    """Define a compiled function with a signature of its own, to be called from Python; not ``ahead``: models do not
    need it, so it is compiled when first called."""
    return lambda defined: Kernel(defined.__name__, defined, signature, ahead=ahead)
