"""The gates over families that came later: each by the gate of its kind."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.gates import space_gates
from hgemm_packs import launcher
from hgemm_packs.generator.core.spec import Job
from hgemm_packs.generator.devices import gated
from hgemm_packs.generator.gates import pack_gate
from hgemm_packs.generator.gates.numeric import Numeric
from tests.generator import stand_in


def made_of(name: str, clean: int, **findings: int) -> dict[str, Any]:
    tools = {tool: {"clean": clean, "findings": findings} for tool in ("memcheck", "racecheck")}
    return {
        "kernels": {"commit": name, "kernels": clean + len(findings)},
        "runs": [{"commit": name}],
        "families": {name: {"pairs": clean}},
        "sanitized": tools,
    }


def test_families_that_come_later_join_those_of_the_file() -> None:
    """A second folder took the place of the families that it did not have."""
    both = space_gates.unite(made_of("a", 3), made_of("b", 4, bad=2))
    assert both["kernels"] == {"commit": "a", "kernels": 8}
    assert both["families"] == {"a": {"pairs": 3}, "b": {"pairs": 4}}
    assert [run["commit"] for run in both["runs"]] == ["a", "b"]
    assert both["sanitized"]["racecheck"] == {"clean": 7, "findings": {"bad": 2}}
    assert space_gates.unite(made_of("a", 3), made_of("a", 5)) == made_of("a", 5)
    with pytest.raises(ValueError, match="has b again, but not a"):
        space_gates.unite(both, made_of("b", 5))


@pytest.mark.parametrize("kind", ["grouped", "batched"])
def test_a_kernel_goes_through_the_gate_of_its_kind(
    kind: str, machine: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    record = SimpleNamespace(
        **{"name": "g", "epilogue": "none", "cooperative": False, "cluster": (1, 1, 1)},
        **{
            "grid": SimpleNamespace(slices=1, persistent=False),
            "is_grouped": False,
            "is_batched": False,
        },
    )
    setattr(record, f"is_{kind}", True)
    monkeypatch.setattr(gated, "entry", lambda fields, cubin: record)
    handle = SimpleNamespace(max_ctas=9)
    monkeypatch.setattr(launcher, "load", lambda *_: handle)
    monkeypatch.setattr(launcher, "launch_grouped", lambda *operands: seen.append(operands))

    def check(entry: Any, launch: Any, place: Any, seed: int, *sizes: Any) -> Numeric:
        if kind == "grouped":
            launch("tokens", "weights", "ends", "out")
            assert seen == [(handle, "tokens", "weights", "ends", "out")]
        else:
            assert launch.kernel is handle
        assert entry is record and sizes == ((), (), [])
        return Numeric(3e-4, 11)

    monkeypatch.setattr(getattr(pack_gate, kind), "check", check)
    reply = gated.make(0).run(Job("plain", None, (stand_in.GOOD[0],), 5))
    found = {name: value for name, value in reply.evidence.items() if name != "seconds"}
    assert found == {"outcome": "passed", "max_rel_err": 3e-4, "shapes_tested": 11}
