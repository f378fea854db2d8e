"""Kernels that a pack has are not compiled; what is not as it should be is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from hgemm_packs.errors import PackError
from hgemm_packs.generator.compile import compiler
from hgemm_packs.generator.compile.compiler import Built
from hgemm_packs.generator.core.spec import CompiledKernel, Status, Verdict
from hgemm_packs.generator.workers import known_builder
from hgemm_packs.generator.workers.builder import ProcessBuilder
from hgemm_packs.generator.workers.known_builder import KnownBuilder, KnownKernel
from tests.generator.run.small_run import Builder
from tests.generator.store.sample_store import choices, kernel

HERE, OTHER = choices(2)
PROOF = Verdict("numeric", Status.OK, "", {"max_rel_err": 0.001, "shapes_tested": 30})


@pytest.fixture(scope="module")
def built() -> Built:
    return compiler.build_one(HERE.family, HERE.genome)


def known(built: Built, read: Callable[[], Built] | None = None) -> KnownKernel:
    return KnownKernel(built.entry_fields["id"], read or (lambda: built), PROOF)


def test_a_kernel_of_a_pack_is_the_one_that_a_compiler_would_make(built: Built) -> None:
    compilers = Builder()
    service = KnownBuilder(compilers, {HERE: known(built)})
    found = service.build([HERE, OTHER])
    assert compilers.built == [OTHER] and service.taken == 1
    assert found == {HERE: compiler.as_kernel(built), OTHER: kernel(OTHER)}
    with ProcessBuilder(1) as processes:
        assert processes.build([HERE])[HERE] == found[HERE]
    assert service.build([HERE]) == {HERE: found[HERE]}
    assert [found[each].proof for each in (HERE, OTHER)] == [PROOF, None]
    assert compilers.built == [OTHER], "nothing was asked for nothing"


def test_it_answers_for_the_compilers_behind_it() -> None:
    compilers = Builder(workers=3)
    one = kernel(HERE)
    compilers.unsound = {one.id}
    service = KnownBuilder(compilers, {})
    assert (service.workers, service.toolchain) == (3, compilers.toolchain)
    assert service.inspect([one]) == compilers.inspect([one])
    assert service.inspect([one])[one.id].status is Status.BINARY


def test_code_that_a_pack_has_is_read_by_no_gate_again(built: Built) -> None:
    compilers = Builder()
    here, other = compiler.as_kernel(built), kernel(OTHER)
    compilers.unsound = {here.id, other.id}
    found = KnownBuilder(compilers, {HERE: known(built)}).inspect([here, other])
    assert {id_: one.status for id_, one in found.items()} == {
        here.id: Status.OK,
        other.id: Status.BINARY,
    }


def _unreadable() -> Built:
    raise PackError("image_hash", "the file changed")


def test_what_is_damaged_is_compiled(built: Built) -> None:
    bad = replace(built, cubin=built.cubin[:-1] + b"\1")
    short = replace(built, cubin=b"\x7fELF")
    for read in (lambda: bad, lambda: short, _unreadable):
        compilers = Builder()
        service = KnownBuilder(compilers, {HERE: known(built, read)})
        assert service.build([HERE]) == {HERE: kernel(HERE)}
        assert compilers.built == [HERE] and service.taken == 0


def test_what_the_gate_refuses_is_left_to_the_compiler(
    built: Built, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusal = Verdict("binary", Status.BINARY, "fp16 accumulator")
    monkeypatch.setattr(known_builder.binary, "check_image", lambda fields, cubin: refusal)
    compilers = Builder()
    found = KnownBuilder(compilers, {HERE: known(built)}).build([HERE])
    assert compilers.built == [HERE]
    assert isinstance(found[HERE], CompiledKernel)
