"""A store with outcomes, and what is in one."""

from __future__ import annotations

from hgemm_packs.generator.core.spec import Choice, Proposal
from hgemm_packs.generator.store.run_folder import Store
from hgemm_packs.problem import Problem
from tests.generator.store.sample_store import kernel, screen


def fill(
    store: Store, problem: Problem, picked: list[Choice], us: list[float], config: str = "a"
) -> tuple[str, str]:
    """A run that built and screened `picked`; returns the ids of run and toolchain."""
    run, tool = store.add_run({"name": config}), store.add_toolchain({"nvrtc": "13.0.88"})
    built = [kernel(choice) for choice in picked]
    for choice, one in zip(picked, built, strict=True):
        store.add_candidate(run, problem, Proposal(choice, "random", "seed", ("p",)))
        store.add_build(choice, tool, one)
    store.add_reply(run, *screen(problem, built, us))
    return run, tool
