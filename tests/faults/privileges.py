"""Root without the power to pass by permissions, so that tests of permissions hold for it as for anybody."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

_VERSION_3 = 0x20080522
_DAC_OVERRIDE, _DAC_READ_SEARCH, _FOWNER = 1 << 1, 1 << 2, 1 << 3
_FIELDS = ("effective", "permitted", "inheritable")


class _Header(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]


class _Data(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint32) for name in _FIELDS]


@contextmanager
def without_privileges() -> Iterator[None]:
    """Take them from this thread for a while; see capabilities(7)."""
    if os.geteuid():
        yield
        return
    libc = ctypes.CDLL(None, use_errno=True)
    header, data = _Header(_VERSION_3, 0), (_Data * 2)()
    assert libc.capget(ctypes.byref(header), data) == 0
    kept = data[0].effective
    data[0].effective = kept & ~(_DAC_OVERRIDE | _DAC_READ_SEARCH | _FOWNER)
    assert libc.capset(ctypes.byref(header), data) == 0
    try:
        yield
    finally:
        data[0].effective = kept
        assert libc.capset(ctypes.byref(header), data) == 0
