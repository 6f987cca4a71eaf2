"""A model that reads pictures in its text as three graphs that make a closed set.

The engine's components of such a model lack the image encoder and the embedding of tokens, because `generate` merges
the two before the forward. Here `image_encoder` gives the features of each picture as the language model takes them,
`embed_tokens` the embeddings of a text, and `decode` takes embeddings beside a cache, empty or filled. Whoever runs
them puts the features in the places of the image tokens, which is an assignment in numpy.

Tensors of the cache are (batch, heads, tokens, head size), by the names `N.key` and `N.value`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from transformers.cache_utils import DynamicCache

from hub_exporter.errors import HubExporterError

Tensors = dict[str, torch.Tensor]


PROJECTORS = ("multi_modal_projector", "connector", "embed_vision")
"""Names of the module that puts the features of a picture into the space of the text; there is no accessor for it."""


class ImageEncoder(torch.nn.Module):
    """Pictures (images, channels, height, width) -> `image_features` (images, tokens of a picture, hidden size)."""

    def __init__(self, model: Any):
        super().__init__()
        self.model, self.config, self._projector = model, model.config, projector(model)

    def forward(self, pixel_values: torch.Tensor) -> Tensors:
        """Encode a batch of pictures."""
        with undivided(self._projector):
            answer = self.model.get_image_features(pixel_values=pixel_values)
        return {"image_features": answer.pooler_output[0]}


class Whole(torch.nn.Module):
    """Pictures and all of the text -> `logits` (batch, length, vocabulary): one graph without a cache."""

    def __init__(self, model: Any):
        super().__init__()
        self.model, self.config, self._projector = model, model.config, projector(model)

    def forward(self, **inputs: torch.Tensor) -> Tensors:
        """Answer a batch. The engine sets `use_cache` in the model's configuration, which the language model does not
        read."""
        with undivided(self._projector):
            return {"logits": self.model(**inputs, use_cache=False).logits}


def projector(model: Any) -> torch.nn.Module:
    """The module that puts the features of a picture into the space of the text."""
    inner = getattr(model, "model", model)
    found = next((getattr(inner, name) for name in PROJECTORS if hasattr(inner, name)), None)
    if not isinstance(found, torch.nn.Module):
        raise HubExporterError(
            f"{type(model).__name__} has no projector of pictures that is known",
            hint=f"Known are modules of the name {', '.join(PROJECTORS)}",
        )
    return found


@contextlib.contextmanager
def undivided(projector: torch.nn.Module) -> Iterator[None]:
    """The model splits the features into a list of pictures, which fixes their number in the trace: behind the
    projector they get one more axis in front, so that the list has one item with all of them."""
    handle = projector.register_forward_hook(lambda module, inputs, output: output[None])
    try:
        yield
    finally:
        handle.remove()


class TokenEmbedding(torch.nn.Module):
    """Tokens (batch, length) -> `inputs_embeds` (batch, length, hidden size)."""

    def __init__(self, model: Any):
        super().__init__()
        self.embedding, self.config = model.get_input_embeddings(), model.config

    def forward(self, input_ids: torch.Tensor) -> Tensors:
        """Look up a batch."""
        return {"inputs_embeds": self.embedding(input_ids)}


class Decoder(torch.nn.Module):
    """Embeddings behind a cache -> `logits` (batch, length, vocabulary), and the cache of the longer text."""

    def __init__(self, model: Any):
        super().__init__()
        self.model, self.config = model, model.config

    def forward(
        self,
        inputs_embeds: torch.Tensor,
        attention_mask: torch.Tensor,
        position_ids: torch.Tensor,
        past_key_values: Tensors,
    ) -> dict[str, Any]:
        """Decode a batch; the mask covers past and new tokens."""
        layers = range(len(past_key_values) // 2)
        answer = self.model(
            inputs_embeds=inputs_embeds,
            attention_mask=attention_mask,
            position_ids=position_ids,
            past_key_values=DynamicCache(
                [(past_key_values[f"{n}.key"], past_key_values[f"{n}.value"]) for n in layers]
            ),
            use_cache=True,
        )
        return {"logits": answer.logits, "present": flat(answer.past_key_values)}


def flat(cache: Any) -> Tensors:
    """The tensors of a cache by their names."""
    pairs = [(f"{number}.{part}", getattr(layer, f"{part}s")) for number, layer in enumerate(cache.layers)
             for part in ("key", "value")]  # fmt: skip
    return dict(pairs)
