"""Says in words what the runtime decided and why: explain, counters, the configuration in force.

Called by users and the CLI, never on the way of a matmul. It asks `select` and the launcher, and
decides nothing itself.
"""

from __future__ import annotations

import contextlib
import platform
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from . import profiles, reasons, select
from .pack.manifest import Baseline, Row
from .pack.manifest_reader import Manifest
from .problem import DeviceInfo, Problem, cuda_of
from .settings import is_invariant, is_off, read_switch, settings
from .torch_compile import choice

if TYPE_CHECKING:
    import torch


def explain(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None = None,
    activation: str | None = None,
    residual: torch.Tensor | None = None,
    *,
    offsets: torch.Tensor | None = None,
) -> None:
    """Print what `matmul(a, b)` does with these tensors, and every reason for it; with bias,
    activation or residual, what `linear(a, b.t(), bias, activation, residual)` does; with
    `offsets`, and none of these, what `grouped_matmul(a, b, offsets)` does.

    The output names the kernel and its measurement, or the reason why torch runs the call. If the
    table lacks the problem, the output names the nearest M that was measured with the same N and K.
    Of a call with an epilogue it says whether one kernel computes the whole, and if not, who runs
    the product and who the rest. Where a gradient is recorded, it names what backward runs on, too.
    Nothing is multiplied. The tensors may have any shape, type and device. Raises TypeError for an
    argument that is not a tensor, and ValueError for an activation that `linear` does not take.

    Example:

        explain(x, weight.t())
        explain(x, up.weight.t(), up.bias, activation="silu")
        explain(tokens, weights, offsets=offsets)
    """
    if offsets is not None:
        if bias is not None or activation is not None or residual is not None:
            raise ValueError("explain: a grouped product has no epilogue")
        from .nn import explain_grouped

        read_switch()
        print("\n".join(explain_grouped.explain(a, b, offsets)))
        return
    if bias is None and activation is None and residual is None:
        _explain_product(a, b)
        return
    from .nn import functional

    if activation is not None:
        functional.check_activation("explain", activation, b, -1)
    epilogue = functional.epilogue_of(bias, activation, residual)
    if epilogue not in ("none", "bias"):
        addend = residual if epilogue == "residual" else bias
        if _explain_whole(a, b, addend, epilogue):
            if residual is not None and epilogue != "residual":
                print("epilogue  the residual by torch")
            return
    by_kernel = _explain_product(a, b, bias)
    said = [f"the bias by {'the kernel' if by_kernel else 'torch'}"] if bias is not None else []
    rest = [
        *([activation] if activation else []),
        *(["the residual"] if residual is not None else []),
    ]
    said += [f"{' and '.join(rest)} by torch"] if rest else []
    print(f"epilogue  {', '.join(said)}")


def _explain_whole(
    a: torch.Tensor, b: torch.Tensor, addend: torch.Tensor | None, epilogue: str
) -> bool:
    """Whether one kernel computes all of it; prints what is to be said of that."""
    from . import launcher, torch_state

    found = launcher.describe(a, b, addend, epilogue)
    read_switch()
    if is_off():
        found = "off"
    elif isinstance(found, Problem):
        found = torch_state.state(a, b, addend) or found
    if isinstance(found, str):
        text = f"{found}: {reasons.WORDS[found]}"
    else:
        try:
            choice = select.resolve(found, a.device.index)
            if choice.kernel is not None:
                print(explain_problem(found, a.device.index))
                print(f"epilogue  {epilogue} by the kernel, which rounds once")
                return True
            text = "; ".join(map(str, choice.reasons))
        except RuntimeError as error:
            text = f"no_device: {reasons.WORDS['no_device']}: {error}"
    print(f"epilogue  no kernel computes {epilogue} as a whole: {text}")
    return False


def _explain_product(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None = None) -> bool:
    """The same of the product and its bias; whether a kernel adds that."""
    from . import launcher, torch_state
    from .torch_hooks import program

    added = () if bias is None else (bias,)
    found = launcher.describe(a, b, bias, "none" if bias is None else "bias")
    read_switch()
    if is_off():
        print(reasons.by_torch("off", reasons.WORDS["off"]))
        print("without that:")
    state = found if isinstance(found, str) else torch_state.state(a, b, *added)
    if state in ("autograd", "mode") and program.is_enabled():
        print("enabled   below autograd and modes of torch the product gets what is said here")
        state = None
    if state is not None:
        print(reasons.by_torch(state, reasons.WORDS[state]))
    if not isinstance(found, Problem):
        return False
    if state is not None:
        print("without that:")
    try:
        print(explain_problem(found, a.device.index))
        if state is None and torch_state.records(a, b, *added):
            print(_explain_gradients(found, a, b))
        served = bool(added) and select.resolve(found, a.device.index).kernel is not None
    except RuntimeError as error:
        print(reasons.by_torch("no_device", f"{reasons.WORDS['no_device']}: {error}"))
        served = False
    return served and state is None and not is_off()


def _explain_gradients(p: Problem, a: torch.Tensor, b: torch.Tensor) -> str:
    """What backward multiplies, where it starts from a gradient that is stored row by row."""
    of_a, of_b, flipped = p.layout[0], p.layout[1], {"n": "t", "t": "n"}
    products = {
        "a": (p.m, p.k, p.n, "n" + flipped[of_b]) if of_a == "n" else (p.k, p.m, p.n, of_b + "t"),
        "b": (p.k, p.n, p.m, flipped[of_a] + "n") if of_b == "n" else (p.n, p.k, p.m, "t" + of_a),
    }
    lines = []
    for name, tensor in (("a", a), ("b", b)):
        if tensor.requires_grad:
            problem = Problem(*products[name], p.dtype)
            found = select.resolve(problem, a.device.index or 0, invariant=is_invariant())
            runs = (
                f"runs on {found.kernel.name}"
                if found.kernel
                else reasons.unserved_line(found.code)
            )
            lines.append(f"backward  {problem}, the gradient of {name}, {' '.join(runs.split())}")
    return "\n".join(lines)


def explain_problem(
    problem: Problem,
    device_index: int = 0,
    *,
    device: DeviceInfo | None = None,
    versions: Mapping[str, str] | None = None,
) -> str:
    """The decision for one problem as text. `device` and `versions` stand in for those of this
    process, so that a machine without a GPU can ask about another one."""
    if device is None:
        from .launcher import device_info

        device = device_info(device_index)
        versions = runtime_versions(device_index) if versions is None else versions
    invariant = is_invariant()
    found = select.resolve(problem, device_index, device, invariant=invariant)
    lines = [
        f"problem   {problem} -> {problem.out_dtype}, {problem.acc} accumulate",
        f"device    {device.name}, {device.arch}, {device.sm_count} SMs, "
        f"driver for {cuda_of(device.driver)}",
    ]
    if invariant and found.kernel is not None:
        lines.append(f"runs on   {found.kernel.name}, batch-invariant")
    elif found.kernel is not None and found.expected is not None:
        place = f" on {found.expected_on}, another card" if found.expected_on else ""
        lines.append(
            f"runs on   {found.kernel.name}, predicted: {found.expected:.3f}x torch expected{place}"
        )
    elif found.kernel is None or found.row is None or found.pack is None:
        lines.append(reasons.unserved_line(found.code))
    else:
        lines.append(f"runs on   {found.kernel.name}")
        if "by" in found.kernel.genome:  # of free source: these genes are where it came from
            said = (f"{gene} {value}" for gene, value in found.kernel.genome.items())
            lines.append(f"lineage   {', '.join(said)}")
        if found.dependent is not None:
            name = found.dependent.name
            lines.append(f"          behind our own kernels in a graph: {name}, dependent launch")
        lines += _describe_row(found.row)
        lines.append(f"profile   {_say_profile(found.row.profile, found.pack.manifest, device)}")
        lines.append(f"compiled  {_say_compiled(found.row)}")
        lines.append(f"baseline  {_compare_versions(found.pack.manifest.baseline, versions or {})}")
    lines += [f"          {reason}" for reason in found.reasons]
    if found.code in ("not_measured", "predicted"):
        lines.append(f"nearest   {_nearest(problem, device)}")
    return "\n".join(lines)


def _nearest(problem: Problem, device: DeviceInfo) -> str:
    """What was measured with the problem's weight: the next M below and the next above."""
    rows = {
        row.m: (row, manifest.policy)
        for manifest, profile in profiles.find_measured(reversed(select.find_packs().packs), device)
        for row in manifest.table
        if row.profile == profile.name and row.key[1:] == problem.key[1:]
    }
    below = [m for m in rows if m < problem.m]
    above = [m for m in rows if m > problem.m]
    found = [*([max(below)] if below else []), *([min(above)] if above else [])]
    if not found:
        return f"no M was measured with N = {problem.n}, K = {problem.k}"
    said = []
    for m in found:
        row, policy = rows[m]
        runs = row.kernel is not None and policy.clears(row)
        gain = f"a kernel, {row.hot.speedup:.3f}x torch hot" if runs else "torch"
        said.append(f"M = {m} was measured, and runs on {gain}")
    return "; ".join(said)


def _describe_row(row: Row) -> list[str]:
    return [
        f"{name:9} {t.us:.2f} us, torch {t.torch_us:.2f}, cuBLASLt {t.cublaslt_us:.2f}: "
        f"{t.speedup:.3f}x torch, at least {t.lcb:.3f}x"
        for name, t in (("hot", row.hot), ("cold", row.cold))
    ]


def _say_profile(name: str, manifest: Manifest, device: DeviceInfo) -> str:
    """By what the device is the profile of a row."""
    profile = next(each for each in manifest.device_profiles if each.name == name)
    unknown = profiles.compare(profile, device).unknown
    if not unknown:
        return f"{name}, by its SMs, L2, memory bandwidth and power limit"
    return f"{name}, by its name, SMs and L2; not compared: {', '.join(unknown)}"


def _say_compiled(row: Row) -> str:
    """What torch.compile makes of a product that a kernel runs."""
    if row.batches > 1:
        return "torch.compile calls torch's bmm, to which enable() gives the kernel"
    gain, fusion = choice.gain_us(row), choice.fusion_us(row.m, row.n)
    if gain > fusion:
        return "torch.compile calls the kernel in every mode"
    return (
        "torch.compile calls the kernel; Inductor keeps the product where max-autotune fuses what "
        f"follows, or fuses nothing with a bias: the kernel saves {gain:.1f} us, that {fusion:.1f}"
    )


def _compare_versions(baseline: Baseline, versions: Mapping[str, str]) -> str:
    """Whether the libraries that we were measured against are those of this process."""
    measured = f"torch {baseline.torch}, cuBLAS {baseline.cublas}, driver {baseline.driver}"
    changed = [
        f"{name} is {versions[name]} here"
        for name in ("torch", "cublas", "driver")
        if name in versions and versions[name] != getattr(baseline, name)
    ]
    if changed:
        return f"unverified baseline: measured against {measured}; {', '.join(changed)}"
    return f"measured against {measured}"


def runtime_versions(device_index: int) -> dict[str, str]:
    """Versions of what a row was measured against, as far as this process can tell."""
    versions = {}
    if "torch" in sys.modules:
        versions["torch"] = str(sys.modules["torch"].__version__)
    with contextlib.suppress(OSError):
        driver = Path("/sys/module/nvidia/version").read_text(encoding="ascii")
        versions["driver"] = driver.strip()
    with contextlib.suppress(RuntimeError):
        from .measure.baselines import cublaslt_version

        versions["cublas"] = cublaslt_version(device_index)
    return versions


def show_config() -> str:
    """What a bug report needs: versions, settings, packs in search order, what was refused."""
    here = settings()
    torch_module = sys.modules.get("torch")
    lines = [
        f"hgemm_packs {metadata.version('hgemm-packs')}",
        f"python      {platform.python_version()} on {platform.platform()}",
        f"torch       {torch_module.__version__ if torch_module else 'not imported'}",
        f"path        {', '.join(map(str, here.path)) or 'none'}",
        f"cache       {here.cache or 'none'}",
        f"off         {'yes' if is_off() else 'no'}",
        f"strict      {'yes' if here.strict else 'no'}",
    ]
    known = select.verify_packs()
    for pack in known.packs:
        m = pack.manifest
        lines.append(
            f"pack        {m.pack}, {m.arch}, {len(m.kernels)} kernels, "
            f"{len(m.table)} rows, {pack.path}"
        )
    lines += [f"refused     {refused.place}: {refused.error}" for refused in known.refused]
    return "\n".join(lines)
