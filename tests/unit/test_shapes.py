"""The format of problems: what a file means, and what is refused, where and why."""

from __future__ import annotations

from pathlib import Path

import pytest

from hgemm_packs.cli.console import manifests_dir
from hgemm_packs.errors import PackError
from hgemm_packs.problem import Problem
from hgemm_packs.tuning import shapes

FOLDER = manifests_dir() / "shapes"


def read(tmp_path: Path, text: str) -> shapes.Shapes:
    path = tmp_path / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return shapes.read(path)


def test_the_smallest_file_is_one_problem(tmp_path: Path) -> None:
    found = read(tmp_path, "[[problem]]\nm = 3\nn = 5\nk = 7\n")
    assert list(found.problems()) == [Problem(3, 5, 7, "nt", "f16")]


def test_every_part_in_every_layout_and_type_but_what_names_its_own(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        """
        layouts = ["nn", "nt"]
        dtypes = ["bf16"]
        m = [1, 16]
        layer = [{ n = 24, k = 8 }]
        problem = [{ m = 2, n = 3, k = 4, layout = "tn" }, { m = 5, n = 6, k = 7, dtype = "f16" }]
        grid = { m = [64], n = [64, 128], k = [32] }
        """,
    )
    expected = {
        Problem(*sides, layout, "bf16")
        for layout in ("nn", "nt")
        for sides in ((1, 24, 8), (16, 24, 8), (64, 64, 32), (64, 128, 32))
    }
    expected |= {Problem(2, 3, 4, "tn", "bf16")}
    expected |= {Problem(5, 6, 7, layout, "f16") for layout in ("nn", "nt")}
    problems = list(found.problems())
    assert set(problems) == expected and len(problems) == len(expected) == 11
    assert found.layers == (shapes.Layer("", "24x8", 24, 8),)


def test_the_example_means_what_its_comments_say() -> None:
    found = shapes.read(FOLDER / "example.toml")
    by_name = {layer.names: (layer.n, layer.k) for layer in found.layers}
    assert by_name == {
        "up": (14336, 4096),
        "classes": (1004, 4096),
        "q o": (2048, 2048),
        "k v": (512, 2048),
        "qkv": (3072, 2048),
        "gate up": (8192, 2048),
        "gate_up": (16384, 2048),
        "down": (2048, 8192),
        "lm_head": (128256, 2048),
        "adapter": (64, 2048),
    }
    assert found.m == (1, 16, 4096)
    strided = Problem(64, 512, 512, "nt", "f16", base=(8, 16, 16), packed=False)
    assert found.listed == (Problem(512, 512, 512, "nn", "bf16"), strided)
    assert set(found.sides) == {(m, 256, k) for m in (64, 128) for k in (512, 1024)}
    assert len(list(found.problems())) == 3 * 10 + 2 + 4


#: (model, layer) -> (N, K), as the weights of the published checkpoints are.
KNOWN = {
    ("Llama 3.1 8B", "qkv"): (6144, 4096),
    ("Llama 3.1 8B", "q o"): (4096, 4096),
    ("Llama 3.1 70B", "down"): (8192, 28672),
    ("Llama 4 Maverick", "mlp_down"): (5120, 16384),
    ("Qwen2.5 7B", "k v"): (512, 3584),
    ("Qwen3 0.6B", "o"): (1024, 2048),
    ("Qwen3 32B", "o"): (5120, 8192),
    ("Qwen3 30B-A3B", "expert_gate expert_up"): (768, 2048),
    ("Qwen3 235B-A22B", "expert_down"): (4096, 1536),
    ("Qwen3.5 27B", "in_proj_qkv"): (10240, 5120),
    ("Mistral Nemo 12B", "q"): (4096, 5120),
    ("Gemma 3 27B", "lm_head"): (262208, 5376),
    ("gpt-oss 20b", "gate up down"): (2880, 2880),
    ("DeepSeek V3", "q_a"): (1536, 7168),
    ("DeepSeek V3", "q_b"): (24576, 1536),
    ("DeepSeek V3", "kv_a"): (576, 7168),
    ("DeepSeek V3", "qkv_a"): (2112, 7168),
    ("DeepSeek V3", "kv_b"): (32768, 512),
    ("DeepSeek V3", "o"): (7168, 16384),
    ("DeepSeek V3", "gate up"): (18432, 7168),
    ("DeepSeek V3", "expert_gate expert_up shared_gate shared_up"): (2048, 7168),
    ("DeepSeek V3", "lm_head"): (129280, 7168),
    ("GLM-5", "kv_b"): (28672, 512),
    ("GLM-5", "o"): (6144, 16384),
}


def test_layers_follow_from_the_published_configs() -> None:
    found = shapes.read(FOLDER / "llm_layers.toml")
    by_name = {(layer.model, layer.names): (layer.n, layer.k) for layer in found.layers}
    assert {name: by_name.get(name) for name in KNOWN} == KNOWN
    assert (found.m[0], found.m[-1], found.layouts) == (1, 8192, ("nt", "nn"))
    assert all(len({each.names for each in layers}) == len(layers) for layers in _models(found))


#: Numbers of tokens at which a serving engine captures its graphs.
CAPTURED = (1, 2, 4, *range(8, 257, 8), 320, 384, 448, 512)


def test_engines_have_a_list_of_their_own_with_some_models_in_front() -> None:
    found = shapes.read(FOLDER / "llm_layers.toml")
    engines = found.of_engines()
    assert (engines.m, engines.layouts, engines.dtypes) == (CAPTURED, ("nt",), ("bf16",))
    front = list(dict.fromkeys(layer.model for layer in engines.layers))[:3]
    assert front == ["Qwen3 8B", "Qwen3 32B", "Mistral 7B v0.3"]
    assert sorted(engines.layers, key=str) == sorted(found.layers, key=str)
    rest = [layer for layer in found.layers if layer.model not in front]
    assert list(engines.layers[-len(rest) :]) == rest, "the others stay in their order"
    first = next(engines.problems())
    assert first == Problem(1, 4096, 4096, "nt", "bf16"), "q and o of Qwen3 8B"


def test_a_file_without_engines_says_so() -> None:
    with pytest.raises(PackError, match="the file has no table of engines"):
        shapes.read(FOLDER / "serving.toml").of_engines()


def _models(found: shapes.Shapes) -> list[list[shapes.Layer]]:
    by_model: dict[str, list[shapes.Layer]] = {}
    for layer in found.layers:
        by_model.setdefault(layer.model, []).append(layer)
    return list(by_model.values())


def test_shared_experts_come_from_either_field(tmp_path: Path) -> None:
    config = 'm = [1]\n[[model]]\nname = "a"\nsource = "a/a"\nhidden_size = 64\n'
    for fields in (
        "moe_intermediate_size = 24\nn_shared_experts = 2",
        "moe_intermediate_size = 24\nshared_expert_intermediate_size = 48",
    ):
        found = read(tmp_path, config + fields)
        by_name = {layer.names: (layer.n, layer.k) for layer in found.layers}
        assert by_name == {
            "expert_gate expert_up": (24, 64),
            "expert_gate_up shared_gate shared_up": (48, 64),
            "expert_down": (64, 24),
            "shared_gate_up": (96, 64),
            "shared_down": (64, 48),
        }


def test_only_the_models_that_are_asked_for() -> None:
    found = shapes.read(FOLDER / "llm_layers.toml")
    assert {layer.model for layer in found.restrict(["qwen3 *b", "Phi-4"]).layers} == {
        *("Qwen3 0.6B", "Qwen3 1.7B", "Qwen3 4B", "Qwen3 8B", "Qwen3 14B", "Qwen3 32B"),
        *("Qwen3 30B-A3B", "Qwen3 235B-A22B", "Qwen3 Coder 480B-A35B", "Phi-4"),
    }
    with pytest.raises(PackError, match="no model is called 'Lama"):
        found.restrict(["Qwen3 8B", "Lama *"])
    example = shapes.read(FOLDER / "example.toml").restrict(["*"])
    assert {layer.model for layer in example.layers} == {"Example 1B"}
    assert len(list(example.problems())) == 3 * 8, "layers alone, the problem and the grid are out"


MODEL = '[[model]]\nname = "a"\nsource = "a/a"\n'
WIDTH = MODEL + "hidden_size = 64\n"
HEADS = "num_attention_heads = 4\nnum_key_value_heads = 2\n"


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ("m = [1", "not_toml", "at {path}: "),
        ("tokens = [1]", "unknown_field", "at {path}: 'tokens' is an unknown field"),
        (
            "m = [1]\n" + WIDTH + "vocab_size = 8\n[engines]\nm = [1]\nlayouts = ['nt']\n"
            "dtypes = ['f16']\nfirst = ['b']",
            "unknown_model",
            "at {path} engines.first: no model is called 'b'",
        ),
        ("m = [1]", "bad_count", "at {path}: not 1..100000 problems"),
        ('layouts = ["nx"]', "bad_value", "at {path} layouts[0]: 'nx' is not one of 'nn', 'nt'"),
        ('dtypes = "f16"', "wrong_type", "at {path} dtypes: 'f16' is not an array"),
        ("m = [true]", "wrong_type", "at {path} m[0]: True is not an integer"),
        ("m = [0]", "out_of_bounds", "at {path} m[0]: 0 is not in 1..16777216"),
        ("[grid]\nm = [1]\nn = [8]", "missing_field", "at {path} grid: 'k' is missing"),
        ("[[layer]]\nn = 8\nk = 8", "missing_field", "layers need the numbers of tokens"),
        (
            'm = [1]\n[[layer]]\nn = 8\nk = 8\n[[layer]]\nname = "up"\nn = 8\nk = 16777217',
            "out_of_bounds",
            "at {path} layer[1].k (up): 16777217 is not in",
        ),
        (
            "[[problem]]\nm = 1\nn = 8\nk = 8\nlayuot = 'nn'",
            "unknown_field",
            "at {path} problem[0] (without a name): 'layuot' is an unknown field",
        ),
        ("problem = [1]", "wrong_type", "at {path} problem[0]: 1 is not an object"),
        (
            "[[problem]]\nm = 1048576\nn = 1048576\nk = 8",
            "out_of_bounds",
            "1048576x1048576x8 nt f16 is 2048.0 GiB of operands, at most 32 GiB",
        ),
        (
            f"[grid]\nm = {list(range(1, 201))}\nn = {list(range(1, 201))}\nk = [8, 16, 24]",
            "bad_count",
            "not 1..100000 problems",
        ),
        (MODEL, "missing_field", "at {path} model[0] (a): a model has fields of its config"),
        (
            MODEL + "intermediate_size = 64",
            "missing_field",
            "at {path} model[0] (a): 'hidden_size' is missing",
        ),
        (WIDTH + "n_shared_experts = 1", "missing_field", "'moe_intermediate_size' is missing"),
        (WIDTH + HEADS, "missing_field", "not ['num_attention_heads', 'num_key_value_heads']"),
        (WIDTH + HEADS + "q_lora_rank = 8", "missing_field", "attention is all of head_dim, "),
        (
            WIDTH + HEADS + "head_dim = 16777216",
            "out_of_bounds",
            "at {path} model[0] (a): 67108864 is not in",
        ),
        (
            WIDTH + "vocab_size = 8\n[[model.layer]]\nname = 'lm_head'\nn = 8\nk = 8",
            "duplicate_layer",
            "'lm_head' follows from the config already",
        ),
        (
            WIDTH + "vocab_size = 8\n" + WIDTH + "vocab_size = 16",
            "duplicate_model",
            "two models have the same name",
        ),
    ],
)
def test_what_is_wrong_is_told_with_its_place(
    tmp_path: Path, text: str, code: str, message: str
) -> None:
    with pytest.raises(PackError) as caught:
        read(tmp_path, text)
    assert caught.value.code == code
    assert message.format(path=tmp_path / "mine.toml") in str(caught.value)
