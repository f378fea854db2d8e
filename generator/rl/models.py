"""The models that are trained: a small one made from nothing, or a folder of transformers'.

The small model is a transformer of the Llama design with a word for each gene, value and number
that its archive has. It knows nothing before its archive has taught it, no language either: it
shows that the loop learns, not how clever a language model is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hgemm_packs.generator.rl.dialogue import END, SPECIAL, use_template

#: Words: a gene with its value and the signs around them, a number, a word, a sign.
WORDS = r'\{?"\w+":(?:"\w+"|\w+|\{)?[,}]*| ?\d+\.\d+| ?\w+| ?[^\w\s]|\s'
UNKNOWN, PAD = "<unk>", "<pad>"
#: The small model: width, layers, heads, and the longest dialogue in words.
WIDTH, LAYERS, HEADS, LONGEST = 192, 4, 6, 512


def word_tokenizer(texts: Iterable[str]) -> Any:
    """A tokenizer of transformers that knows the words of `texts` and the special ones."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    known = {word for text in texts for word in re.findall(WORDS, text)}
    vocabulary = {word: i for i, word in enumerate([UNKNOWN, PAD, *SPECIAL, *sorted(known)])}
    made = Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN))
    made.pre_tokenizer = pre_tokenizers.Split(Regex(WORDS), "isolated")
    made.decoder = decoders.Fuse()
    tokenizer: Any = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=made, unk_token=UNKNOWN, pad_token=PAD, eos_token=END
    )
    tokenizer.add_special_tokens({"additional_special_tokens": list(SPECIAL)})
    return use_template(tokenizer)


def small_model(tokenizer: Any, seed: int, width: int = WIDTH, layers: int = LAYERS) -> Any:
    """A model for the tokenizer with weights drawn by `seed`."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=width,
        intermediate_size=3 * width,
        num_hidden_layers=layers,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        max_position_embeddings=LONGEST,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        tie_word_embeddings=True,
    )
    return LlamaForCausalLM(config)


def read_model(folder: Path) -> tuple[Any, Any]:
    """Model and tokenizer of a folder that `save_pretrained` wrote. Raises OSError for others."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = use_template(AutoTokenizer.from_pretrained(folder, local_files_only=True))
    return AutoModelForCausalLM.from_pretrained(folder, local_files_only=True), tokenizer
