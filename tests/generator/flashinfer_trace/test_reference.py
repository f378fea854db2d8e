"""A reference is read and never run: its text says which product it is, or it is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from hgemm_packs.errors import PackError
from hgemm_packs.generator.flashinfer_trace.reference import Factor, read_product

A, B, AT, BT = Factor(0, False), Factor(1, False), Factor(0, True), Factor(1, True)
F = "import torch\nimport torch.nn.functional as F\n"


def run(body: str, head: str = "import torch\n", arguments: str = "A, B") -> str:
    return f"{head}\n\ndef run({arguments}):\n    {body}\n"


PRODUCTS = {
    "return torch.matmul(A, B.T)": (A, BT),
    "return A @ B": (A, B),
    "return torch.mm(A.t(), B)": (AT, B),
    "return A.T.matmul(B.mT)": (AT, BT),
    "return A.mm(B.transpose(0, 1))": (A, BT),
    "return torch.transpose(A, -1, -2) @ B": (AT, B),
    "return (B @ A.T).T": (A, BT),
    "return torch.matmul(B, A)": (B, A),
    "return (A.float() @ B.float().T).to(A.dtype)": (A, BT),
    "x = A.to(torch.float32)\n    y = x @ B.to(dtype=torch.float32).t()\n    return y.half()": (
        A,
        BT,
    ),
    "A = A.contiguous()\n    C = A @ B\n    return C": (A, B),
}


@pytest.mark.parametrize("body", PRODUCTS)
def test_a_product_is_what_torch_makes_of_it(body: str) -> None:
    left, right = read_product(run(body), 2, "float16")
    assert (left, right) == PRODUCTS[body]
    space: dict[str, object] = {}
    exec(run(body), space)  # ours, not a stranger's
    sizes = {True: (5, 3), False: (3, 5)}, {True: (4, 5), False: (5, 4)}
    given = {left.place: sizes[0][left.transposed], right.place: sizes[1][right.transposed]}
    made = [
        torch.arange(a * b, dtype=torch.float16).view(a, b) / 8 for a, b in (given[0], given[1])
    ]
    one, other = (made[x.place].T if x.transposed else made[x.place] for x in (left, right))
    expected = (one.double() @ other.double()).half()
    assert torch.equal(space["run"](*made), expected)  # type: ignore[operator]


@pytest.mark.parametrize(
    "head",
    [
        F,
        "from torch.nn import functional as F\n",
        "import torch\nfrom torch.nn import functional as F\n",
    ],
)
def test_linear_by_any_name(head: str) -> None:
    assert read_product(run("return F.linear(A, B)", head), 2, "float16") == (A, BT)


def test_what_does_not_compute_is_heeded_no_more_than_a_comment() -> None:
    code = (
        '"""Words."""\nimport math\nimport torch\n\n\n@torch.no_grad()\ndef run(x, w):\n    "doc"\n'
    )
    assert read_product(f"{code}    return x @ w.T\n", 2, "bfloat16") == (A, BT)


REFUSED = {
    run("return torch.relu(A @ B)"): "line 5 calls what is no product, transpose or cast",
    run("return A @ B + 1"): "line 5 has more than products, transposes and casts",
    run("return A * B"): "line 5 has more than products, transposes and casts",
    run("return A @ A.T"): "it is no product of two inputs",
    run("return A"): "it is no product of two inputs",
    run("return A @ B @ A"): "it is a product of more than two factors",
    run("return F.linear(A, B, B)", F): "line 6 calls what is no product, transpose or cast",
    run("return (A.bfloat16() @ B.bfloat16()).half()"): (
        "line 5 rounds to a type that is not that of the operands"
    ),
    run("return A.view(1, -1) @ B"): "line 5 calls what is no product, transpose or cast",
    run("return torch.transpose(A, 0, 0) @ B"): (
        "line 5 calls what is no product, transpose or cast"
    ),
    run("A[0] = 0\n    return A @ B"): "line 5 is neither an assignment nor a return",
    run("for _ in A: pass\n    return A @ B"): "line 5 is neither an assignment nor a return",
    run("pass"): "line 5 is neither an assignment nor a return",
    run("return"): "line 5 is neither an assignment nor a return",
    run("C = A @ B"): "run returns nothing",
    run("return A @ B", arguments="A, B, C"): "run takes not 2 inputs",
    run("return A @ B", arguments="A, B=None"): "run takes not 2 inputs",
    run("return A @ B", arguments="*A"): "run takes not 2 inputs",
    run("return t(A) @ B", "import t\n"): "line 5 calls what is no product, transpose or cast",
    run("return torch.mm(A, B)", "import evil as torch\n"): (
        "line 5 calls what is no product, transpose or cast"
    ),
    run("return torch.mm(A, B)", "import torch\ntorch.mm = print\n"): (
        "line 2 is neither an import nor run"
    ),
    run("return A @ B", "import torch\n@torch.compile\n").replace("\n\n\ndef", "\ndef"): (
        "line 2 decorates run"
    ),
    run("return A @ B") * 2: "it has not one function run",
    "def go(A, B):\n    return A @ B\n": "it has not one function run",
    "def run(A, B:\n": "it is no Python: '(' was never closed (<unknown>, line 1)",
    "def run(A, B):\n    return A @ B\0": "it is no Python",
    run("return " + "(" * 900 + "A @ B" + ")" * 900): "it is",
    run("return A" + ".T" * 3000 + " @ B"): "it is nested too deeply",
}


@pytest.mark.parametrize("code", REFUSED, ids=range(len(REFUSED)))
def test_other_code_is_refused_with_the_reason(code: str) -> None:
    with pytest.raises(PackError) as refusal:
        read_product(code, 2, "float16")
    assert (refusal.value.code, refusal.value.where) == ("unknown_reference", "reference")
    assert refusal.value.detail.startswith(REFUSED[code])


def test_hostile_code_does_not_run(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    for code in (
        f"open({str(mark)!r}, 'w')\n" + run("return A @ B"),
        run(f"open({str(mark)!r}, 'w')\n    return A @ B"),
        run("return A @ B", arguments=f"A, B=open({str(mark)!r}, 'w')"),
        f"import torch\n\n@open({str(mark)!r}, 'w')\ndef run(A, B):\n    return A @ B\n",
        f"import torch\n\ndef run(A: open({str(mark)!r}, 'w'), B):\n    return A @ B\n",
    ):
        try:
            read_product(code, 2, "float16")
        except PackError as error:
            assert error.code == "unknown_reference"
    assert not mark.exists()
