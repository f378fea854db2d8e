"""The benchmark of problems that nobody measured: what it does before it times."""

from __future__ import annotations

import time

from benchmarks.measure import unseen


def test_the_call_that_loads_a_kernel_does_not_say_how_many_calls_a_graph_has() -> None:
    """Torch had not been called yet where ours served, and its first call took milliseconds: graphs
    of one call, whose launch hid the gain, stood for the smallest products."""
    calls = 0

    def product() -> None:
        nonlocal calls
        calls += 1
        time.sleep(0.01 if calls == 1 else 0.0)

    assert unseen.calls_of(product, lambda: None) == unseen.CALLS


def test_a_long_product_is_called_once_a_graph() -> None:
    assert unseen.calls_of(lambda: time.sleep(0.002), lambda: None) == 1
