"""What measures kernels of a pack for dependent launch and for long: the tasks of a campaign.

Called by `refine`, `dependent` and `sustained`. What the lines mean is decided by
`tables.dependent` and `tables.sustained`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from hgemm_packs.generator.campaigns.campaign import Task
from hgemm_packs.generator.compile import pack_kernels
from hgemm_packs.generator.core.spec import CompiledKernel
from hgemm_packs.problem import Problem


def dependent_tasks(
    pairs: Iterable[tuple[Problem, str]], kernel: Callable[[str], CompiledKernel]
) -> list[Task]:
    """What measures each pair of a problem and a kernel's name; `kernel` gives the latter."""
    return [
        Task(
            "pdl",
            problem,
            partial(_load_kernels, kernel, (name,)),
            {"problem": pack_kernels.problem_values(problem), "kernel": name},
        )
        for problem, name in pairs
    ]


def sustained_tasks(
    named: Mapping[Problem, Sequence[str]], kernel: Callable[[str], CompiledKernel]
) -> list[Task]:
    """What measures the kernels of these names on each problem for long; `kernel` gives them."""
    return [
        Task(
            "energy",
            problem,
            partial(_load_kernels, kernel, names),
            {"problem": pack_kernels.problem_values(problem)},
        )
        for problem, names in named.items()
        if names
    ]


def _load_kernels(
    kernel: Callable[[str], CompiledKernel], names: Sequence[str]
) -> tuple[CompiledKernel, ...]:
    return tuple(kernel(each) for each in names)
