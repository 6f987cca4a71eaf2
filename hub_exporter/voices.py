"""What VITS, which speaks a text, needs before it can be traced and compared."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch


def silence(model: Any) -> list[str]:
    """Turn off the noise that a forward draws, without which no two answers are the same; what was done, in words."""
    scales = [name for name in ("noise_scale", "noise_scale_duration") if getattr(model, name, 0.0)]
    for name in scales:
        setattr(model, name, 0.0)
    named = " and ".join(f"`{name}`" for name in scales)
    said = [f"random variation of the voice is off ({named} 0): a text always sounds the same"] if scales else []
    speakers = getattr(model.config, "num_speakers", 1) if scales else 1
    return said if speakers == 1 else [*said, f"none of the {speakers} speakers can be chosen"]


def least_tokens(config: Any) -> int | None:
    """Tokens from which on a text takes the traced path: a shorter one lies within the attention window."""
    return config.window_size + 2 if config.model_type == "vits" else None


@contextlib.contextmanager
def traceable(model: Any) -> Iterator[None]:
    """Trace durations without picking out the values that lie within bounds: how many these are is not known then, and
    the ONNX graph of it fails where there are none."""
    if model.config.model_type != "vits":
        yield
        return
    from transformers.exporters.utils import patch_attribute
    from transformers.models.vits import modeling_vits

    with patch_attribute(modeling_vits, "_unconstrained_rational_quadratic_spline", _everywhere):
        yield


def _everywhere(original: Callable[..., Any]) -> Callable[..., Any]:
    """The spline of all values, of which those within bounds are taken: the same numbers."""
    from transformers.models.vits import modeling_vits

    spline: Callable[..., Any] = modeling_vits._rational_quadratic_spline

    def run(
        inputs: torch.Tensor,
        widths: torch.Tensor,
        heights: torch.Tensor,
        derivatives: torch.Tensor,
        reverse: bool = False,
        tail_bound: float = 5.0,
        least: float = 1e-3,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        within = inputs.clamp(-tail_bound, tail_bound)
        slopes = torch.nn.functional.pad(derivatives, (1, 1), value=math.log(math.expm1(1 - least)))
        outputs, log_abs_det = spline(within, widths, heights, slopes, reverse, tail_bound, least, least, least)
        inside = inputs == within
        return torch.where(inside, outputs, inputs), torch.where(inside, log_abs_det, 0.0)

    return run
