"""The eager model and its tokenizer, loaded from the snapshot and checked before anybody traces or trusts them.

The export and the reference each load their own: a mistake made while loading one cannot hide in the other.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import transformers
from transformers import (
    AutoConfig,
    AutoFeatureExtractor,
    AutoImageProcessor,
    AutoProcessor,
    AutoTokenizer,
    GenerationConfig,
    PreTrainedModel,
)
from transformers.models.auto.processing_auto import PROCESSOR_MAPPING
from transformers.utils import is_torchvision_available

from hub_exporter.errors import SourceError
from hub_exporter.records import ResolvedModel
from hub_exporter.tasks import TASKS, Kind
from hub_exporter.voices import silence

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
"""Variant -> dtype that the model is loaded in; others are made of the written float32 files."""


@dataclass(frozen=True)
class Loaded:
    """A checked eager model in evaluation mode, its processors, and what had to be changed to load it."""

    model: PreTrainedModel
    tokenizer: Any
    """`None` of a model that reads no text, as are the two below of one that takes no pictures or sounds."""
    notes: tuple[str, ...]
    image_processor: Any = None
    feature_extractor: Any = None
    processor: Any = None
    """Of a model that reads pictures or sounds in its text: both at once."""


def load(model: ResolvedModel, variant: str = "fp32", attention: str | None = None) -> Loaded:
    """Load `model` from its snapshot on the CPU, without the network.

    Raises SourceError when weights are missing, have another shape, are not finite, or when the configuration that
    transformers understood is not the one in the file.
    """
    notes: list[str] = []
    written = json.loads((Path(model.folder) / "config.json").read_text("utf-8"))
    config = AutoConfig.from_pretrained(model.folder, local_files_only=True, trust_remote_code=model.remote_code)
    _check_rope(written, config)
    kwargs = {
        "config": config,
        "dtype": DTYPES.get(variant, torch.float32),
        "local_files_only": True,
        "trust_remote_code": model.remote_code,
        "attn_implementation": _attention(written, attention, notes),
    }
    eager = _checked(model, kwargs, notes)
    eager.eval().requires_grad_(False)
    notes += silence(eager)
    made = processors(model, TASKS[model.task].inputs, notes)
    return Loaded(model=eager, **made, notes=tuple(notes))


def processors(model: ResolvedModel, inputs: Kind, notes: list[str]) -> dict[str, Any]:
    """What makes inputs of a row: the processors of the repository itself, pictures through Pillow."""
    found: dict[str, Any] = {"tokenizer": load_tokenizer(model, notes) if "text" in inputs else None}
    if inputs.endswith("in text"):
        found["processor"] = _processor(model, _processor_class(model), "processor", backend="pil")
        found["processor"].tokenizer.padding_side = "left"
    elif "picture" in inputs:
        found["image_processor"] = _processor(model, AutoImageProcessor, "image processor", backend="pil")
    if inputs == "sound":
        found["feature_extractor"] = _processor(model, AutoFeatureExtractor, "feature extractor")
    return found


def _processor(model: ResolvedModel, auto_class: Any, what: str, **settings: Any) -> Any:
    try:
        return auto_class.from_pretrained(
            model.folder, local_files_only=True, trust_remote_code=model.remote_code, **settings
        )
    except Exception as error:  # as for a tokenizer
        raise SourceError(
            f"The {what} of `{model.source}` cannot be loaded: {_last_line(error)}",
            hint=f"The repository needs a `preprocessor_config.json` that loads with `{auto_class.__name__}`",
        ) from error


def _processor_class(model: ResolvedModel) -> Any:
    """The class of the processor; one that reads videos too does without them where torchvision is not there."""
    config = AutoConfig.from_pretrained(model.folder, local_files_only=True, trust_remote_code=model.remote_code)
    found = PROCESSOR_MAPPING.get(type(config), None)
    if is_torchvision_available() or found is None or "video_processor" not in found.get_attributes():
        return AutoProcessor
    module = sys.modules[found.__module__]
    if getattr(module, "num2words", str) is None:  # says how many frames a video has
        vars(module)["num2words"] = str
    return type(found.__name__, (_WithoutVideos, found), {})


class _WithoutVideos:
    """Before a class of processors: it neither loads nor asks for a part that reads videos."""

    video_processor = SimpleNamespace(num_frames=None, fps=None)

    @classmethod
    def get_attributes(cls) -> list[str]:
        return [name for name in super().get_attributes() if name != "video_processor"]  # type: ignore[misc]

    @classmethod
    def _get_arguments_from_pretrained(cls, *args: Any, **kwargs: Any) -> list[Any]:
        found = super()._get_arguments_from_pretrained(*args, **kwargs)  # type: ignore[misc]
        return [*found, cls.video_processor]


def load_tokenizer(model: ResolvedModel, notes: list[str]) -> Any:
    """The tokenizer, with a padding token in memory where the repository names none."""
    try:
        tokenizer = AutoTokenizer.from_pretrained(
            model.folder, local_files_only=True, trust_remote_code=model.remote_code
        )
    except Exception as error:  # every tokenizer class fails in its own way on a broken file
        raise SourceError(
            f"The tokenizer of `{model.source}` cannot be loaded: {_last_line(error)}",
            hint="The repository needs `tokenizer.json` and `tokenizer_config.json` that load with `AutoTokenizer`",
        ) from error
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token or tokenizer.unk_token
        notes.append(f"the tokenizer has no padding token: `{tokenizer.pad_token}` pads the captured batch")
    return tokenizer


def _check_rope(raw: dict[str, Any], config: Any) -> None:
    """A rotary base that is dropped while reading the file gives a model that runs, and is wrong."""
    written = raw.get("rope_theta") or (raw.get("rope_parameters") or {}).get("rope_theta")
    read = (getattr(config, "rope_parameters", None) or {}).get("rope_theta")
    if written is not None and read is not None and float(written) != float(read):
        raise SourceError(
            f"`config.json` says `rope_theta` {written}, transformers {transformers.__version__} reads {read}",
            hint="Write the configuration in the form that this version of transformers saves",
        )


def _attention(raw: dict[str, Any], asked: str | None, notes: list[str]) -> str:
    named = raw.get("attn_implementation") or raw.get("_attn_implementation")
    chosen = asked or "sdpa"
    if named and named not in ("sdpa", "eager"):
        notes.append(f"attention `{named}` cannot be exported: replaced by `{chosen}`")
    return chosen


def _checked(model: ResolvedModel, kwargs: dict[str, Any], notes: list[str]) -> PreTrainedModel:
    auto_class = getattr(transformers, model.auto_class)
    try:
        eager, info = auto_class.from_pretrained(model.folder, output_loading_info=True, **kwargs)
    except ValueError as error:
        if "attention" not in str(error).lower() or kwargs["attn_implementation"] == "eager":
            raise _refusal(model, error) from error
        notes.append(f"{model.architecture} has no `{kwargs['attn_implementation']}` attention: `eager` is used")
        return _checked(model, kwargs | {"attn_implementation": "eager"}, notes)
    except (OSError, RuntimeError, KeyError, ImportError, AttributeError, TypeError) as error:
        raise _refusal(model, error) from error
    missing = sorted(info["missing_keys"])
    if missing and all("pooler." in key for key in missing) and "add_pooling_layer" not in kwargs:
        notes.append("the checkpoint has no pooler: exported without it")
        return _checked(model, kwargs | {"add_pooling_layer": False}, notes)
    _check_weights(model, eager, missing, sorted(map(str, info.get("mismatched_keys") or ())))
    return eager


def _check_weights(model: ResolvedModel, eager: PreTrainedModel, missing: list[str], mismatched: list[str]) -> None:
    if missing:
        raise SourceError(
            f"The checkpoint of `{model.source}` lacks weights that {model.architecture} needs: {_some(missing)}",
            hint="transformers would fill them with random numbers; repair the checkpoint, "
            "or name the right task with `--task`",
        )
    if mismatched:
        raise SourceError(
            f"Weights of `{model.source}` have another shape than {model.architecture} needs: {_some(mismatched)}",
            hint="`config.json` and the checkpoint do not belong together",
        )
    broken = [name for name, weight in eager.named_parameters() if not bool(torch.isfinite(weight).all())]
    if broken:
        raise SourceError(
            f"Weights of `{model.source}` are not finite (NaN or infinity): {_some(broken)}",
            hint="The checkpoint is damaged; whatever is exported from it answers NaN",
        )


def generation_config(eager: PreTrainedModel, **changes: Any) -> GenerationConfig:
    """A greedy configuration with the special tokens of the model's own, and nothing else of it: penalties, sampling
    and forced tokens would be compared along with the model."""
    own = getattr(eager, "generation_config", None) or GenerationConfig()
    tokens = {key: getattr(own, key) for key in ("bos_token_id", "eos_token_id", "pad_token_id")}
    tokens["decoder_start_token_id"] = own.decoder_start_token_id
    if tokens["pad_token_id"] is None:
        eos = tokens["eos_token_id"]
        tokens["pad_token_id"] = eos[0] if isinstance(eos, list) else eos
    return GenerationConfig(do_sample=False, num_beams=1, **tokens, **changes)


def _refusal(model: ResolvedModel, error: Exception) -> SourceError:
    if "size mismatch" in str(error) or "mismatch" in str(error).lower():
        return SourceError(
            f"Weights of `{model.source}` have another shape than {model.architecture} needs: {_last_line(error)}",
            hint="`config.json` and the checkpoint do not belong together",
        )
    return SourceError(
        f"transformers {transformers.__version__} cannot load `{model.source}` as {model.auto_class}: "
        f"{_last_line(error)}",
        hint="Check that it loads with `from_pretrained`, or name another task with `--task`",
    )


def _last_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__


def _some(names: list[str], shown: int = 3) -> str:
    listed = ", ".join(f"`{name}`" for name in names[:shown])
    return listed if len(names) <= shown else f"{listed} and {len(names) - shown} more"
