"""Reasoner, synthesizer, profiler and verifier: by rule, and with models that say anything."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest

from hgemm_packs.generator.agents import context
from hgemm_packs.generator.agents.roles import profiler, reasoner
from hgemm_packs.generator.agents.roles.profiler import NUMBERS, Profile
from hgemm_packs.generator.agents.roles.reasoner import IDEAS, Reasoner
from hgemm_packs.generator.agents.roles.synthesizer import SOURCE, Order, Synthesizer, schema
from hgemm_packs.generator.agents.roles.verifier import Verifier
from hgemm_packs.generator.agents.words import MODEL, RULE, Hypothesis, Proposed
from hgemm_packs.generator.core.space import Space
from hgemm_packs.generator.core.spec import Choice, DeviceFacts
from hgemm_packs.generator.devices.sim import SimDevice
from hgemm_packs.generator.evaluator.candidate import Candidate
from hgemm_packs.generator.evaluator.evaluator import Evaluator
from hgemm_packs.generator.families import FAMILIES
from hgemm_packs.generator.llm.words import ChatError
from hgemm_packs.generator.search.analytic.roofline import BOTTLENECKS
from hgemm_packs.problem import Problem

from .grounds import PROBLEM, as_json, attempt, chat, ground

RING = Hypothesis("a deeper ring", "sm90_wgmma", ("stages",))
TINY = 'extern "C" __global__ void tiny(const u16* a) {\n  int x = 1;\n}\n'


def test_the_rule_has_ideas_for_every_bottleneck_and_every_gene_of_them_is_one() -> None:
    assert set(IDEAS) == {name.replace("-", " ") for name in BOTTLENECKS}
    known = {gene for family in FAMILIES.values() for gene in family.genes}
    named = {gene for ideas in IDEAS.values() for _, genes in ideas for gene in genes}
    assert named <= known


@pytest.mark.parametrize("kind", [*IDEAS, "unknown"])
def test_the_rule_gives_distinct_hypotheses_that_their_families_can_test(kind: str) -> None:
    found, failed = Reasoner(ground()).hypotheses(Profile(kind, {}), 8)
    assert failed == "" and len(found) == 8 == len({each.key for each in found})
    for each in found:
        assert each.origin == RULE and set(each.genes) <= set(FAMILIES[each.family].genes)
    again, _ = Reasoner(ground()).hypotheses(Profile(kind, {}), 8, known=found)
    assert again and not {each.key for each in again} & {each.key for each in found}


def test_the_rule_ends() -> None:
    role, known = Reasoner(ground()), []
    while found := role.hypotheses(None, 10, known=known)[0]:
        known += found
    assert len(known) == len({each.key for each in known}) > 20


def test_a_models_hypotheses_come_first_and_the_rule_fills_up() -> None:
    said = as_json(
        hypotheses=[
            {"words": "  ring ", "family": "sm90_wgmma", "genes": ["stages", "stages", "x", 3]},
            {"words": "the same", "family": "sm90_wgmma", "genes": ["stages"]},
            {"words": "no such family", "family": "sm80", "genes": ["stages"]},
            {"words": "no such gene", "family": "sm90_wgmma", "genes": ["colour"]},
            {"words": "layout is the problem's", "family": "sm90_wgmma", "genes": ["layout"]},
            {"words": 3, "family": "sm90_wgmma", "genes": ["stages"]},
            "ring",
        ]
    )
    found, failed = Reasoner(ground(), chat(lambda _: said)).hypotheses(None, 3)
    assert failed == ""
    assert found[0] == Hypothesis("ring", "sm90_wgmma", ("stages",), MODEL)
    assert [each.origin for each in found] == [MODEL, RULE, RULE]


@pytest.mark.parametrize("text", ["", "I cannot.", "[]", '{"hypotheses": 3}', '{"x": []}'])
def test_a_model_that_says_nothing_leaves_it_to_the_rule(text: str) -> None:
    by_rule = Reasoner(ground()).hypotheses(None, 4)
    assert Reasoner(ground(), chat(lambda _: text)).hypotheses(None, 4) == by_rule


def test_a_server_that_fails_leaves_it_to_the_rule_and_says_so() -> None:
    def fail(_: Any) -> str:
        raise ChatError("nobody there")

    found, failed = Reasoner(ground(), chat(fail)).hypotheses(None, 4)
    assert failed == "nobody there" and len(found) == 4


def test_hypotheses_about_source_are_words() -> None:
    said = as_json(hypotheses=[{"words": "use wgmma"}, {"words": "Use  WGMMA"}])
    found, _ = Reasoner(ground(), chat(lambda _: said), ()).hypotheses(Profile("tensor", {}), 2)
    assert found == [
        Hypothesis("use wgmma", origin=MODEL),
        Hypothesis("the tensor cores wait between tiles"),
    ]


def start() -> tuple[Choice, Any]:
    """A wgmma choice of the space, and the attempt that it was."""
    choice = next(c for c in ground().ranked if c.family == "sm90_wgmma")
    candidate = {"family": choice.family, "genome": choice.genome}
    return choice, attempt(1, candidate=candidate, key="start")


def test_the_rule_changes_the_genes_of_the_hypothesis_first() -> None:
    choice, parent = start()
    found = Synthesizer(ground()).propose(Order(RING, parent), 3)
    for each in found:
        assert each.operator == "genome" and each.parent == "start" and each.candidate
        changed = {g for g, v in each.candidate.genome.items() if choice.genome[g] != v}
        assert changed == {"stages"}
    assert len({each.candidate.key for each in found if each.candidate}) == 3


def test_the_rule_proposes_nothing_that_was_tried_and_comes_to_an_end() -> None:
    here, tried = ground(Problem(64, 64, 64, "nt", "f16")), set[str]()
    synthesizer = Synthesizer(here)
    hypothesis = Hypothesis("all of it", here.families[0], ("stages",))
    while found := synthesizer.propose(Order(hypothesis, tried=tried), 50):
        keys = {each.candidate.key for each in found if each.candidate}
        assert not keys & tried
        tried |= keys
    assert len(tried) == sum(c.family == here.families[0] for c in here.ranked)


def test_without_a_parent_the_rule_begins_with_what_the_model_likes() -> None:
    (found,) = Synthesizer(ground()).propose(Order(RING), 1)
    choice, _ = start()
    candidate = Candidate.of_genome(choice.family, choice.genome)
    said = json.dumps({"diagnosis": RING.words, **candidate.document()})
    assert found == Proposed(candidate, "seed", said=said)


def test_a_schema_admits_the_genomes_of_a_family_and_no_others() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    choice, _ = start()
    genome = {g: v for g, v in choice.genome.items() if g not in ("layout", "dtype")}
    document = {"diagnosis": "d", "family": choice.family, "genome": genome}
    asked = schema(ground().space, choice.family)
    jsonschema.validate(document, asked)
    for wrong in ({"stages": 99}, {"colour": 1}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**document, "genome": {**genome, **wrong}}, asked)


def test_of_a_recording_a_schema_admits_only_values_that_were_recorded() -> None:
    """A model of 135 million parameters that was held to all values of the genes named no kernel
    that was recorded, and none that was valid."""
    jsonschema = pytest.importorskip("jsonschema")
    every = [choice for choice in ground().space.core if choice.family == "sm90_wgmma"]
    listed = [choice for choice in every if choice.genome["stages"] in (3, 4)]
    space = Space(PROBLEM, only=[*listed, ground().space.core[0]])
    asked = schema(space, "sm90_wgmma")["properties"]["genome"]
    deeper = next(choice for choice in every if choice.genome["stages"] == 5)
    for choice, known in ((listed[0], True), (deeper, False)):
        genome = {g: v for g, v in choice.genome.items() if g not in ("layout", "dtype")}
        assert jsonschema.Draft202012Validator(asked).is_valid(genome) is known
    assert asked["properties"]["raster"]["enum"] == ["m"]
    shown = context.genes(space, ["sm90_wgmma"]).text
    assert "  stages: [3, 4]\n" in shown and '  raster: ["m"]\n' in shown


def test_a_model_is_held_to_hypotheses_about_genes_of_the_family_that_can_change() -> None:
    """The small model named genes of one family for another, and every hypothesis was dropped."""
    jsonschema = pytest.importorskip("jsonschema")
    choices = ground().space.core
    one = next(choice for choice in choices if choice.family == "sm90_splitk")
    space = Space(PROBLEM, only=[*(c for c in choices if c.family == "sm90_wgmma"), one])
    asked = jsonschema.Draft202012Validator(reasoner.schema(space, ["sm90_wgmma", one.family], 2))

    def admits(**fields: Any) -> bool:
        return bool(asked.is_valid({"hypotheses": [{"words": "w", **fields}]}))

    assert admits(family="sm90_wgmma", genes=["stages", "tile_k"])
    assert not admits(family="sm90_wgmma", genes=["slices"])  # a gene of sm90_splitk
    assert not admits(family="sm90_wgmma", genes=["raster"])  # listed with one value
    assert not admits(family="sm90_splitk", genes=["slices"])  # one kernel, with nothing to change
    alone = reasoner.schema(Space(PROBLEM, only=[one]), [one.family], 2)
    jsonschema.validate({"hypotheses": [{"words": "w"}]}, alone)


def synthesize(text: str, order: Order, kind: str = "genome") -> Proposed:
    (found,) = Synthesizer(ground(), chat(lambda _: text), kind).propose(order, 1)
    return found


def test_a_model_changes_genes_of_the_parent() -> None:
    choice, parent = start()
    other = next(v for v in FAMILIES["sm90_wgmma"].genes["stages"] if v != choice.genome["stages"])
    found = synthesize(as_json(diagnosis="d", genome={"stages": other}), Order(RING, parent))
    assert found.candidate and found.candidate.genome == {**choice.genome, "stages": other}
    assert (found.operator, found.parent) == ("genome", "start")


def test_of_another_family_a_genome_stands_alone() -> None:
    _, parent = start()
    found = synthesize(as_json(family="sm90_gemv", genome={"warps_n": 1}), Order(RING, parent))
    assert found.candidate == Candidate.of_genome("sm90_gemv", {"warps_n": 1})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "the model refused: it said nothing"),
        ("Sorry.", "not the JSON object"),
        ('{"genome": 3}', "the answer is"),
        ('{"family": 1, "genome": {}}', "the answer is"),
    ],
)
def test_an_answer_that_is_no_genome_is_words(text: str, words: str) -> None:
    found = synthesize(text, Order(RING))
    assert found.candidate is None and words in found.words


def test_a_model_writes_a_file_then_edits_it() -> None:
    words = Hypothesis("simple first", origin=MODEL)
    text = f'Plain.\n```cuda\n{TINY}```\nRECORD: {{"block": 32}}'
    first = synthesize(text, Order(words), SOURCE)
    assert first.candidate == Candidate.of_source(TINY, {"block": 32}, "tiny")
    assert first.operator == "source"
    parent = attempt(1, candidate=first.candidate.document(), key="first")
    edit = "<<<<<<< SEARCH\n  int x = 1;\n=======\n  int x = 2;\n>>>>>>> REPLACE"
    second = synthesize(edit + '\nRECORD: {"smem_bytes": 16}', Order(words, parent), SOURCE)
    record = {"block": 32, "smem_bytes": 16}
    assert second.candidate == Candidate.of_source(TINY.replace("= 1", "= 2"), record, "tiny")
    assert (second.operator, second.parent) == ("edit", "first")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("<<<<<<< SEARCH\na\n=======\nb\n>>>>>>> REPLACE", "there is no file to edit"),
        ("no code", "0 code blocks"),
        ("```\n__global__ void f() {}\n```", "0 extern"),
        (f"```\n{TINY}```\nRECORD: 3", "one JSON object"),
    ],
)
def test_an_answer_that_is_no_source_is_words(text: str, words: str) -> None:
    found = synthesize(text, Order(Hypothesis("w")), SOURCE)
    assert found.candidate is None and words in found.words


def test_source_wants_a_model() -> None:
    with pytest.raises(ValueError, match="only a model writes source"):
        Synthesizer(ground(), None, SOURCE)


def test_a_profile_has_the_ten_numbers_in_their_order() -> None:
    choice, _ = start()
    device = DeviceFacts("H", "sm_90a", 132, 1 << 26, peak_tflops=1000.0, peak_gbps=4000.0)
    facts = {"bottleneck": "tail wave", "efficiency": 0.25, "registers": 168}
    problem = Problem(4096, 4096, 4096, "nt", "f16")
    measured = attempt(us=200.0, speedup=0.9, facts=facts)
    code = {"registers": 168.0, "mma_share": 0.02}
    found = profiler.profile(choice, problem, device, measured, code)
    assert found.kind == "tail wave" and tuple(found.numbers) == NUMBERS and len(NUMBERS) == 10
    fields = FAMILIES["sm90_wgmma"].fields(choice.genome)
    tiles = 4096 // fields["grid"]["tile_m"] * (4096 // fields["grid"]["tile_n"])
    numbers = found.numbers
    assert numbers["waves"] == tiles / (132 * numbers["ctas_per_sm"])
    assert numbers["tensor_share"] == pytest.approx(2 * 4096**3 / 1e9 / 200)
    assert numbers["memory_share"] == pytest.approx(3 * 2 * 4096**2 / 4e6 / 200)
    assert (numbers["us"], numbers["speedup_over_torch"], numbers["registers"]) == (200, 0.9, 168)


def test_an_unmeasured_kernel_has_the_kind_of_the_analytic_model() -> None:
    choice, _ = start()
    found = profiler.profile(choice, PROBLEM, ground().device)
    assert found.kind in {name.replace("-", " ") for name in BOTTLENECKS}
    assert set(found.numbers) == {"waves", "idle_share_of_last_wave", "ctas_per_sm"}


def test_the_code_of_a_kernel_is_counted() -> None:
    choice = next(c for c in ground().ranked if c.family == "sm90_direct")
    found = profiler.code_facts(choice)
    assert 16 <= found["registers"] <= 255 and 0.0 < found["mma_share"] < 1.0


def test_the_verifier_asks_the_gates_once_for_each_candidate() -> None:
    asked: list[str] = []

    class Counting(Evaluator):
        def evaluate(self, candidate: Candidate, problem: Problem, *more: Any) -> Any:
            asked.append(candidate.key)
            return super().evaluate(candidate, problem, *more)

    choice, _ = start()
    verifier = Verifier(Counting(SimDevice(3)), PROBLEM)
    one = Proposed(Candidate.of_genome(choice.family, choice.genome), "seed")
    at = {"round": 0, "place": 0, "branch": 0}
    first = verifier.verify(one, known=set(), **at)
    assert first.correct and first.us and first.speedup == pytest.approx(first.score)
    assert verifier.verify(one, known=set(), **at) == first and len(asked) == 1
    again = verifier.verify(one, known={first.key}, **at)
    assert (again.status, again.correct, again.score) == ("TRIED", False, 0.0)
    none = verifier.verify(Proposed(None, "genome", "why"), known=set(), **at)
    assert (none.status, none.words, none.key) == ("NO_ANSWER", "why", "")
    infinite = Proposed(Candidate.of_genome("sm90_gemv", {"unroll": float("nan")}), "genome")
    assert verifier.verify(infinite, known=set(), **at).status == "NO_ANSWER"


def test_the_seeds_of_rounds_differ() -> None:
    orders = [Order(RING, seed=seed) for seed in (0, 10, 1000)]
    model = chat(lambda request: as_json(genome={}))
    synthesizer = Synthesizer(ground(), model)
    for order in orders:
        synthesizer.propose(order, 2)
    seeds = [request.seed for request in model.transport.requests]  # type: ignore[union-attr]
    assert seeds == [0, 1, 10, 11, 1000, 1001] and all(a < b for a, b in pairwise(seeds))
