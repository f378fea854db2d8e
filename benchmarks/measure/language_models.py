"""Language models of transformers in their published widths, with few layers and random weights.

Used by benchmarks/measure/models.py: a model twice with the same weights, torch's linear layers and
ours, and what a step of serving asks of it. transformers is imported when the first model is made;
5.17 and 5.23 were tried.
"""

from __future__ import annotations

import contextlib
import copy
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

import hgemm_packs

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
#: Positions that each sequence of a decode step has, its new token among them.
CONTEXT = 512
WEIGHT_STD = 0.02
#: Sequences of the step that says what rounding does to logits.
ROUNDING_TOKENS = 8

#: Published sizes: transformers' name of the architecture, and the fields of its config.json.
MODELS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "Llama 3.1 8B": (
        "llama",
        {
            "hidden_size": 4096,
            "intermediate_size": 14336,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "vocab_size": 128256,
        },
    ),
    "Qwen3 8B": (
        "qwen3",
        {
            "hidden_size": 4096,
            "intermediate_size": 12288,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "vocab_size": 151936,
        },
    ),
    "Qwen2.5 7B": (
        "qwen2",
        {
            "hidden_size": 3584,
            "intermediate_size": 18944,
            "num_attention_heads": 28,
            "num_key_value_heads": 4,
            "vocab_size": 152064,
        },
    ),
    "Mistral Small 24B": (
        "mistral",
        {
            "hidden_size": 5120,
            "intermediate_size": 32768,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "vocab_size": 131072,
            "sliding_window": None,
        },
    ),
    "gpt-oss 20b": (
        "gpt_oss",
        {
            "hidden_size": 2880,
            "intermediate_size": 2880,
            "num_attention_heads": 64,
            "num_key_value_heads": 8,
            "head_dim": 64,
            "vocab_size": 201088,
            "num_local_experts": 32,
            "num_experts_per_tok": 4,
            "sliding_window": 128,
        },
    ),
}


class Cache:
    """Keys and values of all layers, where transformers looks for them. A step's own take the last
    places, each time the same; those before are random. `pasts`: how many those are, by layer."""

    is_compileable = False

    def __init__(self, pasts: Sequence[int], dtype: torch.dtype, seed: int) -> None:
        self._pasts, self._dtype, self._seed = pasts, dtype, seed
        self._kept: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def update(
        self, keys: torch.Tensor, values: torch.Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if layer_idx not in self._kept:
            self._kept[layer_idx] = self._made(keys, layer_idx)
        kept, new = self._kept[layer_idx], keys.shape[-2]
        for whole, part in zip(kept, (keys, values), strict=True):
            whole[..., -new:, :].copy_(part)
        return kept

    def _made(self, like: torch.Tensor, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        generator = torch.Generator(like.device).manual_seed(self._seed + layer)
        rows, heads, new, dim = like.shape
        shape = (rows, heads, self._pasts[layer] + new, dim)

        def one() -> torch.Tensor:
            # Values of the model's type, also where it runs in float32.
            made = torch.randn(shape, generator=generator, dtype=self._dtype, device=like.device)
            made = made.to(like.dtype)
            # Else torch.compile takes it for an input that changes and gives up its graphs.
            torch._dynamo.mark_static_address(made)
            return made

        return one(), one()

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self._pasts[layer_idx]

    get_query_offset = get_seq_length

    def get_mask_sizes(self, query_length: int, layer_idx: int = 0) -> tuple[int, int]:
        return self._pasts[layer_idx] + query_length, 0


def unmasked_attention() -> str:
    """torch's fused attention by a name of its own, for which transformers makes no masks. In a
    capture it would make one for tokens that all see the whole cache, and no fused attention takes
    it: a step of 100 tokens of Llama 3.1 8B came to 16 ms for 8. No engine serves so."""
    from transformers import AttentionInterface
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    AttentionInterface.register("sdpa_unmasked", sdpa_attention_forward)
    return "sdpa_unmasked"


class Pair:
    """One model twice, with the same weights in memory: as it is, and with linear layers of ours.
    `changes` replace fields of its configuration."""

    def __init__(
        self, name: str, dtype: str, layers: int, device: torch.device, seed: int, **changes: Any
    ) -> None:
        from transformers import AutoConfig, AutoModelForCausalLM

        kind, sizes = MODELS[name]
        own = {"num_hidden_layers": layers, "tie_word_embeddings": False}
        config = AutoConfig.for_model(kind, **{**sizes, **own, **changes})
        # gpt-oss adds a column to the scores, which no fused attention of torch does.
        attention = "eager" if kind == "gpt_oss" else unmasked_attention()
        with device:
            made = AutoModelForCausalLM.from_config(
                config, dtype=DTYPES[dtype], attn_implementation=attention
            )
        self.device, self.seed, self.dtype = device, seed, DTYPES[dtype]
        self.torch = made.eval()
        self._fill()
        held = {id(each): each for each in (*made.parameters(), *made.buffers())}
        self.ours = copy.deepcopy(made, held)
        hgemm_packs.optimize(self.ours)
        self.rounding = self._rounding()

    @torch.no_grad()
    def _fill(self) -> None:
        generator = torch.Generator(self.device).manual_seed(self.seed)
        for name, weight in self.torch.named_parameters():
            if "norm" in name:
                weight.fill_(1.0)
            else:
                weight.normal_(0.0, WEIGHT_STD, generator=generator)

    def _rounding(self) -> float:
        """How far torch's logits are off a float32 run."""
        exact = copy.deepcopy(self.torch).float()
        with torch.inference_mode(), one_routing(self.torch, exact):
            logits, wanted = (
                Step(self, "decode", ROUNDING_TOKENS)(model) for model in (self.torch, exact)
            )
        return apart(logits, wanted)

    def has_experts(self) -> bool:
        """Whether a router chooses who computes for a token."""
        return next(routers(self.torch), None) is not None

    def logits_of_one_routing(self, step: Step) -> dict[str, torch.Tensor]:
        """Of an eager step of both models, with torch's choice of experts in both."""
        with one_routing(self.torch, self.ours):
            return {name: step(getattr(self, name)).clone() for name in ("torch", "ours")}

    def never_ours(self) -> Counter[str]:
        """Products of a step that no layer of ours is asked for: weights that are no linear
        layer's."""
        linear = {
            id(layer.weight) for layer in self.torch.modules() if type(layer) is torch.nn.Linear
        }
        embeddings = id(self.torch.get_input_embeddings().weight)
        found: Counter[str] = Counter()
        for name, weight in self.torch.named_parameters():
            if weight.ndim < 2 or name.endswith("bias") or id(weight) == embeddings:
                continue
            found["no linear layer"] += id(weight) not in linear
        return found


def routers(model: torch.nn.Module) -> Iterator[torch.nn.Module]:
    """The modules that choose experts, by transformers' name of them, from the first layer on."""
    return (module for name, module in model.named_modules() if name.endswith(".router"))


@contextlib.contextmanager
def one_routing(first: torch.nn.Module, second: torch.nn.Module) -> Iterator[None]:
    """A step of `second` sends each token to the experts of the step of `first` just before it.

    Two experts may be wanted alike. Then a rounding decides, and logits move by more than any
    rounding does: 0.1 of their norm, where float16 alone makes 0.005.
    """
    chosen: dict[int, Any] = {}

    def keep(i: int) -> Any:
        def hook(module: Any, inputs: Any, output: Any) -> None:
            chosen[i] = output

        return hook

    def give(i: int) -> Any:
        def hook(module: Any, inputs: Any, output: Any) -> Any:
            return tuple(x.to(own.dtype) for x, own in zip(chosen[i], output, strict=True))

        return hook

    with contextlib.ExitStack() as hooks:
        for i, module in enumerate(routers(first)):
            hooks.callback(module.register_forward_hook(keep(i)).remove)
        for i, module in enumerate(routers(second)):
            hooks.callback(module.register_forward_hook(give(i)).remove)
        yield


class Step:
    """What a model is asked: ids, positions, masks, and a cache that both arms write alike."""

    def __init__(self, pair: Pair, phase: str, tokens: int) -> None:
        config, device = pair.torch.config, pair.device
        rows, new = (tokens, 1) if phase == "decode" else (1, tokens)
        past = CONTEXT - 1 if phase == "decode" else 0
        generator = torch.Generator(device).manual_seed(pair.seed)
        shape = (rows, new)
        self._ids = torch.randint(config.vocab_size, shape, generator=generator, device=device)
        self._positions = torch.arange(past, past + new, device=device)[None]
        self._masks, pasts = None, [past] * config.num_hidden_layers
        if config.model_type == "gpt_oss":
            self._masks = masks(new, config.sliding_window, pair.dtype, device)
            for i, kind in enumerate(config.layer_types):
                if kind == "sliding_attention":
                    pasts[i] = min(past, config.sliding_window - 1)
        self._cache = Cache(pasts, pair.dtype, pair.seed)

    def __call__(self, model: Any) -> torch.Tensor:
        """The logits of the last position of each sequence."""
        logits: torch.Tensor = model(
            input_ids=self._ids,
            position_ids=self._positions,
            attention_mask=self._masks,
            past_key_values=self._cache,
            use_cache=True,
            logits_to_keep=1,
        ).logits
        return logits


def masks(
    new: int, window: int, dtype: torch.dtype, device: torch.device
) -> dict[str, torch.Tensor | None]:
    """What unfused attention adds to its scores, which transformers would make in each step. A
    single token sees all that its layer's cache has."""
    if new == 1:
        return {"full_attention": None, "sliding_attention": None}
    at = torch.arange(new, device=device)
    back = at[:, None] - at[None]

    def mask(reach: int) -> torch.Tensor:
        zeros = torch.zeros(new, new, dtype=dtype, device=device)
        return zeros.masked_fill_((back < 0) | (back >= reach), torch.finfo(dtype).min)[None, None]

    return {"full_attention": mask(new), "sliding_attention": mask(window)}


def apart(found: torch.Tensor, exact: torch.Tensor) -> float:
    """The distance of two results over the norm of the second; NaN where either has one."""
    exact = exact.float()
    return float((found.float() - exact).norm() / exact.norm())
