"""Python's collector of cycles, paused while a gate reads a kernel.

A gate makes millions of small objects, hardly any of them in cycles, and the collector goes over
those that live again and again: a third of the time of the gates that need no GPU.
"""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable
from typing import ParamSpec, TypeVar

__all__ = ["paused"]

Given = ParamSpec("Given")
Made = TypeVar("Made")


def paused(function: Callable[Given, Made]) -> Callable[Given, Made]:
    """The same function, during which nothing is collected. Where several threads are in one, the
    first that leaves may turn the collector on for all."""

    @functools.wraps(function)
    def run(*args: Given.args, **kwargs: Given.kwargs) -> Made:
        if not gc.isenabled():
            return function(*args, **kwargs)
        gc.disable()
        try:
            return function(*args, **kwargs)
        finally:
            gc.enable()

    return run
