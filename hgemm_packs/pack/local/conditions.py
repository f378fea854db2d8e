"""What a measured time depends on beside problem and kernel, as far as it may change on a machine.

Asked by `place` at the start of a process, so it costs no driver call, and by `tuning` for what it
writes down: the same words on both sides.
"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path
from typing import NamedTuple

from ..manifest import LAUNCH_RULES
from ..manifest_fields import NAME
from ..strict_json import Check, integer

UNKNOWN = "unknown"
_LIBRARIES = ("libcublasLt.so.13", "libcublasLt.so.12")
_DRIVER = Path("/sys/module/nvidia/version")


class Conditions(NamedTuple):
    """Versions, and the rules by which the launcher launches what a record says."""

    torch: str
    cublas: str
    driver: str
    rules: int


#: Of a document that says them.
FIELDS: dict[str, Check] = {
    "torch": NAME,
    "cublas": NAME,
    "driver": NAME,
    "rules": integer(0, 1 << 20),
}


def here() -> Conditions:
    """Those of this process: UNKNOWN is what it has not loaded or cannot see."""
    torch = sys.modules.get("torch")
    version = str(torch.__version__) if torch else UNKNOWN
    return Conditions(version, _cublas(), _driver(), LAUNCH_RULES)


def changes(measured: Conditions, now: Conditions) -> list[str]:
    """What is another one now, in words; nothing is said of what either does not know."""
    return [
        f"{name} was {then}, is {found}"
        for name, then, found in zip(Conditions._fields, measured, now, strict=True)
        if then != found and UNKNOWN not in (then, found)
    ]


def _cublas() -> str:
    """The version of the library that torch has loaded."""
    for name in _LIBRARIES:
        try:
            library = ctypes.CDLL(name, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
        except OSError:
            continue
        library.cublasLtGetVersion.restype = ctypes.c_size_t
        number = int(library.cublasLtGetVersion())
        return f"{number // 10000}.{number // 100 % 100}.{number % 100}"
    return UNKNOWN


def _driver() -> str:
    try:
        return _DRIVER.read_text(encoding="ascii").strip() or UNKNOWN
    except (OSError, ValueError):
        return UNKNOWN
