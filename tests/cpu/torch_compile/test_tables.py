"""Graphs and the tables that decided them: dynamic M, caches of earlier processes, registration."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from hgemm_packs import dispatch, launcher
from hgemm_packs.generator.compile.pack_writer import write_pack
from hgemm_packs.torch_compile import choice, lowering, operators
from tests import packs, reference
from tests.cpu.call.served_packs import install, runnable
from tests.cpu.common import scripts
from tests.fake_driver import Started

M, N, K = packs.WIN_SMALL.m, packs.WIN_SMALL.n, packs.WIN_SMALL.k


def test_one_graph_serves_every_m(
    bare: Started, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table is asked at each call: a kernel where M was measured, torch elsewhere."""
    from torch._inductor.select_algorithm import extern_kernels

    operators.register()
    lowering.register()
    monkeypatch.setattr(extern_kernels, lowering.NAME, bare.matmul)
    install(monkeypatch, packs.write_good(tmp_path / "good", runnable).path)
    operators.replace(bare.matmul, bare.linear, bare.extension.fused_linear)
    torch._dynamo.reset()
    before = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    compiled = torch.compile(bare.matmul, fullgraph=True, dynamic=True)
    with torch.no_grad(), torch._inductor.utils.fresh_cache():
        for m in (M + 7, M, 3, M):
            a, b = reference.cancelling(m, N, K, "nn", torch.float16)
            torch._dynamo.mark_static(b)
            reference.assert_exact(compiled(a, b), a, b)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] - before == 1
    counts = launcher.counters()
    assert (counts["hits"], counts["fallbacks"]) == (2, 2)
    # No M of this weight was measured.
    a, b = reference.cancelling(M, N + 8, K, "nn", torch.float16)
    assert choice.choose(a, b) is None
    torch._dynamo.reset()


def test_tensors_of_another_device_type_get_no_node(
    bare: Started, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model on the CPU beside a GPU that has a pack: Inductor's own products stay."""
    install(monkeypatch, packs.write_good(tmp_path / "good", runnable).path)
    a, b = reference.cancelling(M, N, K, "nn", torch.float16)
    assert choice.choose(a, b) is not None
    monkeypatch.setattr(dispatch, "kind", "cuda")
    assert choice.choose(a, b) is None


SCRIPT = """
import json, os, sys
from pathlib import Path
import pytest, torch, torch._dynamo
from hgemm_packs import launcher
from hgemm_packs.torch_compile import lowering, operators
from tests import fake_driver, packs, reference

patch = pytest.MonkeyPatch()
fake = fake_driver.start(patch, Path(os.environ["LIBRARY"]))
operators.register()
operators.replace(fake.matmul, fake.linear, fake.extension.fused_linear)
ready = lowering.register
def register():
    ready()
    from torch._inductor.select_algorithm import extern_kernels
    patch.setattr(extern_kernels, lowering.NAME, fake.matmul)
patch.setattr(lowering, "register", register)
p = packs.WIN_SMALL
a, b = reference.cancelling(p.m, p.n, p.k, p.layout, torch.float16)
compiled = torch.compile(fake.matmul, fullgraph=True)
with torch.no_grad():
    reference.assert_exact(compiled(a, b), a, b)
    first = launcher.counters()["hits"]
    for _ in range(2):
        reference.assert_exact(compiled(a, b), a, b)
counters = torch._dynamo.utils.counters
print(json.dumps({
    "hits": launcher.counters()["hits"] - first,
    "graph": counters["inductor"]["fxgraph_cache_hit"],
    "autograd": counters["aot_autograd"]["autograd_cache_hit"],
}))
"""


def test_a_cached_graph_is_used_under_its_own_tables_alone(
    tmp_path: Path, driver_library: Path
) -> None:
    """Inductor's cache asks for the graph, not for us: a process without the pack once ran code
    that a process with it had left, and a process with it never got a kernel."""
    good = packs.write_good(tmp_path / "good", runnable).path
    kernel = packs.built("k", "tma2_v1", cubin=runnable("k", "tma2_v1"))
    rows = [packs.row(packs.WIN, kernel)]
    source = packs.source([kernel], rows)
    other = write_pack(tmp_path / "other", source, [kernel], generator_info=packs.GENERATOR).path  # type: ignore[list-item]

    def process(path: str) -> dict[str, int]:
        said = scripts.run(
            SCRIPT,
            HGEMM_PACKS_PATH=path,
            TORCHINDUCTOR_CACHE_DIR=str(tmp_path / "cache"),
            LIBRARY=str(driver_library),
        )
        found: dict[str, int] = json.loads(
            next(line for line in said.splitlines() if line.startswith("{"))
        )
        return found

    def cached(found: dict[str, int]) -> bool:
        return found["graph"] + found["autograd"] > 0

    without = process("")
    assert without["hits"] == 0 and not cached(without)
    served = process(str(good))
    assert served["hits"] == 2 and not cached(served)
    again = process(str(good))
    assert again["hits"] == 2 and cached(again)
    assert process("") | {"graph": 0, "autograd": 0} == without | {"graph": 0, "autograd": 0}
    # Another pack that has no kernel for it, of other rows: neither of the two graphs is its.
    assert process(str(other))["hits"] == 0
    assert process(str(good))["hits"] == 2


@pytest.mark.parametrize("first", ["hgemm_packs", "torch._dynamo"])
def test_dynamo_knows_our_functions_whichever_is_imported_first(first: str) -> None:
    """And `import hgemm_packs` imports no torch."""
    second = "torch._dynamo" if first == "hgemm_packs" else "hgemm_packs"
    said = scripts.run(
        f"""
import sys
import {first}
assert ({first!r} == "torch._dynamo") == ("torch" in sys.modules)
import {second}
import torch, hgemm_packs
from hgemm_packs.torch_compile import follow
assert not any(isinstance(each, follow._Finder) for each in sys.meta_path)
assert type(torch._dynamo.__loader__).__name__ == "SourceFileLoader"
assert torch._dynamo.__spec__.loader is torch._dynamo.__loader__
seen = []
def keep(graph, inputs):
    seen.extend(str(node.target) for node in graph.graph.nodes if node.op == "call_function")
    return graph
a = torch.eye(8)
assert torch.equal(torch.compile(hgemm_packs.matmul, backend=keep, fullgraph=True)(a, a), a)
print(seen)
"""
    )
    assert "['hgemm_packs.matmul']" in said


@pytest.mark.parametrize("first", ["hgemm_packs", "torch._dynamo"])
def test_a_torch_that_refuses_our_operators_imports_and_compiles(first: str) -> None:
    """An error of ours would have come out of the user's own import of torch._dynamo."""
    second = "torch._dynamo" if first == "hgemm_packs" else "hgemm_packs"
    said = scripts.run(
        f"""
import torch
if {first!r} == "hgemm_packs":
    import hgemm_packs
taken = torch.library.Library("hgemm_packs", "DEF")  # a namespace has one owner
import {first}, {second}
a = torch.eye(8)
assert torch.equal(torch.compile(lambda x: x @ x, backend="eager")(a), a)
assert torch.equal(hgemm_packs.matmul(a, a), a)
"""
    )
    assert "torch.compile breaks its graphs at calls of hgemm_packs: Only a single" in said
