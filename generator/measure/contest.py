"""Kernels against each other, against torch and tuned cuBLASLt, and torch against itself.

Called by `devices.gpu`, with arms that were seen to compute the right values. Hot and cold,
interleaved block by block on the same buffers; nothing is decided here but who leaves a race.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from hgemm_packs.generator.core.spec import PROTOCOLS
from hgemm_packs.generator.measure.audit import Audit
from hgemm_packs.generator.measure.race import Block, RaceStandings, race
from hgemm_packs.measure import timing
from hgemm_packs.measure.baselines import TunedCublasLt
from hgemm_packs.measure.replay import Arm, stage
from hgemm_packs.measure.timing import Comparison
from hgemm_packs.measure.timing import clocks as clocks
from hgemm_packs.measure.timing import conditions as conditions
from hgemm_packs.problem import Problem

TARGET_US = 600.0  # of one replay
RACE_TARGET_US = 300.0
LONG_US, VERY_LONG_US = 100.0, 1000.0
GOOD_FLOP_PER_US = 7e8  # of a large problem on an H200


def blocks(kind: str, problem: Problem) -> int:
    """Blocks of a finals, confirm or noise job; long problems get fewer."""
    estimate_us = 2 * problem.m * problem.n * problem.k / GOOD_FLOP_PER_US
    if kind == "finals":
        return 7 if estimate_us > LONG_US else 11
    return 12 if estimate_us > VERY_LONG_US else 21


def finals(
    arms: Mapping[str, Arm],
    problem: Problem,
    tuned: TunedCublasLt | None,
    *,
    blocks: int,
    device: int,
    seed: int,
    audit: Audit | None = None,
) -> dict[str, Comparison]:
    """`arms` with torch and, where it offers an algorithm, tuned cuBLASLt, by protocol. What is the
    same figure hot and cold is measured once and stands for both, but where it is audited."""
    found: dict[str, Comparison] = {}
    for protocol in PROTOCOLS:
        if protocol == "cold" and audit is None and timing.is_alike(problem, device):
            found[protocol] = found["hot"]
            continue
        field: dict[str, Arm] = {"torch": timing.torch_arm(problem)}
        if tuned is not None:
            field["cublaslt"] = getattr(tuned, protocol)
        found[protocol] = timing.compare(
            field | dict(arms),
            problem,
            protocol=protocol,
            blocks=blocks,
            target_us=TARGET_US,
            device=device,
            seed=seed,
            between=audit.between(protocol, blocks) if audit else None,
        )
    return found


def noise(problem: Problem, *, blocks: int, device: int, seed: int) -> dict[str, Comparison]:
    """torch against itself ("torch" and "again"): the floor that a win must clear."""
    arms = {"torch": timing.torch_arm(problem), "again": timing.torch_arm(problem)}
    return {
        protocol: timing.compare(
            arms,
            problem,
            protocol=protocol,
            blocks=blocks,
            target_us=TARGET_US,
            device=device,
            seed=seed,
        )
        for protocol in PROTOCOLS
    }


def sprint(arms: Mapping[str, Arm], problem: Problem, *, device: int, seed: int) -> RaceStandings:
    """Race `arms` hot and cold. Where one set of operands exceeds the caches by far, both are the
    same figure: it is measured once and stands for both."""
    at, shuffle = stage(device), random.Random(seed)
    plans = {
        protocol: timing.plan(
            timing.torch_arm(problem),
            problem,
            protocol,
            target_us=RACE_TARGET_US,
            device=device,
            seed=seed,
        )
        for protocol in PROTOCOLS
    }
    alike = len(plans["cold"].sets) == 1
    with at.active():
        fields = {
            protocol: timing.ArmBench(arms, how, at)
            for protocol, how in plans.items()
            if not (alike and protocol == "cold")
        }

        def measure(alive: Sequence[str]) -> Block:
            block = {}
            for protocol, field in fields.items():
                order = shuffle.sample(alive, len(alive))
                block[protocol], _ = field.block(order)
            return block

        def retire(gone: Sequence[str]) -> None:
            for field in fields.values():
                field.free(gone)

        tally = race(list(arms), measure, retire)
        retire(tally.alive)
    if alike:
        tally.samples["cold"] = tally.samples["hot"]
    return tally
