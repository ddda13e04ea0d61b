"""Atomics, waiting and indirect calls for kernels.

On Linux threads sleep on a futex. Elsewhere they sleep in short steps and look again (written from the documentation;
not tested on those systems). ``syscall``, ``usleep`` and ``Sleep`` are declared as external symbols, since a pointer
taken through ctypes would make a function uncacheable.
"""

from __future__ import annotations

import platform
import sys

from llvmlite import ir
from numba.core import cgutils, types

from engine.kernels.cpu import target
from engine.kernels.emit import LONG, WORD, address, pointer, primitive, word_at

_FUTEX_NUMBER = {"x86_64": 202, "aarch64": 98, "armv7l": 240, "riscv64": 98, "ppc64le": 221}.get(platform.machine())
FUTEX = sys.platform == "linux" and _FUTEX_NUMBER is not None
_WAIT_PRIVATE, _WAKE_PRIVATE = 128, 129


@primitive(types.int64, address, types.int64)
def atomic_load(b, base, index):
    """Word ``index`` of a record, sequentially consistent."""
    return b.load_atomic(pointer(b, word_at(b, base, index), LONG), "seq_cst", 8)


@primitive(types.void, address, types.int64, types.int64)
def atomic_store(b, base, index, value):
    """Set word ``index`` of a record, sequentially consistent."""
    b.store_atomic(value, pointer(b, word_at(b, base, index), LONG), "seq_cst", 8)


@primitive(types.int64, address, types.int64, types.int64)
def atomic_add(b, base, index, value):
    """Add to word ``index`` of a record, and return the value before."""
    return b.atomic_rmw("add", pointer(b, word_at(b, base, index), LONG), value, "seq_cst")


@primitive(types.boolean, address, types.int64, types.int64, types.int64)
def compare_and_swap(b, base, index, expected, value):
    """Set word ``index`` of a record to ``value`` if ``expected`` is there; True if it was."""
    result = b.cmpxchg(pointer(b, word_at(b, base, index), LONG), expected, value, "seq_cst", "seq_cst")
    return b.extract_value(result, 1)


@primitive(types.void)
def spin_pause(b):
    """Tell the core that this is a waiting loop."""
    if target().x86:
        kind = ir.FunctionType(ir.VoidType(), [])
        b.call(cgutils.get_or_insert_function(b.module, kind, "llvm.x86.sse2.pause"), [])
    else:
        b.fence("seq_cst")


@primitive(types.int64)
def cycles(b):
    """The processor's time stamp counter (0 where the target has none that programs may read)."""
    if not target().x86:
        return ir.Constant(LONG, 0)
    kind = ir.FunctionType(LONG, [])
    return b.call(cgutils.get_or_insert_function(b.module, kind, "llvm.readcyclecounter"), [])


def _external(b, name, result, values, variadic=False):
    fixed = [values[0].type] if variadic else [v.type for v in values]
    kind = ir.FunctionType(result, fixed, var_arg=variadic)
    return b.call(cgutils.get_or_insert_function(b.module, kind, name), values)


def _nap(b, microseconds):
    if sys.platform == "win32":
        _external(b, "Sleep", ir.VoidType(), [ir.Constant(WORD, max(1, microseconds // 1000))])
    else:
        _external(b, "usleep", WORD, [ir.Constant(WORD, microseconds)])


def _futex(b, where, operation, value):
    """Emit the Linux system call futex(where, operation, value, no timeout)."""
    number, zero = ir.Constant(LONG, _FUTEX_NUMBER), ir.Constant(LONG, 0)
    values = [number, where, ir.Constant(LONG, operation), value, zero, zero, zero]
    _external(b, "syscall", LONG, values, variadic=True)


@primitive(types.void, address, types.int64, types.int64)
def sleep_while(b, base, index, expected):
    """Sleep while the low 32 bits of word ``index`` equal ``expected``, until woken; may return early."""
    if FUTEX:
        _futex(b, word_at(b, base, index), _WAIT_PRIVATE, expected)
    else:
        _nap(b, 200)


@primitive(types.void, address, types.int64)
def wake_all(b, base, index):
    """Wake all that sleep on word ``index``."""
    if FUTEX:
        _futex(b, word_at(b, base, index), _WAKE_PRIVATE, ir.Constant(LONG, 0x7FFFFFFF))


@primitive(types.void, address, address, address, types.int64, types.int64, address)
def invoke(b, function, context, arguments, begin, end, scratch):
    """Call a compiled kernel by its address (see ``kernel.KERNEL``)."""
    kind = ir.FunctionType(ir.VoidType(), [LONG] * 5)
    b.call(b.inttoptr(function, kind.as_pointer()), [context, arguments, begin, end, scratch])
