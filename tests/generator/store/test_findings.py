"""What is read of a store: the same numbers that were put in, of one device only."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hgemm_packs.generator import report
from hgemm_packs.generator.campaigns.refine import Refinement
from hgemm_packs.generator.compile.pack_writer import read_source
from hgemm_packs.generator.core.spec import (
    Choice,
    CompiledKernel,
    DeviceFacts,
    Job,
    Proposal,
    Reply,
    Result,
    Status,
    Verdict,
)
from hgemm_packs.generator.store import findings
from hgemm_packs.generator.store.run_folder import Store
from hgemm_packs.generator.tables import judge
from hgemm_packs.pack.manifest import Numerics
from hgemm_packs.problem import Problem
from tests import packs
from tests.generator.measured import samples

PROBLEM = Problem(256, 512, 1024, "nn", "f16")
OTHER = Problem(512, 512, 2048, "nn", "f16")
VERSIONS = {"torch": "2.11.0", "cublas": "13.1.0", "driver": "580.1"}
HERE = DeviceFacts("Some GPU", "sm_90a", 100, 50 << 20, "one", VERSIONS)
NOISE = {"hot": [1.0, 0.998, 1.004], "cold": [1.0, 0.999, 1.001]}


def made(name: str) -> tuple[Choice, CompiledKernel]:
    """A kernel that a pack accepts, and the choice that it is of."""
    one = packs.built(name, "tma2_v1")
    choice = Choice.of("sm90_test", {**one.entry_fields["genome"], "name": name})
    fields = {**one.entry_fields, "genome": choice.genome}
    return choice, CompiledKernel(fields, one.cubin)


class Filled:
    """A store and the shortest way to put things into it; jobs end a second after each other."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        clock = iter(range(1_795_000_000, 1_796_000_000))
        monkeypatch.setattr(
            "hgemm_packs.generator.store.run_folder.time.time", lambda: float(next(clock))
        )
        self.store = Store(folder)
        self.run = self.store.add_run({"strategy": "prior"})
        self.tool = self.store.add_toolchain({"nvrtc": "13.0.88"})

    def propose(
        self,
        choice: Choice,
        built: CompiledKernel | Verdict,
        problem: Problem = PROBLEM,
        by: str = "prior",
    ) -> None:
        self.store.add_candidate(self.run, problem, Proposal(choice, by, "seed"))
        self.store.add_build(choice, self.tool, built)

    def screen(
        self,
        us: Mapping[str, float | Status],
        problem: Problem = PROBLEM,
        device: DeviceFacts | None = HERE,
        seconds: float = 2.0,
    ) -> None:
        results = {
            id_: Result(v)
            if isinstance(v, Status)
            else Result(Status.OK, {"hot": (v, v * 0.9, v * 1.1)})
            for id_, v in us.items()
        }
        self.reply("screen", problem, Reply(results, {}, {}, seconds, device))

    def measure(
        self,
        kind: str,
        us: Mapping[str, tuple[float, float]],
        problem: Problem = PROBLEM,
        device: DeviceFacts = HERE,
    ) -> None:
        """A finals or confirm job against torch at 12 and 14 us, cuBLASLt at 11 and 13."""

        def arm(pair: Sequence[float]) -> dict[str, tuple[float, ...]]:
            return {p: tuple(samples(pair[i])) for i, p in enumerate(("hot", "cold"))}

        results = {id_: Result(Status.OK, arm(pair)) for id_, pair in us.items()}
        baselines = {"torch": arm((12.0, 14.0)), "cublaslt": arm((11.0, 13.0))}
        self.reply(kind, problem, Reply(results, baselines, {}, 1.0, device))

    def pass_gate(self, *ids: str) -> None:
        seen = {"max_rel_err": 0.0002, "shapes_tested": 12}
        results = {id_: Result(Status.OK, evidence=seen) for id_ in ids}
        self.reply("gate", None, Reply(results, {}, {}, 0.5, HERE))

    def reply(self, kind: str, problem: Problem | None, reply: Reply) -> None:
        kernels = tuple(CompiledKernel({"id": id_}, b"") for id_ in reply.results)
        self.store.add_reply(self.run, Job(kind, problem, kernels, 1), reply)


@pytest.fixture
def filled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Filled:
    return Filled(tmp_path / "store", monkeypatch)


def test_attempts_are_proposals_with_their_answers(filled: Filled) -> None:
    (a, ka), (b, kb), (c, _), (d, kd), (e, ke) = (made(f"k_{x}") for x in "abcde")
    filled.propose(a, ka)
    filled.propose(b, kb, by="bandit")
    filled.propose(a, ka, by="bandit")  # the same choice again
    filled.propose(c, Verdict("build", Status.BUILD, "spills"))
    filled.propose(d, kd)
    filled.propose(e, ke)  # never screened
    filled.screen({ka.id: 5.0, kb.id: Status.NUMERIC})
    filled.screen({kd.id: 4.0}, seconds=3.0)
    filled.screen({ka.id: 7.0})
    attempts = findings.read(filled.store).attempts
    assert [(x.choice, x.kernel, x.proposer, x.status) for x in attempts] == [
        (c.key, "", "prior", Status.BUILD),
        (a.key, ka.id, "prior", Status.OK),
        (b.key, kb.id, "bandit", Status.NUMERIC),
        (d.key, kd.id, "prior", Status.OK),
    ]
    # The first shared a job of 2 s with the second, and was screened alone for 2 s later.
    assert [x.us for x in attempts] == [math.inf, pytest.approx(5.9), math.inf, 4.0]
    assert [(x.spent, x.seconds) for x in attempts] == [(0, 0), (2, 3), (2, 1), (5, 3)]


def test_a_run_may_add_a_problem_meanwhile(filled: Filled, monkeypatch: pytest.MonkeyPatch) -> None:
    """A report drawn then once failed with KeyError: its proposals were newer than its problems."""
    (a, _), (b, _) = made("k_a"), made("k_b")
    refused = Verdict("build", Status.BUILD, "spills")
    filled.propose(a, refused)
    listed = Store.problems

    def slow(store: Store) -> list[Problem]:
        problems = listed(store)
        filled.propose(b, refused, OTHER)
        return problems

    monkeypatch.setattr(Store, "problems", slow)
    with Store(filled.store.folder, readonly=True) as reader:
        assert [x.choice for x in findings.read(reader).attempts] == [a.key]
        assert [x.problem for x in findings.read(reader).attempts] == [PROBLEM, OTHER]


def test_jobs_of_a_field_keep_every_sample(filled: Filled) -> None:
    _, k = made("k_a")
    filled.measure("finals", {k.id: (10.0, 12.0)})
    (field,) = findings.read(filled.store).fields
    assert (field.problem, field.stage, field.date) == (PROBLEM, "finals", "2026-11-18")
    assert field.samples["hot"] == {
        "torch": tuple(samples(12.0)),
        "cublaslt": tuple(samples(11.0)),
        k.id: tuple(samples(10.0)),
    }
    assert field.samples["cold"][k.id] == tuple(samples(12.0))
    assert field.statuses == {k.id: Status.OK}


def test_gates_noise_ceilings_and_costs(filled: Filled) -> None:
    (_, a), (_, b) = made("k_a"), made("k_b")
    filled.pass_gate(a.id, b.id)
    filled.store.add_verdict(b.id, Verdict("plausibility", Status.HACK, "too fast"), PROBLEM)
    filled.reply("noise", PROBLEM, Reply({}, {}, NOISE, 1.5, HERE))
    filled.reply("noise", OTHER, Reply({}, {}, {"lost": "out of memory"}, 1.5, HERE))
    ceilings = {"peak_tflops": 990.0, "gemm_tflops": 800.0, "peak_gbps": 4200.0}
    lower = {"peak_tflops": 700.0, "peak_gbps": 4100.0}
    for evidence in (ceilings, lower):
        filled.reply("ceilings", None, Reply({}, {}, evidence, 2.0, HERE))
    seen = findings.read(filled.store)
    assert seen.proofs[a.id] == Numerics("float64", 0.0002, 12)
    assert seen.refused == {b.id: Status.HACK}
    assert seen.noise == [{"hot": (1.0, 0.998, 1.004), "cold": (1.0, 0.999, 1.001)}]
    assert (seen.device.peak_tflops, seen.device.peak_gbps) == (800.0, 4200.0)
    assert seen.gpu_seconds == {"gate": 0.5, "noise": 3.0, "ceilings": 4.0}
    assert seen.runs[0]["strategy"] == "prior"


def test_other_devices_and_versions_stay_out(filled: Filled) -> None:
    _, k = made("k_a")
    twin = replace(HERE, uuid_hash="two")
    newer = replace(HERE, versions={**VERSIONS, "cublas": "13.2.0"})
    for us, device in ((9.0, newer), (10.0, HERE), (11.0, twin)):
        filled.measure("finals", {k.id: (us, us)}, device=device)
        filled.screen({k.id: us}, device=device)
    choice, _ = made("k_a")
    filled.propose(choice, k)
    filled.screen({k.id: Status.TIMEOUT}, OTHER, device=None, seconds=7.0)  # a lost device
    seen = findings.read(filled.store)
    assert [each.samples["hot"][k.id][1] for each in seen.fields] == [10.0, 11.0]
    assert seen.device == twin
    assert [a.us for a in seen.attempts] == [10.5]
    assert seen.gpu_seconds == {"finals": 2.0, "screen": 11.0}
    assert seen.left_out == 2


def test_a_confirmation_that_took_its_device_along_counts_against_the_kernel(
    filled: Filled,
) -> None:
    """Nobody signs the reply of a process that died; another host's good confirmation is there."""
    a, b = _two_kernels(filled)
    lost = Reply({a.id: Result(Status.TIMEOUT, detail="no answer")}, {}, {}, 240.0)
    filled.reply("confirm", PROBLEM, lost)
    listed = judge.contenders(findings.read(filled.store), {False: 0.004})
    assert [c.kernel for c in listed[PROBLEM]] == [b.id]
    assert {c.kernel for c in listed[OTHER]} == {a.id, b.id}


def _two_kernels(filled: Filled) -> tuple[CompiledKernel, CompiledKernel]:
    """Two problems, two kernels; `a` wins both and the specialist `b` wins one by a little more."""
    (ca, a), (cb, b) = made("k_a"), made("k_b")
    for problem in (PROBLEM, OTHER):
        filled.propose(ca, a, problem)
        filled.propose(cb, b, problem, by="bandit")
        filled.screen({a.id: 10.0, b.id: 10.5}, problem)
    filled.pass_gate(a.id, b.id)
    filled.reply("noise", PROBLEM, Reply({}, {}, NOISE, 1.5, HERE))
    for kind in ("finals", "confirm"):
        filled.measure(kind, {a.id: (10.0, 12.0), b.id: (10.5, 12.5)})
        filled.measure(kind, {a.id: (10.0, 12.0), b.id: (9.99, 11.99)}, OTHER)
    return a, b


def test_a_pack_is_written_from_the_cubins_of_the_store(filled: Filled, tmp_path: Path) -> None:
    a, b = _two_kernels(filled)
    pack = Refinement(filled.store).write(tmp_path / "out", 1.0)
    assert pack.path == tmp_path / "out" / "pack"
    rows = {row.k: row.kernel for row in pack.manifest.table}
    assert rows == {1024: a.id, 2048: b.id}
    images = {entry.id: bytes(pack.image(entry)) for entry in pack.manifest.kernels}
    assert images == {a.id: a.cubin, b.id: b.cubin}
    source = read_source(tmp_path / "out" / "source.json")
    assert source.table == pack.manifest.table
    assert source.device_profiles[0].name == "Some GPU"
    again = Refinement(filled.store).write(tmp_path / "out", 0.99)
    assert {row.k: row.kernel for row in again.manifest.table} == {1024: a.id, 2048: a.id}
    assert [kernel.id for kernel in again.manifest.kernels] == [a.id]


def test_the_same_store_writes_the_same_bytes(filled: Filled, tmp_path: Path) -> None:
    _two_kernels(filled)

    def files(folder: Path) -> dict[str, Any]:
        Refinement(filled.store).write(folder / "table", 1.0)
        assert report.write(filled.store, folder / "report").name == "report.html"
        paths = [path for path in folder.rglob("*") if path.is_file()]
        return {str(path.relative_to(folder)): path.read_bytes() for path in paths}

    first, second = files(tmp_path / "1"), files(tmp_path / "2")
    assert set(first) == {
        "table/source.json",
        "table/pack/manifest.json",
        "table/pack/kernels.bin",
        "report/report.json",
        "report/report.html",
    }
    # The pack names the commit and whether the checkout is clean: that may change meanwhile.
    del first["table/pack/manifest.json"], second["table/pack/manifest.json"]
    assert first == second


def test_an_empty_store_has_nothing_and_says_so(filled: Filled, tmp_path: Path) -> None:
    seen = findings.read(filled.store)
    assert (seen.device.name, seen.attempts, seen.fields) == ("no device yet", (), ())
    with pytest.raises(ValueError, match="no noise records"):
        Refinement(filled.store).write(tmp_path / "out", 1.0)
    assert not (tmp_path / "out").exists()
