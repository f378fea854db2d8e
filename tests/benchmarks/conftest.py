"""Fixtures of what benchmarks measure: a launcher on the stand-in driver, a device."""

from __future__ import annotations

from tests.cpu.conftest import bare, driver_library, fake
from tests.generator.conftest import cache, machine

__all__ = ["bare", "cache", "driver_library", "fake", "machine"]
