"""Under enabled(), what no kernel serves is torch's: every bit and every error."""

from __future__ import annotations

import gc
import signal
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

import hgemm_packs
from tests import reference
from tests.campaign.sides import serve_all
from tests.cpu.program.common import SIDE, Hits, assert_torchs_to_the_bit, one, operands
from tests.fake_driver import Started


def _strided_out() -> torch.Tensor:
    return torch.zeros(SIDE, 2 * SIDE).half()[:, ::2]


#: Calls that no kernel serves: the function, and what of tensors it is called with.
MISSES: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "float32": lambda a, b: a.float() @ b.float(),
    "odd sizes": lambda a, b: a[:, :31] @ b[:31, :7],
    "batch": lambda a, b: torch.bmm(torch.stack([a, b]), torch.stack([b, a])),
    "baddbmm": lambda a, b: torch.baddbmm(one(a), one(a), one(b), beta=2),
    "vector": lambda a, b: a @ b[0],
    "no rows": lambda a, b: a[:0] @ b,
    "no terms": lambda a, b: a[:, :0] @ b[:0],
    "no columns": lambda a, b: torch.mm(a, b[:, :0]),
    "expanded": lambda a, b: a[:1].expand(SIDE, SIDE) @ b,
    "stepped": lambda a, b: a[:, ::2] @ b[::2],
    "strided out": lambda a, b: torch.mm(a, b, out=_strided_out()),
    "transposed out": lambda a, b: torch.mm(a, b, out=torch.empty_like(a).t()),
    "resized out": lambda a, b: torch.mm(a, b, out=a.new_empty(0)),
    "own memory": lambda a, b: (lambda x: torch.mm(x, b, out=x.new_empty(SIDE, SIDE)))(a[:24]),
    "sparse": lambda a, b: torch.sparse.mm(a.float().to_sparse(), b.float()),
    "negative": lambda a, b: torch._neg_view(a.float()) @ b.float(),
    "complex": lambda a, b: a.to(torch.complex64).conj() @ b.to(torch.complex64),
    "meta": lambda a, b: (a.to("meta") @ b.to("meta")).new_zeros(1, device="cpu"),
}


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.parametrize("miss", MISSES)
def test_everything_else_is_torchs_to_the_bit(served: Started, miss: str) -> None:
    assert_torchs_to_the_bit(MISSES[miss])


#: Calls that torch refuses.
ERRORS: dict[str, Callable[[torch.Tensor], Any]] = {
    "shapes": lambda a: a @ a[:7],
    "dtypes": lambda a: a @ a.float(),
    "batches": lambda a: torch.bmm(torch.stack([a, a]), torch.stack([a, a, a])),
    "dimensions": lambda a: torch.mm(a, a[0]),
    "out dtype": lambda a: torch.mm(a, a, out=a.float()),
    "out bmm": lambda a: torch.bmm(one(a), one(a), out=one(a).float()),
    "integers": lambda a: torch.mm(a.float(), a.int()),
}


@pytest.mark.parametrize("error", ERRORS)
def test_errors_are_torchs_and_keep_no_operand(served: Started, error: str) -> None:
    """torch hands over what it is called with; what it raises has to pass through C, which does
    not see it. Tensors of such a call stayed for good."""

    def message(a: torch.Tensor) -> str:
        with pytest.raises(RuntimeError) as raised:
            ERRORS[error](a)
        return str(raised.value)

    a, _ = operands()
    wanted = message(a)
    x, y = torch.ones(3, 3), operands()[0]
    gone = weakref.ref(y)
    with hgemm_packs.enabled():
        assert message(a) == wanted
        message(y)
        del y
        assert torch.equal(x @ x, 3 * x)  # the thread's next product
        gc.collect()
        assert gone() is None


def test_half_precision_sums_are_torchs_where_a_user_asks_for_them(served: Started) -> None:
    a, b = operands()
    flags = torch.backends.cuda.matmul
    hits = Hits()
    with hgemm_packs.enabled():
        for name in (
            "allow_fp16_reduced_precision_reduction",
            "allow_bf16_reduced_precision_reduction",
        ):
            before = getattr(flags, name)
            for value in (False, True):
                setattr(flags, name, value)
                reference.assert_exact(a @ b, a, b)
            setattr(flags, name, before)
        assert hits() == 4
        flags.allow_fp16_accumulation = True
        try:
            a @ b
            assert hits() == 4
            a.bfloat16() @ b.bfloat16()  # no such flag
            assert hits() == 5
        finally:
            flags.allow_fp16_accumulation = False
        a @ b
        assert hits() == 6


def test_a_kernel_that_fails_leaves_the_call_to_torch(served: Started) -> None:
    a, b = operands()
    served.control.fail_launches = 1
    out = torch.empty_like(a)
    with hgemm_packs.enabled():
        reference.assert_exact(torch.mm(a, b), a, b)
        reference.assert_exact(torch.mm(a, b, out=out), a, b)
    assert served.fallbacks()["launch_failed"]
    served.control.fail_launches = 0


def test_an_exception_of_the_choice_does_not_reach_the_program(
    fake: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve_all(fake)
    a, b = operands()

    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("of a pack")

    monkeypatch.setattr("hgemm_packs.select.resolve", fail)
    said: list[Any] = []
    monkeypatch.setattr("sys.unraisablehook", said.append)
    with hgemm_packs.enabled():
        reference.assert_exact(a @ b, a, b)
    assert [each.exc_type for each in said] == [ZeroDivisionError]

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("hgemm_packs.select.resolve", interrupt)
    # A process in the background ignores what Ctrl-C sends.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with hgemm_packs.enabled(), pytest.raises(KeyboardInterrupt):
            a @ b
            for _ in range(1000):
                pass
    finally:
        signal.signal(signal.SIGINT, before)
