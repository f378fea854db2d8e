"""Threads that take turns as often as Python lets them."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any


def run_in_threads(work: Callable[..., None], calls: Iterable[tuple[Any, ...]]) -> None:
    """A thread for each call of `work`; what one raises is raised here."""
    failures: list[BaseException] = []

    def kept(*arguments: Any) -> None:
        try:
            work(*arguments)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=kept, args=each) for each in calls]
    old = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(old)
    if failures:
        raise failures[0]
