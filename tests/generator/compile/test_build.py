"""Builds: the same bytes everywhere, and errors in the compiler's own words."""

from __future__ import annotations

import hashlib
import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hgemm_packs.generator.compile import compiler, pack_writer
from hgemm_packs.generator.compile.compiler import BuildError, Built
from hgemm_packs.generator.compile.pack_writer import SourceKernel, read_source, write_source
from hgemm_packs.generator.devices.fake import fake_cubin
from hgemm_packs.generator.families import FAMILIES, FREE, family
from tests import packs
from tests.generator.kernels import DIRECT, WGMMA, Job, record, sample, sources_at

COMMITTED = Path(__file__).parents[3] / "manifests" / "sm_90a" / "h200"
QUICK: Job = ("sm90_direct", DIRECT)
PRODUCTS: Job = ("sm90_wgmma", WGMMA)


# --- the same bytes -----------------------------------------------------------------------------


def test_a_kernel_is_the_same_in_every_cache_place_and_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compilations: list[str]
) -> None:
    jobs = sample(len(FAMILIES))
    assert {name for name, _ in jobs} == set(FAMILIES)
    here = [compiler.build_one(*job) for job in jobs]
    sources_at(tmp_path / "somewhere" / "else" / "kernels", monkeypatch)
    monkeypatch.setenv("HGEMM_PACKS_CACHE", str(tmp_path / "another"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("time.time", lambda: 4e9)
    compilations.clear()
    there = [compiler.build_one(*job) for job in jobs]
    assert len(compilations) == len(jobs), "nothing came from a cache"
    assert there == here
    monkeypatch.undo()
    compiler.expand_source.cache_clear()
    monkeypatch.setenv("HGEMM_PACKS_CACHE", str(tmp_path / "third"))
    assert compiler.build(jobs, workers=2) == here


def test_the_id_is_the_digest_of_the_cubin_and_the_rest_is_the_record() -> None:
    for name, genome in (QUICK, PRODUCTS):
        built = compiler.build_one(name, genome)
        fields = built.entry_fields
        assert fields["id"] == hashlib.sha256(built.cubin).hexdigest()
        assert header(fake_cubin(b"")) == header(built.cubin)
        assert fields["symbol"].encode() + b"\0" in built.cubin
        expected = family(name).fields(genome)
        assert {k: v for k, v in fields.items() if k not in ("id", "regs")} == expected
        assert record(fields, size=len(built.cubin)).regs == fields["regs"]


def header(cubin: bytes) -> tuple[bytes, bytes, bytes]:
    """What the header says but where its sections lie: all that `pack` looks at, and more."""
    return cubin[:9], cubin[16:24], cubin[48:52]


def test_comments_do_not_reach_the_cubin_and_code_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compilations: list[str]
) -> None:
    """A comment may be mended without a new sweep: ids stay."""
    before = compiler.build_one(*PRODUCTS)
    folder = sources_at(tmp_path / "kernels", monkeypatch)
    for path in folder.rglob("*.cuh"):
        text = path.read_text(encoding="utf-8")
        path.write_text(f"// Reworded.\n\n{text}// The end.\n", encoding="utf-8")
    assert compiler.build_one(*PRODUCTS) == before
    assert len(compilations) == 2, "the cache is keyed by the text, so this was compiled"
    path = folder / "common" / "epilogue.cuh"
    path.write_text(
        path.read_text(encoding="utf-8").replace("pack2(v[0], v[1])", "pack2(v[1], v[0])")
    )
    compiler.expand_source.cache_clear()
    assert compiler.build_one(*PRODUCTS).entry_fields["id"] != before.entry_fields["id"]


def test_one_string_decides_a_kernel() -> None:
    for job in (QUICK, PRODUCTS):
        text = compiler.render(*job)
        assert "#include" not in text, "neither ours left over nor any of CUDA's"
        assert text.count("constexpr int kElementBytes") == 1, "each header once"
        assert f"#define HGP_SYMBOL {family(job[0]).kernel_name(job[1])}\n" in text


def test_the_compilers_own_cache_stays_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that it remembers comes without the log that tells registers and spills."""
    from cuda import core

    real, seen = core.ProgramOptions, []

    def options(**given: object) -> object:
        seen.append(given)
        return real(**given)

    monkeypatch.setattr(core, "ProgramOptions", options)
    compiler.build_one(*QUICK)
    assert [given["no_cache"] for given in seen] == [True]
    assert "no_cache" not in compiler.OPTIONS, "kernel ids and manifests name what decides the code"


# --- errors -------------------------------------------------------------------------------------


def compile_changed(job: Job, old: str, new: str) -> None:
    source = compiler.render(*job)
    assert source.count(old) == 1, "the source has changed: this test must follow"
    compiler.compile_source(source.replace(old, new), family(job[0]).kernel_name(job[1]))


def test_a_syntax_error_carries_the_compilers_words() -> None:
    with pytest.raises(BuildError) as caught:
        compile_changed(QUICK, "constexpr int kMI = HGP_MI;", "constexpr int kMI = ;")
    words = str(caught.value)
    assert words.startswith(f"{family('sm90_direct').kernel_name(DIRECT)}: compilation failed")
    assert "kernel.cu(" in words
    assert "expected an expression" in words


def test_a_spill_is_refused() -> None:
    with pytest.raises(BuildError, match=r"spills(?s:.*)[1-9]\d* bytes spill stores") as caught:
        compile_changed(
            ("sm90_direct", {**DIRECT, "mi": 2, "ni": 8, "unroll": 1}),
            "__launch_bounds__(kThreads, 1)",
            "__launch_bounds__(512, 4)",
        )
    assert "Used 32 registers" in str(caught.value)


def test_a_kernel_beyond_the_register_file_is_refused_by_ptxas() -> None:
    bounds = "__launch_bounds__(kThreads, HGP_CTAS_PER_SM)"
    with pytest.raises(BuildError, match="Insufficient registers"):
        compile_changed(PRODUCTS, bounds, "__launch_bounds__(1024, 2)")


def test_serialised_products_are_refused() -> None:
    """An accumulator that is touched while products are in flight: right, but without overlap."""
    with pytest.raises(BuildError, match=r"wgmma was serialised(?s:.*)C7511"):
        compile_changed(
            PRODUCTS, "\n    wgmma_commit();\n", "\n    wgmma_commit();\n    acc[0][0] += 1;\n"
        )


def test_a_symbol_that_looks_like_a_warning_is_none() -> None:
    """Kernel names end in eight hexadecimal digits, and ptxas repeats them."""
    symbol = f"{family('sm90_direct').kernel_name(DIRECT)[:-8]}ac7511c7"
    source = 'extern "C" __global__ void SYMBOL(float* x) { *x = 1.0f; }'
    cubin, regs = compiler.compile_source(source.replace("SYMBOL", symbol), symbol)
    assert symbol.encode() in cubin and regs > 0


def test_the_compiler_at_hand_is_the_pinned_one() -> None:
    from cuda.bindings import nvrtc

    compiler.check_nvrtc()
    status, major, minor = nvrtc.nvrtcVersion()
    assert int(status) == 0
    assert compiler.NVRTC_PIN.startswith(f"{major}.{minor}."), (
        "a library beside the wheel was loaded"
    )


# --- many kernels, and a pack -------------------------------------------------------------------


def test_build_keeps_the_order_and_returns_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs: list[Job] = [("sm90_direct", {**DIRECT, "unroll": u}) for u in (8, 4, 2, 1)]
    names = [family(name).kernel_name(genome) for name, genome in jobs]

    def compile_stand_in(source: str, symbol: str) -> tuple[bytes, int, str]:
        if symbol == names[1]:
            raise BuildError(f"{symbol}: spills")
        return symbol.encode(), 40, ""

    # Threads, so that the stand-in compiler is met under every way of starting processes.
    monkeypatch.setattr(compiler, "ProcessPoolExecutor", ThreadPoolExecutor)
    monkeypatch.setattr(compiler, "_compile", compile_stand_in)
    steps: list[tuple[int, int]] = []
    results = compiler.build(iter(jobs), workers=2, progress=lambda *step: steps.append(step))
    assert steps == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert [type(result) for result in results] == [Built, BuildError, Built, Built]
    assert str(results[1]) == f"{names[1]}: spills"
    assert [r.cubin.decode() for r in results if isinstance(r, Built)] == [
        names[0],
        *names[2:],
    ]
    again = pickle.loads(pickle.dumps(results[1]))
    assert (type(again), str(again)) == (BuildError, str(results[1])), "it crosses processes"


def _source_of(built: list[Built], path: Path) -> Path:
    write_source(path, packs.source(built, []))  # type: ignore[arg-type]
    return path


def test_build_pack_holds_what_the_manifest_names(tmp_path: Path) -> None:
    built = [compiler.build_one(*job) for job in (QUICK, PRODUCTS)]
    pack = pack_writer.build_pack(
        _source_of(built, tmp_path / "h200.json"), tmp_path / "pack", jobs=1
    )
    for one in built:
        entry = pack.manifest.by_id[one.entry_fields["id"]]
        assert bytes(pack.image(entry)) == one.cubin
        assert entry.regs == one.entry_fields["regs"]
        assert entry.numerics == packs.NUMERICS


def test_build_pack_refuses_a_kernel_that_was_not_measured(tmp_path: Path) -> None:
    built = compiler.build_one(*QUICK)
    measured = "f" * 64
    other = Built(built.entry_fields | {"id": measured}, built.cubin)
    source = _source_of([other], tmp_path / "h200.json")
    with pytest.raises(BuildError) as caught:
        pack_writer.build_pack(source, tmp_path / "pack", jobs=1)
    fields = built.entry_fields
    assert str(caught.value) == f"{fields['name']}: built {fields['id']}, measured {measured}"
    assert not (tmp_path / "pack").exists()


def test_build_pack_raises_what_the_compiler_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = _source_of([compiler.build_one(*QUICK)], tmp_path / "h200.json")
    monkeypatch.setattr(compiler, "build", lambda *_: [BuildError("kernel.cu(1): error")])
    with pytest.raises(BuildError, match=r"kernel\.cu\(1\): error"):
        pack_writer.build_pack(source, tmp_path / "pack")
    assert not (tmp_path / "pack").exists()


def _spread(kernels: tuple[SourceKernel, ...]) -> list[SourceKernel]:
    """The first and the last kernel of each family, layout and dtype."""
    groups: dict[tuple[object, ...], list[SourceKernel]] = {}
    for kernel in kernels:
        group = (kernel.family, kernel.genome["layout"], kernel.genome["dtype"])
        groups.setdefault(group, []).append(kernel)
    return [kernel for members in groups.values() for kernel in (members[0], members[-1])]


@pytest.mark.skipif(not COMMITTED.exists(), reason="no manifest of the H200 is committed yet")
def test_committed_kernels_rebuild_to_their_ids() -> None:
    """A sample; `make demo` builds all of them."""
    kernels = _spread(read_source(COMMITTED).kernels)
    assert (
        {"sm90_direct", "sm90_wgmma"} <= {kernel.family for kernel in kernels} <= {*FAMILIES, *FREE}
    )
    built = compiler.build([(kernel.family, kernel.genome) for kernel in kernels], workers=2)
    for kernel, one in zip(kernels, built, strict=True):
        assert isinstance(one, Built), one
        assert (one.entry_fields["name"], one.entry_fields["id"]) == (kernel.name, kernel.id)
