"""A model of pictures beside texts as its two encoders, each a graph of its own.

Who searches pictures embeds each of them once, and after that only texts. The graphs give what the model's own
accessors give: embeddings that are not normalised, (items, size), as the classes of transformers and transformers.js
that have one encoder alone. The score of a pair is `scale * cosine + bias`, of numbers that no graph has.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Literal

import torch

Tensors = dict[str, torch.Tensor]
Side = Literal["text", "image"]

GRAPHS: dict[str, Side] = {"text_model": "text", "vision_model": "image"}
"""Graph, by the name of the file that transformers.js looks for -> what it reads."""


def reads_both(inputs: Collection[str]) -> bool:
    """Whether these are the inputs of a model of pictures beside texts."""
    return "input_ids" in inputs and "pixel_values" in inputs


def part_of(inputs: Mapping[str, Any], side: Side) -> dict[str, Any]:
    """The inputs of one encoder."""
    return {name: value for name, value in inputs.items() if (name == "pixel_values") == (side == "image")}


class Encoder(torch.nn.Module):
    """Texts or pictures -> `text_embeds` or `image_embeds`; of a model without projections (SigLIP) `pooler_output`, as
    its clients call it."""

    def __init__(self, model: Any, side: Side):
        super().__init__()
        self.model, self.config, self._side = model, model.config, side
        self._output = f"{side}_embeds" if hasattr(model, "text_projection") else "pooler_output"

    def forward(self, **inputs: torch.Tensor) -> Tensors:
        """Embed a batch."""
        return {self._output: embeds(self.model, self._side, inputs)}


def embeds(model: Any, side: Side, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """What the model's own accessor makes of texts or pictures."""
    answer: torch.Tensor = getattr(model, f"get_{side}_features")(**inputs).pooler_output
    return answer


def constants(model: Any) -> dict[str, float]:
    """What makes a score of a cosine."""
    bias = getattr(model, "logit_bias", None)
    return {"scale": model.logit_scale.exp().item()} | ({} if bias is None else {"bias": bias.item()})
