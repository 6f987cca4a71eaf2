"""Small models of different kinds, with random weights and a tokenizer of their own, written like repositories.

Random weights are enough to compare numbers with; what they say is noise. The weights are larger than usual so that a
mask that is ignored or a position that is off by one shows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

TEXTS = (
    "The cat sat on the mat in the warm afternoon sun and slept.",
    "Rain fell.",
    "A quick brown fox jumps over the lazy dog near the river bank today.",
    "Why do birds sing?",
    "The train to the north leaves at nine and arrives before noon, if the snow allows.",
    "She bought bread, cheese and two apples at the market.",
    "Stars are far away.",
    "The history of the lighthouse begins in a storm long ago, when a ship was lost.",
    "What is the capital of France?",
    "Every morning the baker opens his shop at six and greets the first child on her way to school.",
)
"""Rows for every task: of different lengths, ten of them, so that capture and held-out rows are disjoint."""

SMALL = {
    "vocab_size": 320,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "initializer_range": 0.2,
}


@dataclass(frozen=True)
class Kind:
    """One architecture of the zoo."""

    name: str
    auto_class: str
    config: Callable[[], Any]
    special: bool = False
    """Whether the tokenizer puts a start and an end token around a text."""


def _config(cls: str, **changes: Any) -> Callable[[], Any]:
    return lambda: getattr(transformers, cls)(**{**SMALL, **changes})


KINDS = (
    Kind("bert", "AutoModel", _config("BertConfig"), special=True),
    Kind(
        "deberta-v2",
        "AutoModelForMaskedLM",
        _config(
            "DebertaV2Config",
            relative_attention=True,
            max_relative_positions=-1,
            pos_att_type="p2c|c2p",
            position_biased_input=False,
        ),
        special=True,
    ),
    Kind("roberta", "AutoModelForSequenceClassification", _config("RobertaConfig", num_labels=3), special=True),
    Kind(
        "distilbert",
        "AutoModelForTokenClassification",
        lambda: transformers.DistilBertConfig(
            vocab_size=320,
            dim=32,
            hidden_dim=64,
            n_layers=2,
            n_heads=4,
            max_position_embeddings=128,
            initializer_range=0.2,
            num_labels=5,
            pad_token_id=0,
        ),
        special=True,
    ),
    Kind(
        "modernbert",
        "AutoModel",
        _config("ModernBertConfig", local_attention=8, global_attn_every_n_layers=2),
        special=True,
    ),
    Kind("llama", "AutoModelForCausalLM", _config("LlamaConfig", num_key_value_heads=2)),
    Kind("qwen3", "AutoModelForCausalLM", _config("Qwen3Config", num_key_value_heads=2, head_dim=16)),
    Kind(
        "gpt2",
        "AutoModelForCausalLM",
        lambda: transformers.GPT2Config(
            vocab_size=320,
            n_embd=32,
            n_layer=2,
            n_head=4,
            n_positions=128,
            initializer_range=0.2,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=2,
        ),
    ),
    Kind(
        "gemma3-text",
        "AutoModelForCausalLM",
        _config(
            "Gemma3TextConfig",
            num_key_value_heads=2,
            head_dim=16,
            sliding_window=8,
            layer_types=["sliding_attention", "full_attention"],
        ),
    ),
    Kind(
        "mixtral",
        "AutoModelForCausalLM",
        _config("MixtralConfig", num_key_value_heads=2, num_local_experts=4, num_experts_per_tok=2),
    ),
    Kind(
        "mamba",
        "AutoModelForCausalLM",
        lambda: transformers.MambaConfig(
            vocab_size=320,
            hidden_size=32,
            state_size=8,
            num_hidden_layers=2,
            initializer_range=0.2,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=2,
        ),
    ),
    Kind(
        "t5",
        "AutoModelForSeq2SeqLM",
        lambda: transformers.T5Config(
            vocab_size=320,
            d_model=32,
            d_kv=8,
            d_ff=64,
            num_layers=2,
            num_heads=4,
            decoder_start_token_id=0,
            pad_token_id=0,
            eos_token_id=2,
            initializer_factor=2.0,
        ),
        special=True,
    ),
)
"""Encoders with absolute, relative and rotary positions, decoders with grouped heads, a sliding window, experts, a
state space, and an encoder-decoder."""

BY_NAME = {kind.name: kind for kind in KINDS}


def write(kind: Kind, folder: Path) -> Path:
    """The model of `kind` as a repository in `folder`."""
    torch.manual_seed(0)
    model = getattr(transformers, kind.auto_class).from_config(kind.config()).eval()
    with torch.no_grad():  # norms start as the identity, which would hide that one is missing
        for weight in model.parameters():
            if weight.dim() == 1:
                weight.add_(0.1 * torch.randn_like(weight))
    model.save_pretrained(folder)
    tokenizer(kind.special).save_pretrained(folder)
    return folder


def tokenizer(special: bool) -> transformers.PreTrainedTokenizerFast:
    """A byte-level BPE of 320 tokens."""
    core = Tokenizer(models.BPE(unk_token="<unk>"))
    core.pre_tokenizer, core.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    names = ["<pad>", "<s>", "</s>", "<unk>", "<mask>"]
    alphabet = sorted(set("".join(TEXTS).replace(" ", "Ġ")))
    core.train_from_iterator(
        TEXTS, trainers.BpeTrainer(vocab_size=320, special_tokens=names, initial_alphabet=alphabet, show_progress=False)
    )
    if special:
        core.post_processor = processors.TemplateProcessing(
            single="<s> $A </s>", pair="<s> $A </s> $B </s>", special_tokens=[("<s>", 1), ("</s>", 2)]
        )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token="<pad>",
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
        mask_token="<mask>",
        model_input_names=["input_ids", "attention_mask"],
    )
