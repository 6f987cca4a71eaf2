"""A model that reads pictures or sounds in its text as graphs that make a closed set.

The engine's components of such a model lack the encoders and the embedding of tokens, because `generate` merges the two
before the forward. Here `image_encoder` or `audio_encoder` gives features as the language model takes them,
`embed_tokens` the embeddings of a text, and `decode` takes embeddings beside a cache, empty or filled. What is done
between the graphs is in `mixed_prompt.py`.

Tensors of the cache are (batch, heads, tokens, head size), by the names `N.key` and `N.value`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from transformers.cache_utils import DynamicCache
from transformers.exporters.utils import patch_attributes

from hub_exporter.errors import HubExporterError
from hub_exporter.mixed_prompt import FEATURES

Tensors = dict[str, torch.Tensor]

PROJECTORS = {
    "image_encoder": ("multi_modal_projector", "connector", "embed_vision"),
    "audio_encoder": ("multi_modal_projector", "audio_projector", "embed_audio", "projector"),
}
"""Names of the module that puts features into the space of the text; there is no accessor for it."""


def placeholders(config: Any) -> dict[str, int]:
    """Encoder -> the token that stands for a piece of what it reads."""
    named = {
        component: (getattr(config, f"{sense}_token_id", None), getattr(config, f"{sense}_token_index", None))
        for component, sense in (("image_encoder", "image"), ("audio_encoder", "audio"))
    }
    return {
        component: int(next(id for id in ids if id is not None))
        for component, ids in named.items()
        if set(ids) - {None}
    }


def encoder(model: Any, component: str, inputs: Tensors) -> torch.nn.Module:
    """The module whose graph is `component`, for what a prompt feeds it with."""
    if component == "image_encoder" and inputs["pixel_values"].dim() == 3:
        return GridEncoder(model)
    if component == "image_encoder" and "pixel_attention_mask" in inputs:
        return TileEncoder(model)
    return Encoder(model, component)


class _Reached(Exception):
    """The model asks its projector: what it would do behind it is not wanted."""

    def __init__(self, hidden: tuple[torch.Tensor, ...]):
        super().__init__()
        self.hidden = hidden


class Encoder(torch.nn.Module):
    """What the processor made of pictures or sounds -> their features, in the space of the text.

    The model's own accessor runs, or its forward where it has none, as far as the projector: behind it features are cut
    and split by the values of a batch, which no trace can follow.
    """

    def __init__(self, model: Any, component: str):
        super().__init__()
        self.config, self._gives = model.config, FEATURES[component]
        self.model, self._inner = model, inner(model)
        name = projector_name(model, component)
        if name is None:
            raise HubExporterError(
                f"{type(model).__name__} has no projector for its {component} that is known",
                hint=f"Known are modules of the name {', '.join(PROJECTORS[component])}",
            )
        self._name = name

    def forward(self, **inputs: torch.Tensor) -> Tensors:
        """Encode a batch."""
        projector, attributes = getattr(self._inner, self._name), vars(self._inner)
        attributes[self._name] = _stop  # found before the module of that name
        try:
            self._begin(inputs)
        except _Reached as reached:
            hidden = reached.hidden
        finally:
            del attributes[self._name]
        return {self._gives: projector(*hidden)}

    def _begin(self, inputs: Tensors) -> None:
        accessor = getattr(self.model, f"get_{self._gives}", None)
        if accessor is not None:
            accessor(**inputs)
        else:  # not by way of `__call__`, whose hooks would miss their end
            items = next(iter(inputs.values())).shape[0]
            self._inner.forward(input_ids=torch.zeros((items, 2), dtype=torch.long), **inputs)


def _stop(*hidden: torch.Tensor) -> None:
    raise _Reached(hidden)


def inner(model: Any) -> Any:
    """The model without its head."""
    return getattr(model, "model", model)


def projector_name(model: Any, component: str) -> str | None:
    """The module that puts features into the space of the text; `None` where none is known."""
    return next((name for name in PROJECTORS[component] if getattr(inner(model), name, None) is not None), None)


class TileEncoder(torch.nn.Module):
    """Tiles of pictures (tiles, channels, height, width), and which pixels of them are real (tiles, height, width) ->
    `image_features` (tiles, tokens of a tile, hidden size).

    The accessor first looks for tiles of zeros, which whoever runs the files leaves out.
    """

    def __init__(self, model: Any):
        super().__init__()
        self.config, self._tower = model.config, model.get_encoder(modality="image")
        self._projector = inner(model).connector

    def forward(self, pixel_values: torch.Tensor, pixel_attention_mask: torch.Tensor) -> Tensors:
        """Encode a batch of tiles."""
        size = self.config.vision_config.patch_size
        tiles, height, width = pixel_attention_mask.shape
        patches = pixel_attention_mask.reshape(tiles, height // size, size, width // size, size)
        real = patches.amax(dim=(2, 4)) > 0
        answer = self._tower(pixel_values=pixel_values, patch_attention_mask=real)
        return {"image_features": self._projector(answer.last_hidden_state)}


class GridEncoder(torch.nn.Module):
    """One picture (rows, columns, numbers of the patches that become one token) -> `image_features` (tokens, hidden).

    The processor tells the grid of each picture in numbers, which decide positions and windows. Here the shape is the
    grid, and they are computed from it, so that pictures of every size run.
    """

    def __init__(self, model: Any):
        super().__init__()
        self.config, self._tower = model.config, model.get_encoder(modality="image")

    def forward(self, pixel_values: torch.Tensor) -> Tensors:
        """Encode a picture."""
        rows, columns, _ = pixel_values.shape
        share = self._tower.spatial_merge_size
        inside, count = torch.arange(share), rows * columns * share**2
        row, column = torch.arange(rows), torch.arange(columns)
        along = (row[:, None] * share + inside)[:, None, :, None], (column[:, None] * share + inside)[None, :, None, :]
        places = torch.stack([axis.expand(rows, columns, share, share).reshape(count) for axis in along], dim=-1)
        bounds = torch.arange(2) * count  # of pieces of attention: one, the picture
        told = {"grid_thw": None, "position_ids": places, "cu_seqlens": bounds}
        with contextlib.ExitStack() as stack:
            embed = (self._tower.patch_embed, "forward", lambda original: self._embed)
            stack.enter_context(patch_attributes([embed]))
            if hasattr(self._tower, "fullatt_block_indexes"):
                told |= {"window_index": torch.arange(rows * columns), "cu_window_seqlens": bounds}
                stack.enter_context(_attention_in_windows(self._tower, places))
            return {"image_features": self._tower(pixel_values.reshape(count, -1), **told).pooler_output}

    def _embed(self, patches: torch.Tensor) -> torch.Tensor:
        """A convolution whose kernel is the patch, which ExecuTorch has in two axes only, as the product that it is."""
        projection = self._tower.patch_embed.proj
        return torch.nn.functional.linear(patches, projection.weight.flatten(1), projection.bias)


@contextlib.contextmanager
def _attention_in_windows(tower: Any, places: torch.Tensor) -> Iterator[None]:
    """Layers that look at windows of the grid get a mask, in place of an order and pieces that depend on its size;
    `places` (patches, 2) are rows and columns."""
    share = tower.spatial_merge_size
    row, column = (places // (tower.window_size // share // tower.patch_size * share)).unbind(dim=-1)
    inside = (row[:, None] == row) & (column[:, None] == column)
    mask = None

    def enter(number: int) -> None:
        nonlocal mask
        mask = None if number in tower.fullatt_block_indexes else inside

    def masked(attend: Any) -> Any:
        return lambda query, key, value, attn_mask=None, **settings: attend(query, key, value, mask, **settings)

    with contextlib.ExitStack() as stack:
        for number, block in enumerate(tower.blocks):
            hook = block.register_forward_pre_hook(lambda block, inputs, number=number: enter(number))
            stack.callback(hook.remove)
        # The patches keep their order, which is its own inverse; ExecuTorch cannot sort.
        order = (torch, "argsort", lambda original: lambda order: order)
        stack.enter_context(patch_attributes([(torch.nn.functional, "scaled_dot_product_attention", masked), order]))
        yield


class Whole(torch.nn.Module):
    """Pictures or sounds and all of the text -> `logits` (batch, length, vocabulary): one graph without a cache.

    The model may split the features into a list of pictures, which fixes their number in the trace: behind the
    projector they get one more axis in front, so that the list has one item with all of them.
    """

    def __init__(self, model: Any):
        super().__init__()
        self.model, self.config = model, model.config
        name = projector_name(model, "image_encoder") if "image_encoder" in placeholders(model.config) else None
        self._projector = getattr(inner(model), name) if name else None

    def forward(self, **inputs: torch.Tensor) -> Tensors:
        """Answer a batch. The engine sets `use_cache` in the model's configuration, which the language model does not
        read."""
        with contextlib.ExitStack() as stack:
            if self._projector is not None:
                hook = self._projector.register_forward_hook(lambda module, inputs, output: output[None])
                stack.callback(hook.remove)
            return {"logits": self.model(**inputs, use_cache=False).logits}


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
        token_type_ids: torch.Tensor | None = None,
    ) -> dict[str, Any]:
        """Decode a batch; the mask, and the kinds of tokens where there are some, cover past and new ones."""
        kinds = {} if token_type_ids is None else {"token_type_ids": token_type_ids}
        layers = range(len(past_key_values) // 2)
        answer = self.model(
            inputs_embeds=inputs_embeds,
            attention_mask=attention_mask,
            position_ids=position_ids,
            past_key_values=_Cache([(past_key_values[f"{n}.key"], past_key_values[f"{n}.value"]) for n in layers]),
            use_cache=True,
            **kinds,
        )
        return {"logits": answer.logits, "present": flat(answer.past_key_values)}


class _Cache(DynamicCache):  # type: ignore[misc]
    """Says that nothing is in it yet: PaliGemma reads the kinds of tokens only then, and here they cover the past."""

    is_initialized = False


def flat(cache: Any) -> Tensors:
    """The tensors of a cache by their names."""
    pairs = [(f"{number}.{part}", getattr(layer, f"{part}s")) for number, layer in enumerate(cache.layers)
             for part in ("key", "value")]  # fmt: skip
    return dict(pairs)
