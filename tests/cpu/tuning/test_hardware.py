"""Rows of a tuning hold for the hardware that was measured, as it was set then."""

from __future__ import annotations

import pytest

from hgemm_packs import profiles, select
from hgemm_packs.pack import discover
from hgemm_packs.pack.folder import Pack
from tests.cpu.tuning import world
from tests.cpu.tuning.test_tune import chosen
from tests.cpu.tuning.world import FIRST, SECOND, FakeBench


def test_rows_of_another_power_limit_do_not_count_and_are_measured_again(
    pack: Pack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table named no limit, so that it also served a GPU whose user had lowered it."""
    limit = [700.0]
    monkeypatch.setattr(profiles, "power_limit_w", lambda device: limit[0])
    world.run(FakeBench(world.speedups(best=1.3)), [FIRST])
    (profile,) = select.find_packs().packs[0].manifest.device_profiles
    assert profile.power_limit_w == 700.0
    limit[0] = 690.0
    select.reset()
    assert chosen(FIRST) == ("kernel", "best"), "cards differ by some watts"
    limit[0] = 500.0
    select.reset()
    assert chosen(FIRST)[0] == "not_measured"
    bench = FakeBench(world.speedups(best=1.2))
    world.run(bench, [SECOND])
    assert bench.did[0][:2] == ("confirm", FIRST)
    assert chosen(FIRST) == chosen(SECOND) == ("kernel", "best")


def test_where_a_table_of_this_machine_is_from_is_said(pack: Pack) -> None:
    world.run(FakeBench(world.speedups(best=1.3)), [FIRST])
    first, second = (discover.origin(each) for each in select.find_packs().packs)
    assert first == "measured on this machine by `hgemm-packs tune`"
    assert second == "HGEMM_PACKS_PATH"
