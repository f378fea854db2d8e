"""The driver's half of the state gate: mappings that end, SMs that are full, and the gate on real
kernels."""

from __future__ import annotations

import ctypes
import re

import pytest
import torch

from hgemm_packs import launcher
from hgemm_packs.generator.compile import compiler
from hgemm_packs.generator.compile.candidate import entry
from hgemm_packs.generator.core.spec import Status, Verdict
from hgemm_packs.generator.devices import in_process
from hgemm_packs.generator.families.base import SMEM_LIMIT_BYTES
from hgemm_packs.generator.gates import isolation
from hgemm_packs.generator.gates.isolation import Worker
from hgemm_packs.generator.gates.state import gate
from hgemm_packs.generator.gates.state.mapped import call
from hgemm_packs.generator.gates.state.neighbours import Neighbours
from hgemm_packs.generator.redteam import corpus
from tests.gpu.gates import touching

pytestmark = pytest.mark.gpu

CASES = {case.name: case for case in corpus.load()}
#: What an SM's shared memory holds, word by word, of which none was written: one CTA an SM.
LOOK = """
extern "C" __global__ void look(unsigned pattern, unsigned words, unsigned* equal, unsigned* sms) {
  extern __shared__ unsigned memory[];
  unsigned count = 0, sm;
  for (unsigned i = threadIdx.x; i < words; i += blockDim.x)
    count += ((volatile unsigned*)memory)[i] == pattern;
  atomicAdd(equal, count);
  asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
  if (threadIdx.x == 0) sms[sm] = 1;
}
"""


def test_the_ends_of_a_mapping_can_be_written() -> None:
    for element in (0, 999, -1):
        assert isolation.run(touching.touch, element, timeout_s=60) == 7


@pytest.mark.parametrize("beyond", [touching.touch_behind, touching.touch_before])
def test_an_element_beyond_is_a_fault(beyond: object) -> None:
    with pytest.raises(RuntimeError, match=r"CUDA|ILLEGAL|INVALID"):
        isolation.run(beyond, timeout_s=60)  # type: ignore[arg-type]


def test_mappings_are_used_again() -> None:
    assert isolation.run(touching.again, 1000, timeout_s=60)


@pytest.mark.parametrize("pattern", [0x7FFF7FFF, 0, 0xFFFFFFFF])
def test_a_filler_reaches_all_shared_memory_of_every_sm(pattern: int) -> None:
    from cuda.bindings import driver

    sm_count = launcher.device_info(0).sm_count
    around = Neighbours(0, sm_count, 5)
    image = compiler.build_source(LOOK, {"symbol": "look"}).cubin
    look = call(driver.cuModuleGetFunction, call(driver.cuModuleLoadData, image), b"look")
    most = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    call(driver.cuFuncSetAttribute, look, most, SMEM_LIMIT_BYTES)
    found = torch.zeros(1 + 1024, dtype=torch.int32, device="cuda")
    words = SMEM_LIMIT_BYTES // 4
    around.fill(None)
    around.fill(pattern)
    values = (pattern, words, found.data_ptr(), found[1:].data_ptr())
    types = (ctypes.c_uint32, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_void_p)
    shape = (sm_count, 1, 1, 256, 1, 1, SMEM_LIMIT_BYTES)
    stream = torch.cuda.current_stream().cuda_stream
    call(driver.cuLaunchKernel, look, *shape, stream, (values, types), 0)
    equal, *sms = found.tolist()
    assert sum(sms) == sm_count
    assert equal == sm_count * words
    around.fill(None)
    found.zero_()
    call(driver.cuLaunchKernel, look, *shape, stream, (values, types), 0)
    assert int(found[0]) < sm_count * words // 1000, "random bits are no pattern"


def test_a_busy_device_comes_to_rest() -> None:
    around = Neighbours(0, launcher.device_info(0).sm_count, 5)
    one = torch.ones(64, 64, device="cuda")
    torch.matmul(one, one)  # torch's first product takes longer than the hammer works
    torch.cuda.synchronize()
    with around.busy():
        found = one @ one
        assert not around._stream.query(), "the hammer works on"
    torch.cuda.synchronize()
    assert around._stream.query()
    assert torch.equal(found, torch.full_like(one, 64.0))


def judged(name: str) -> Verdict:
    """The verdict of the state gate alone, in a process of its own."""
    one = CASES[name].candidate
    assert one is not None
    kernel = compiler.as_kernel(compiler.build_source(one.source, one.fields))
    with Worker() as worker:
        worker.call(in_process.warm_up, 0, timeout_s=120)
        answer = worker.call(in_process.state_gate, kernel, 0, 7, timeout_s=120)
    return Verdict(**{**answer, "status": Status(answer["status"])})


HONEST = [
    name
    for name, case in CASES.items()
    if case.honest and case.candidate is not None and case.claim is None
]


@pytest.mark.parametrize("name", HONEST)
def test_honest_kernels_pass(name: str) -> None:
    verdict = judged(name)
    assert (verdict.gate, verdict.status, verdict.detail) == (gate.GATE, Status.OK, "")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("bomb_in_shared_behind", r"16640 launches in a row: \d+ elements"),
        ("stale_by_a_corner_behind", "C held "),
        ("stale_but_for_a_bit_behind", "C held "),
        ("base_of_a_rounded_down_behind", "A at a multiple of 16 bytes"),
        ("base_of_b_rounded_down_behind", "B at a multiple of 16 bytes"),
        ("reads_behind_a_when_deep_behind", "A at the end of a mapping.*illegal memory access"),
        ("reads_behind_b_when_deep_behind", "B at the end of a mapping.*illegal memory access"),
        ("reads_before_a_behind", "A at the start of a mapping.*illegal memory access"),
        ("reads_before_b_behind", "B at the start of a mapping.*illegal memory access"),
        ("writes_behind_c", "C at the end of a mapping|first"),
        # Others write where its words are: what it is refused for is chance.
        ("words_behind_the_workspace", "the workspace at the end of a mapping|in turn|first"),
    ],
)
def test_keepers_and_those_that_reach_beyond_are_refused(name: str, words: str) -> None:
    verdict = judged(name)
    assert (verdict.gate, verdict.status) == (gate.GATE, Status.NUMERIC)
    assert re.match(words, verdict.detail), verdict.detail


def test_the_gate_leaves_the_process_whole() -> None:
    """Of kernels that pass, one after the other."""
    with Worker() as worker:
        worker.call(in_process.warm_up, 0, timeout_s=120)
        for name in ("plain", "sliced", "persistent"):
            one = CASES[name].candidate
            assert one is not None
            kernel = compiler.as_kernel(compiler.build_source(one.source, one.fields))
            assert entry(kernel.fields, kernel.cubin).name == name
            answer = worker.call(in_process.state_gate, kernel, 0, 7, timeout_s=120)
            assert answer["status"] == "OK", answer["detail"]
