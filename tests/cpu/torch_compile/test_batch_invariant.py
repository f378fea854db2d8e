"""Compiled code and the batch-invariant mode: no graph that was traced under one runs under the
other."""

from __future__ import annotations

import pytest
import torch

import hgemm_packs
from hgemm_packs.errors import InvariantError
from tests import reference
from tests.fake_driver import Started


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_calls_in_compiled_code_are_the_modes_own(compiler: Started, backend: str) -> None:
    """A graph traced outside keeps torch's product where no table has a row; in the mode the same
    code must raise there, and ask for the mode's kernel elsewhere."""
    compiler.serve("tma2_v1")
    a, b = reference.cancelling(32, 64, 48, "nn", torch.float16)
    c, d = reference.cancelling(32, 64, 48, "nn", torch.bfloat16)  # which nothing serves
    compiled = torch.compile(lambda x, w: compiler.matmul(x, w), backend=backend)
    with torch.no_grad():
        for x, w in ((a, b), (c, d)):
            reference.assert_exact(compiled(x, w), x, w)
        with hgemm_packs.options(batch_invariant=True):
            del compiler.modes[:]
            reference.assert_exact(compiled(a, b), a, b)
            assert compiler.modes == [True]
            with pytest.raises(InvariantError, match="not_measured"):
                compiled(c, d)
        reference.assert_exact(compiled(c, d), c, d)


def test_a_whole_graph_cannot_hold_a_call_of_the_mode(compiler: Started) -> None:
    compiler.serve("tma2_v1")
    a, b = reference.cancelling(32, 64, 48, "nn", torch.float16)
    whole = torch.compile(lambda x, w: compiler.matmul(x, w), backend="eager", fullgraph=True)
    with (
        torch.no_grad(),
        hgemm_packs.options(batch_invariant=True),
        pytest.raises(torch._dynamo.exc.Unsupported),
    ):
        whole(a, b)
