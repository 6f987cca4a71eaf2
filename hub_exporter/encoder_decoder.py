"""An encoder-decoder as two graphs that make a closed set: the encoder, and the decoder with its caches.

The engine's `prefill` and `decode` both take the encoder's output, and no component gives it. Here the encoder's graph
gives what the decoder reads of it at every step, the keys and values of its cross-attention, and one decoder graph
takes those beside the cache of its own text: empty, it is the prefill. So no weight is in two graphs but the
embedding of tokens, and nothing is computed twice.

Tensors of a cache are (batch, heads, tokens, head size); they are named `N.decoder.key` (the text so far) and
`N.encoder.key` (the source) by layer, as transformers.js and optimum do.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers.cache_utils import DynamicCache, EncoderDecoderCache
from transformers.modeling_outputs import BaseModelOutput

Tensors = dict[str, torch.Tensor]


class Encoder(torch.nn.Module):
    """Source -> `{"present": {"N.encoder.key": ..., "N.encoder.value": ...}}`.

    The decoder runs on the start token to project the encoder's output; all else that it computes is dead code, which
    the trace drops.
    """

    def __init__(self, model: Any, start_token: int):
        super().__init__()
        self.model, self.config, self._start_token = model, model.config, start_token

    def forward(self, **inputs: torch.Tensor) -> dict[str, Tensors]:
        """Encode a batch."""
        rows = next(iter(inputs.values())).shape[0]
        start = torch.full((rows, 1), self._start_token, dtype=torch.long)
        answer = self.model(**inputs, decoder_input_ids=start, use_cache=True)
        return {"present": flat(answer.past_key_values.cross_attention_cache, "encoder")}


class Decoder(torch.nn.Module):
    """New tokens behind a cache -> `logits` (batch, length, vocabulary), and the cache of the longer text."""

    def __init__(self, model: Any):
        super().__init__()
        self.model, self.config = model, model.config

    def forward(
        self, input_ids: torch.Tensor, past_key_values: Tensors, encoder_attention_mask: torch.Tensor | None = None
    ) -> dict[str, Any]:
        """Decode a batch."""
        cache = cache_of(past_key_values)
        mask = {} if encoder_attention_mask is None else {"attention_mask": encoder_attention_mask}
        answer = self.model(
            decoder_input_ids=input_ids,
            encoder_outputs=BaseModelOutput(last_hidden_state=self._nothing(past_key_values["0.encoder.key"])),
            past_key_values=cache,
            use_cache=True,
            **mask,
        )
        return {"logits": answer.logits, "present": flat(answer.past_key_values.self_attention_cache, "decoder")}

    def _nothing(self, keys: torch.Tensor) -> torch.Tensor:
        """Stands for the encoder's output, of which only the shape is read where its keys and values are there."""
        return keys.new_zeros((keys.shape[0], keys.shape[2], self.config.hidden_size))


def flat(cache: Any, side: str) -> Tensors:
    """The tensors of one half of a cache by their names."""
    pairs = ((f"{number}.{side}", layer) for number, layer in enumerate(cache.layers))
    return {f"{name}.{part}": getattr(layer, f"{part}s") for name, layer in pairs for part in ("key", "value")}


def cache_of(tensors: Tensors) -> EncoderDecoderCache:
    """The container that a model takes, the source in it being complete."""
    layers = range(len(tensors) // 4)
    own, cross = (
        DynamicCache([(tensors[f"{n}.{side}.key"], tensors[f"{n}.{side}.value"]) for n in layers])
        for side in ("decoder", "encoder")
    )
    cache = EncoderDecoderCache(own, cross)
    cache.is_updated = dict.fromkeys(layers, True)
    return cache
