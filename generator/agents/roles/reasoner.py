"""The reasoner: from what limits a kernel to k hypotheses of what would make it faster, no two
alike.

With a model it asks for them, and takes from the rule what the model does not give; without one the
rule gives all. It proposes no kernel.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Sequence

from hgemm_packs.generator.agents import answers, context, schemas
from hgemm_packs.generator.agents.context import Part, Prompt
from hgemm_packs.generator.agents.ground import Ground
from hgemm_packs.generator.agents.roles.profiler import NUMBERS, Profile
from hgemm_packs.generator.agents.schemas import tunable
from hgemm_packs.generator.agents.words import MODEL, Attempt, Hypothesis
from hgemm_packs.generator.core.space import Space
from hgemm_packs.generator.devices.counters import Counters
from hgemm_packs.generator.families import FAMILIES
from hgemm_packs.generator.llm.chat import Chat
from hgemm_packs.generator.llm.words import BudgetSpent, ChatError

#: Genes that one hypothesis of a model may be about.
MOST_GENES = 4
#: What each bottleneck makes worth a try: words, and genes in the order of their weight.
IDEAS: dict[str, tuple[tuple[str, tuple[str, ...]], ...]] = {
    "latency": (
        ("it starts late: fewer or smaller stages begin sooner", ("stages", "tile_k", "k_slice")),
        (
            "too few CTAs share the work: K over more of them",
            ("split", "slices", "split_k", "cluster_k"),
        ),
        ("smaller tiles make more CTAs", ("tile_m", "tile_n", "mi", "warps_m", "warps_n")),
        ("more CTAs on an SM hide each other's beginning and end", ("ctas_per_sm", "consumers")),
    ),
    "bandwidth": (
        ("more copies under way: a deeper ring", ("stages", "unroll", "batch")),
        ("operands are read too often: other tiles", ("tile_m", "tile_n")),
        (
            "CTAs that share lines should run together",
            ("raster", "group", "cluster_m", "cluster_n"),
        ),
        ("stores hold the loads back", ("epilogue", "streaming", "bulk_blocks")),
    ),
    "tensor": (
        ("the tensor cores wait between tiles", ("schedule", "consumers", "persistent")),
        ("larger tiles feed each product from fewer loads", ("tile_m", "tile_n", "tile_k")),
        ("the ring runs dry", ("stages", "tile_k")),
        ("the store of one tile delays the next", ("epilogue", "bulk_blocks", "persistent")),
    ),
    "tail wave": (
        ("the last wave is empty: tiles that divide C better", ("tile_m", "tile_n")),
        ("a split of K fills the last wave", ("split", "slices", "split_k", "cluster_k")),
        ("a persistent grid has no tail of its own", ("persistent", "schedule")),
        ("two CTAs an SM halve the wave", ("ctas_per_sm", "stages")),
    ),
}


def schema(space: Space, families: Sequence[str], k: int) -> schemas.Schema:
    """The JSON schema of the answer: each hypothesis about genes of its own family that can change.
    Without families hypotheses are of words alone."""
    kinds = []
    for name in families:
        genes = [gene for gene, values in schemas.values(space, name).items() if len(values) > 1]
        if genes:
            some = schemas.some(schemas.one_of(genes), MOST_GENES)
            fields = {"words": schemas.WORDS, "family": schemas.one_of([name]), "genes": some}
            kinds.append(schemas.record(fields))
    one = {"anyOf": kinds} if kinds else schemas.record({"words": schemas.WORDS})
    return schemas.record({"hypotheses": schemas.some(one, k)})


class Reasoner:
    """Makes hypotheses; without a `chat`, by the rule. They are about genomes of these `families`,
    by default those of the ground; of none, about source."""

    def __init__(
        self, ground: Ground, chat: Chat | None = None, families: Sequence[str] | None = None
    ) -> None:
        self._ground, self._chat = ground, chat
        self._families = ground.families if families is None else list(families)

    def hypotheses(
        self,
        profile: Profile | None,
        k: int,
        *,
        attempts: Sequence[Attempt] = (),
        closed: Sequence[tuple[Hypothesis, str]] = (),
        known: Collection[Hypothesis] = (),
        seed: int = 0,
    ) -> tuple[list[Hypothesis], str]:
        """At most `k` hypotheses that are unlike `known` and unlike each other, none when there is
        nothing left to try; and why the model gave none, where it did not answer. Raises
        BudgetSpent."""
        taken = {each.key for each in known}
        asked, failed = self._ask(profile, k, attempts, closed, seed)
        offers = itertools.chain(asked, self.rule(profile))
        found: list[Hypothesis] = []
        for each in offers:
            if each.key not in taken:
                taken.add(each.key)
                found.append(each)
            if len(found) == k:
                break
        return found, failed

    def rule(self, profile: Profile | None) -> Iterator[Hypothesis]:
        """By the bottleneck, for each family of the space in the order in which the analytic model
        likes them: each idea that has a gene there. First one idea a family, then the next."""
        kind = profile.kind if profile else ""
        ideas = IDEAS.get(kind) or tuple(itertools.chain(*IDEAS.values()))
        for place in range(len(ideas)):
            if not self._families:
                yield Hypothesis(ideas[place][0])
            for at, family in enumerate(self._families):
                words, genes = ideas[(place + at) % len(ideas)]
                own = tuple(gene for gene in genes if gene in FAMILIES[family].genes)
                if own:
                    yield Hypothesis(f"{family}: {words}", family, own)

    def prompt(
        self,
        profile: Profile | None,
        k: int,
        attempts: Sequence[Attempt] = (),
        closed: Sequence[tuple[Hypothesis, str]] = (),
    ) -> Prompt:
        """What the model is asked."""
        ground = self._ground
        parts = [
            context.task(ground.problem, ground.device),
            context.note("architecture", "The architecture"),
            context.genes(ground.space, self._families) if self._families else None,
            context.examples(ground.examples(attempts)),
            profile and describe(profile),
            profile and profile.counters and counted(profile.counters),
            context.dead_ends(closed),
            Part("Asked", f"Give {k} hypotheses as JSON.", "the reasoner"),
        ]
        rules = context.note("reasoner_rules", "Rules")
        return Prompt("reasoner", rules, tuple(part for part in parts if part))

    def _ask(
        self,
        profile: Profile | None,
        k: int,
        attempts: Sequence[Attempt],
        closed: Sequence[tuple[Hypothesis, str]],
        seed: int,
    ) -> tuple[list[Hypothesis], str]:
        if self._chat is None:
            return [], ""
        messages = self.prompt(profile, k, attempts, closed).messages()
        asked = schema(self._ground.space, self._families, k)
        try:
            replies = self._chat.complete(messages, temperature=0.7, schema=asked, seed=seed)
        except BudgetSpent:
            raise
        except ChatError as error:
            return [], str(error)
        return read(replies[0].text, self._families), ""


def describe(profile: Profile) -> Part:
    """The profile as a part of a prompt."""
    order = {name: profile.numbers[name] for name in NUMBERS if name in profile.numbers}
    figures = {"limited by": profile.kind, **order}
    return context.facts("What limits the best kernel so far", figures, "the profiler")


def counted(counters: Counters) -> Part:
    """What a GPU counted, as a part of a prompt."""
    stalls = {f"warps wait for {name}, %": share for name, share in counters.stalls}
    title = "What the GPU counted in one launch of that kernel, caches cold"
    return context.facts(title, {**counters.numbers, **stalls}, "Nsight Compute")


def read(text: str, families: Collection[str]) -> list[Hypothesis]:
    """The hypotheses of a reply that can be tested: of a family, about genes that it has; where no
    families are given, words. All else is left out, for a model's text may be anything."""
    try:
        listed = answers.read_object(text).get("hypotheses")
    except answers.Unclear:
        return []
    found = []
    for each in listed if isinstance(listed, list) else ():
        if not isinstance(each, dict):
            continue
        words, name, genes = each.get("words"), each.get("family"), each.get("genes")
        if not isinstance(words, str) or not words.strip():
            continue
        words = words.strip()[:200]
        if not families:
            found.append(Hypothesis(words, origin=MODEL))
            continue
        if not isinstance(name, str) or name not in families or not isinstance(genes, list):
            continue
        own = tuple(dict.fromkeys(g for g in genes if isinstance(g, str) and g in tunable(name)))
        if own:
            found.append(Hypothesis(words, name, own, MODEL))
    return found
