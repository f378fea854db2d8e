"""The collector of cycles rests while a function runs, and only then."""

from __future__ import annotations

import gc

import pytest

from hgemm_packs.generator.core import collector


@collector.paused
def states(deeper: int) -> list[bool]:
    """Whether the collector was on, in calls within calls."""
    return [gc.isenabled(), *(states(deeper - 1) if deeper else []), gc.isenabled()]


@collector.paused
def fails() -> None:
    raise ValueError("bad kernel")


def test_nothing_is_collected_in_calls_within_calls_and_all_is_behind_them() -> None:
    assert states(2) == [False] * 6
    assert gc.isenabled()


def test_a_failure_turns_it_on_again() -> None:
    with pytest.raises(ValueError, match="bad kernel"):
        fails()
    assert gc.isenabled()


def test_who_had_turned_it_off_finds_it_off() -> None:
    gc.disable()
    try:
        assert states(0) == [False] * 2
        assert not gc.isenabled()
    finally:
        gc.enable()
