"""results/distribution/hub.json: what a fetch does when a Hub goes wrong, fault by fault.

    python -m benchmarks.distribution.hub_faults

The faults are those of tests/distribution/hub/faults.py, here with a blob of some megabytes and
seconds of patience instead of fractions. Needs no network and no GPU; exits 1 where a fault was not
handled.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from hgemm_packs.distribution import remote, trust  # noqa: E402
from hgemm_packs.distribution.transfer import Patience  # noqa: E402
from hgemm_packs.settings import settings  # noqa: E402
from tests.distribution import world  # noqa: E402
from tests.distribution.hub import faults, server  # noqa: E402

OUT = ROOT / "benchmarks" / "results" / "distribution" / "hub.json"
#: Bytes of each of the pack's three cubins.
CUBIN_BYTES = 1_500_000
PATIENCE = Patience(
    silence_s=2.0, head_s=4.0, window_s=3.0, attempts=3, wait_s=0.2, longest_wait_s=10.0
)


def outcomes(say: Callable[[str], None]) -> list[faults.Outcome]:
    """Every case in a world of its own."""
    found = []
    for case in faults.CASES:
        with tempfile.TemporaryDirectory() as scratch, server.serving() as here:
            place = Path(scratch)
            os.environ["HGEMM_PACKS_CACHE"] = str(place / "cache")
            settings.cache_clear()
            outcome = faults.run(case, world.make_world(here, place, CUBIN_BYTES))
        found.append(outcome)
        verdict = "handled" if outcome.handled else "NOT HANDLED"
        say(f"{verdict}: {outcome.name}: {outcome.code or 'fetched'} in {outcome.seconds} s")
    return found


def document(found: list[faults.Outcome]) -> dict[str, Any]:
    """The figures, then every outcome as it was. Paths of this run's scratch are cut out."""
    import huggingface_hub

    return {
        "faults_total": len(found),
        "faults_handled": sum(each.handled for each in found),
        "got_over": sum(each.handled and not each.code for each in found),
        "refused": sum(each.handled and bool(each.code) for each in found),
        "huggingface_hub": huggingface_hub.__version__,
        "python": platform.python_version(),
        "patience": asdict(PATIENCE),
        "outcomes": [asdict(each) for each in found],
    }


def main() -> None:
    # Nothing of the user's may vouch for a pack or speak for an account.
    with tempfile.TemporaryDirectory() as home:
        os.environ |= {"XDG_CONFIG_HOME": home, "HF_HOME": home, "HF_HUB_DISABLE_XET": "1"}
        for name in ("HGEMM_PACKS_POLICY", "HF_TOKEN", "HF_ENDPOINT"):
            os.environ.pop(name, None)
        assert trust.TrustPolicy.load() == trust.TrustPolicy()
        remote.PATIENCE = PATIENCE
        scratch = tempfile.gettempdir()
        text = json.dumps(document(outcomes(print)), indent=1)
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(text.replace(scratch, "SCRATCH") + "\n", encoding="utf-8")
    found = json.loads(text)
    print(f"{found['faults_handled']} of {found['faults_total']} handled, wrote {OUT.name}")
    sys.exit(found["faults_handled"] != found["faults_total"])


if __name__ == "__main__":
    main()
