"""The eager model's answers to the held-out inputs, made once per model by a process that exports nothing.

Every backend's files are compared with these arrays, so that what checks never shares a model, a trace or a patched
class with what was exported.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from hub_exporter import capture, two_encoders
from hub_exporter.errors import SourceError
from hub_exporter.inputs import prepare
from hub_exporter.loading import Loaded, generation_config, load
from hub_exporter.mixed_prompt import first_position
from hub_exporter.records import (
    CaptureSpec,
    Reference,
    ReferenceCase,
    ReferenceDecode,
    ResolvedModel,
    to_json,
)
from hub_exporter.tasks import TASKS

STEPS = 32
"""Greedy tokens per prompt that are compared with `generate`; half its context of a model that holds fewer than 64."""
PROMPT_LIMIT = 64
"""Tokens of a held-out prompt or row; the long case has more."""


def make(
    model: ResolvedModel, spec: CaptureSpec, rows: Path, folder: Path, say: Callable[[str], None] = lambda step: None
) -> Reference:
    """Load the model, run it on the held-out inputs, write `reference.json` and `reference.npz` into `folder`.

    `rows` has the files that the rows name.
    """
    task = TASKS[model.task]
    loaded = load(model)
    context = model.context_length or 512
    steps = min(STEPS, context // 2)
    limit = min(context - steps, PROMPT_LIMIT)
    captured, held_out = prepare(loaded, model, spec, rows)
    arrays: dict[str, np.ndarray] = {}
    say("run the eager model")
    cases = [
        _case(loaded, task.layout, name, inputs, arrays)
        for name, inputs in {"capture": captured.inputs, **held_out}.items()
    ]
    decodes: list[ReferenceDecode] = []
    if task.layout != "encoder":
        loops = _prompts(loaded, task.layout, spec, limit) if task.inputs == "text" else _items(held_out)
        decodes = _decodes(loaded, task.layout, loops, steps, arrays)
    reference = Reference(
        layout=task.layout,
        metric=task.metric,
        cases=tuple(cases),
        decodes=tuple(decodes),
        eos_tokens=_eos_tokens(loaded.model),
        start_token=generation_config(loaded.model).decoder_start_token_id,
        model_type=model.model_type,
        versions={"torch": str(torch.__version__), "transformers": transformers.__version__},
        notes=loaded.notes,
    )
    folder.mkdir(parents=True, exist_ok=True)
    np.savez(folder / "reference.npz", **arrays)  # type: ignore[arg-type]  # its other arguments are keywords too
    (folder / "reference.json").write_bytes(to_json(reference))
    return reference


def _eos_tokens(model: Any) -> tuple[int, ...]:
    eos = generation_config(model).eos_token_id
    return () if eos is None else tuple(eos) if isinstance(eos, list) else (eos,)


def forward_inputs(model: Any, layout: str, inputs: capture.Inputs) -> capture.Inputs:
    """`inputs` as the model's forward takes them: positions and decoder ids added, what it does not take left out."""
    accepted = inspect.signature(model.forward).parameters
    full = dict(inputs)
    if layout in ("decoder", "multimodal") and not hasattr(getattr(model, "model", model), "get_rope_index"):
        full["position_ids"] = capture.positions(inputs["attention_mask"]) + first_position(model.config.model_type)
    if layout == "seq2seq":
        full["decoder_input_ids"] = decoder_ids(model, inputs)
    return {name: value for name, value in full.items() if name in accepted}


def decoder_ids(model: Any, inputs: capture.Inputs) -> np.ndarray:
    """The start token and some of the source: as many as make an odd length that is not the source's own. Where the
    source is no text, the first tokens of the vocabulary."""
    rows = len(next(iter(inputs.values())))
    ids = inputs.get("input_ids", np.arange(rows * 9, dtype=np.int64).reshape(rows, 9))
    start = generation_config(model).decoder_start_token_id
    length = max(3, ids.shape[1] // 2 | 1)
    length += 2 if length == ids.shape[1] else 0
    tail = np.resize(ids[:, :-1], (ids.shape[0], length - 1)) if ids.shape[1] > 1 else np.repeat(ids, length - 1, 1)
    return np.concatenate([np.full((ids.shape[0], 1), start, dtype=np.int64), tail], axis=1)


def _case(
    loaded: Loaded, layout: str, name: str, inputs: capture.Inputs, arrays: dict[str, np.ndarray]
) -> ReferenceCase:
    model_inputs = forward_inputs(loaded.model, layout, inputs)
    with torch.no_grad():
        answer = loaded.model(**{key: torch.from_numpy(value) for key, value in model_inputs.items()})
    if not isinstance(answer, dict):
        raise SourceError(f"{type(loaded.model).__name__} does not answer with named outputs", hint="Set `return_dict`")
    outputs = {key: value for key, value in answer.items() if isinstance(value, torch.Tensor)}
    if layout != "encoder":
        outputs = {"logits": outputs["logits"]}
    given = {**inputs, **model_inputs}
    features = _features(loaded.model, model_inputs) if layout == "encoder" else {}
    arrays |= {f"{name}/in/{key}": value for key, value in given.items()}
    arrays |= {f"{name}/out/{key}": value.float().numpy() for key, value in (outputs | features).items()}
    return ReferenceCase(
        name=name,
        sizes=capture.sizes_of(inputs),
        inputs=tuple(given),
        outputs=tuple(outputs),
        features=tuple(features),
    )


def _features(model: Any, inputs: capture.Inputs) -> dict[str, torch.Tensor]:
    """Embeddings as the encoders of pictures and of texts give them, before the forward normalises them."""
    if not two_encoders.reads_both(inputs):
        return {}
    tensors = {name: torch.from_numpy(value) for name, value in inputs.items()}
    with torch.no_grad():
        return {
            f"{side}_features": two_encoders.embeds(model, side, two_encoders.part_of(tensors, side))
            for side in two_encoders.GRAPHS.values()
        }


def _prompts(loaded: Loaded, layout: str, spec: CaptureSpec, limit: int) -> dict[str, capture.Inputs]:
    """Every prompt alone, and all of them in one padded batch."""
    prompts = capture.prompts(loaded.tokenizer, spec, limit)
    loops = {f"prompt {number}": prompt for number, prompt in enumerate(prompts, 1)}
    side: capture.Side = "left" if layout == "decoder" else "right"
    return loops | {f"{len(prompts)} prompts, {side}-padded batch": capture.stack(loaded.tokenizer, prompts, side)}


def _items(held_out: dict[str, capture.Inputs]) -> dict[str, capture.Inputs]:
    """Sounds, or texts with pictures: those that are alone, and three in one batch."""
    return {f"decoding {name}": inputs for name, inputs in held_out.items() if name.startswith(("batch 1", "batch 3"))}


def _decodes(
    loaded: Loaded, layout: str, loops: dict[str, capture.Inputs], steps: int, arrays: dict[str, np.ndarray]
) -> list[ReferenceDecode]:
    """All loops, and the last single prompt of a decoder again in two pieces, unless parts of it are read both ways."""
    decodes = []
    for name, prompt in loops.items():
        _generate(loaded, name, prompt, steps, arrays)
        first = next(iter(prompt.values()))
        length = prompt["input_ids"].shape[1] if "input_ids" in prompt else 1
        decodes.append(ReferenceDecode(name=name, batch=len(first), chunks=(length,), inputs=tuple(prompt)))
    both_ways = layout == "multimodal" and "token_type_ids" in next(iter(loops.values()))
    if layout in ("decoder", "multimodal") and not both_ways:
        name = [decode.name for decode in decodes if decode.batch == 1][-1]
        last = loops[name]["input_ids"].shape[1]
        first = last // 2
        again = f"{name}, in two pieces"
        arrays |= {again + key[len(name) :]: value for key, value in list(arrays.items()) if key.startswith(f"{name}/")}
        decodes.append(ReferenceDecode(name=again, batch=1, chunks=(first, last - first), inputs=tuple(loops[name])))
    return decodes


def _generate(loaded: Loaded, name: str, prompt: capture.Inputs, steps: int, arrays: dict[str, np.ndarray]) -> None:
    config = generation_config(
        loaded.model,
        max_new_tokens=steps,
        min_new_tokens=steps,  # keeps on past an end-of-text token, so that there are tokens to compare
        return_dict_in_generate=True,
        output_logits=True,
    )
    loaded.model.generation_config = config  # `generate` takes from it what it is not told, such as a forced last token
    # The plain loop: Whisper has one of its own, which cuts long sounds and forces tokens.
    generate = functools.partial(transformers.GenerationMixin.generate, loaded.model)
    with torch.no_grad():
        answer = generate(**{key: torch.from_numpy(value) for key, value in prompt.items()}, generation_config=config)
    arrays |= {f"{name}/in/{key}": value for key, value in prompt.items()}
    arrays[f"{name}/tokens"] = answer.sequences[:, -steps:].numpy()
    arrays[f"{name}/logits"] = torch.stack(answer.logits).float().numpy()
