"""Rows -> model inputs, for every kind of model: the batch that is traced, and the held-out ones that check it.

Text is in `capture.py`. Pictures, sounds and series go through the model's own processor here, by the same rules:
batches of different items, sizes that differ where the processor lets them and are never equal by accident. What the
processor fixes (224 × 224 pixels, 1,024 frames) stays fixed, and is found by giving it items of different size.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hub_exporter import capture, media
from hub_exporter.capture import Inputs, Side, sizes_of
from hub_exporter.errors import DatasetError
from hub_exporter.loading import Loaded
from hub_exporter.records import CaptureSpec, ResolvedModel, Row
from hub_exporter.tasks import TASKS

LABELS = (
    "a photo of a leaf",
    "food",
    "a quickly drawn sketch of two cats on a sofa",
    "a street at night, seen from a moving car",
    "an old map",
)
"""What pictures are held against where the dataset brings no texts."""

SMALL_PICTURE = 96
"""Pixels of the shorter side of a captured picture, where the processor takes any size."""

CAPTURED_SECONDS = (0.41, 0.63)
HELD_OUT_SECONDS = (0.5, 0.37, 0.71, 0.58, 1.9, 1.1)
LONGEST_SOUND = 10
"""Seconds of sound that a graph of bounded axes takes."""


@dataclass(frozen=True)
class Captured:
    """The batch that is traced, and which of its axes may be of another size when the graph is run."""

    inputs: Inputs
    free: frozenset[str] | None = None
    """Names of the free axes; `None` for text, all of whose axes are."""
    limits: dict[str, int] = field(default_factory=dict)
    """Largest size of a free axis that is of use, for graphs whose memory is planned."""


def prepare(
    loaded: Loaded, model: ResolvedModel, spec: CaptureSpec, rows: Path, static: Sequence[str] = ()
) -> tuple[Captured, dict[str, Inputs]]:
    """The captured batch, and the held-out inputs by the name of their case. Files that rows name lie in `rows`.

    `static` axes are not to be free: pictures are then captured at the size that the processor makes of them.
    Raises DatasetError when the rows cannot make such inputs.
    """
    kind = TASKS[model.task].inputs
    if kind == "text":
        return _texts(loaded, model, spec)
    captured, cases = _MAKERS[kind](loaded, spec, rows, static)
    assert captured.free is not None
    problem = capture.broken_axes(captured.inputs, captured.free)
    if problem:
        named = ", ".join(f"`{row.id}`" for row in spec.capture)
        raise DatasetError(
            f"The capture rows {named} would mislead the trace: {problem}", hint="Name other rows with `--dataset`"
        )
    return captured, cases


def padding_side(model: ResolvedModel) -> Side:
    """A decoder generates with the padding on the left, whatever its tokenizer is set to for training."""
    return "left" if TASKS[model.task].layout == "decoder" else model.padding_side


def fixed_words(captured: Captured, static: Sequence[str] = ()) -> list[str]:
    """What the processor fixes, in words for the card; without the axes that are `static` for another reason."""
    if captured.free is None:
        return []
    kept = {*captured.free, *static}
    fixed = {axis: size for axis, size in sizes_of(captured.inputs).items() if axis not in kept}
    words, pixels = [], captured.inputs.get("pixel_values")
    if "height" in fixed and "width" in fixed:
        words.append(f"pictures of {fixed['width']} × {fixed['height']} pixels, as the processor makes them")
    elif pixels is not None and pixels.ndim == 5:
        words.append(f"pictures in tiles of {pixels.shape[4]} × {pixels.shape[3]} pixels, as the processor cuts them")
    if frames := _frames(captured.inputs, "sequence_length" in fixed):
        words.append(f"{frames} frames of sound at a time")
    elif "sequence_length" in fixed:
        kinds = {"past_values": f"numbers of {fixed.get('num_channels')} series", "input_values": "samples of sound"}
        what = next((words for name, words in kinds.items() if name in captured.inputs), "tokens of text")
        words.append(f"{fixed['sequence_length']} {what} at a time")
    return words


def both_ways(captured: Captured) -> bool:
    """Whether parts of a prompt with pictures are read both ways, so that it cannot come in pieces."""
    return "pixel_values" in captured.inputs and "token_type_ids" in captured.inputs


def _frames(inputs: Inputs, fixed: bool) -> int | None:
    """Frames of a spectrogram of fixed length, the longer of its axes: extractors differ in their order."""
    spectrogram = next((value for name, value in inputs.items() if name in ("input_features", "input_values")), None)
    if spectrogram is None or spectrogram.ndim < 3 or not (fixed or "input_ids" in inputs):
        return None
    return int(max(spectrogram.shape[1:]))


# ── Text ──


def _texts(loaded: Loaded, model: ResolvedModel, spec: CaptureSpec) -> tuple[Captured, dict[str, Inputs]]:
    side, longest = padding_side(model), capture.capture_limit(loaded.model.config)
    captured = capture.capture_inputs(loaded.tokenizer, spec.capture, side, longest)
    limit = min(model.context_length or 512, 512)
    return Captured(captured), capture.held_out_cases(loaded.tokenizer, spec, captured, side, limit)


# ── Pictures ──


def _pictures(
    loaded: Loaded, spec: CaptureSpec, rows: Path, static: Sequence[str]
) -> tuple[Captured, dict[str, Inputs]]:
    first, second, *rest = [media.picture(rows, row.values["image"]) for row in _rows(spec)]
    probes = [_pixels(loaded, [_cut(first, share)]) for share in (1.0, 0.6)]
    free = _varying(probes, ("height", "width"))
    short = SMALL_PICTURE if free else None
    pair = _pair(loaded, first, second, short)
    shaped = [_like(other, one) for other, one in zip(rest, pair, strict=False)]
    cases = {
        "batch 1": _pixels(loaded, rest[:1], short),
        "batch 3": _pixels(loaded, [_like(one, rest[1]) for one in rest[1:4]], short),
        "other pictures in the captured shape": _pixels(loaded, shaped, short),
    }
    limits = {}
    if free:
        cases["another size"] = _pixels(loaded, [_cut(rest[5], 0.7)], SMALL_PICTURE * 4 // 3)
        cases["the processor's own size"] = _pixels(loaded, [rest[4]])
        cases["the processor's own size, batch 2"] = _pixels(loaded, [_like(rest[0], rest[4]), _like(rest[2], rest[4])])
        longest = max(size for probe in probes for size in probe["pixel_values"].shape[2:])
        limits = {"height": longest, "width": longest}
    if free & {*static}:
        pair, short = [_like(first, rest[4]), _like(second, rest[4])], None
    return Captured(_pixels(loaded, pair, short), frozenset((free | {"batch_size"}) - {*static}), limits), cases


def _pixels(loaded: Loaded, pictures: Sequence[Any], short: int | None = None) -> Inputs:
    """What the processor makes of the pictures; `short` is the shorter side that it is asked for."""
    processor = loaded.image_processor
    settings = _smaller(getattr(processor, "size", None), short) if short else {}
    return _arrays(processor(images=list(pictures), return_tensors="np", **settings))


def _smaller(size: Any, short: int) -> dict[str, Any]:
    """The processor's `size`, in proportion, with `short` as its smallest number."""
    numbers = {key: value for key, value in dict(size or {}).items() if isinstance(value, int)}
    if not numbers:
        return {}
    share = short / min(numbers.values())
    return {"size": {key: round(value * share) for key, value in numbers.items()}}


def _pair(loaded: Loaded, first: Any, second: Any, short: int | None) -> list[Any]:
    """Two pictures of different shape, whose batch pads both and is not square; of one shape where the processor does
    not pad."""
    for share in (0.5, 0.6, 0.4):
        pair = [first, _cut(second, share)]
        try:
            height, width = _pixels(loaded, pair, short)["pixel_values"].shape[2:]
        except (ValueError, IndexError, KeyError):  # a processor that does not pad cannot stack them
            break
        if not short or height != width:
            return pair
    return [first, _like(second, first)]


def _cut(picture: Any, share: float) -> Any:
    """The left part of a picture."""
    return picture.crop((0, 0, max(round(picture.width * share), 1), picture.height))


def _like(picture: Any, other: Any) -> Any:
    """The picture in the size of another."""
    return picture.resize(other.size)


# ── Pictures beside texts ──


def _pictures_and_texts(
    loaded: Loaded, spec: CaptureSpec, rows: Path, static: Sequence[str]
) -> tuple[Captured, dict[str, Inputs]]:
    """Two pictures and three texts are captured: every picture is held against every text."""
    pixels, cases = _pictures(loaded, spec, rows, static)
    lines = [str(row.values.get("text") or LABELS[n % len(LABELS)]) for n, row in enumerate(_rows(spec))]
    assert pixels.free is not None
    counts = {"batch 1": 2, "batch 3": 4, "other pictures in the captured shape": 3}
    texts = [_tokens(loaded, lines[:3]), _tokens(loaded, lines[1:2]), _tokens(loaded, lines[2:3])]
    width = texts[0]["input_ids"].shape[1]
    mixed = {
        name: {
            **inputs,
            **_tokens(loaded, lines[4 : 4 + counts.get(name, 2)], width if counts.get(name) == 3 else None),
        }
        for name, inputs in cases.items()
    }
    free = (
        (pixels.free - {"batch_size"}) | {"image_batch_size", "text_batch_size"} | _varying(texts, ("sequence_length",))
    )
    return Captured({**pixels.inputs, **texts[0]}, frozenset(free - {*static}), pixels.limits), mixed


def _tokens(loaded: Loaded, lines: Sequence[str], width: int | None = None) -> Inputs:
    """Texts as the model was trained to read them: SigLIP's are always padded to its full length."""
    tokenizer, kind = loaded.tokenizer, loaded.model.config.model_type
    limit = width or min(tokenizer.model_max_length, loaded.model.config.get_text_config().max_position_embeddings)
    padding = "max_length" if width or kind.startswith("siglip") else True
    return _arrays(tokenizer(list(lines), padding=padding, truncation=True, max_length=limit, return_tensors="np"))


# ── Pictures or sounds in texts ──

QUESTIONS = (
    "What is this?",
    "Describe the picture in one sentence, please.",
    "What colours do you see in it?",
    "Is there a person?",
    "What would be a good title for this picture, and why do you think so?",
    "Name one thing in it.",
    "Where was this taken?",
    "What is in the middle of the picture?",
)
"""What pictures are asked where the dataset brings no texts: of different length."""

QUESTIONS_ABOUT_SOUNDS = (
    "What is this?",
    "Write down what is said, please.",
    "Who is it that speaks, and where could that be?",
    "Is there music?",
    "What would be a good title for this recording, and why do you think so?",
    "Name one thing that you hear.",
    "Is it loud?",
    "What comes first and what comes last in it?",
)
"""What sounds are asked, alike."""

LONGEST_GRID = 16
"""Rows and columns of tokens that a picture may become in a graph of bounded axes."""


def _items_in_texts(
    loaded: Loaded, spec: CaptureSpec, rows: Path, static: Sequence[str]
) -> tuple[Captured, dict[str, Inputs]]:
    """One picture or sound in each prompt; the batch is padded on the left, as a decoder generates."""
    if hears(loaded):
        rate = loaded.processor.feature_extractor.sampling_rate
        lengths = [round(seconds * rate) for seconds in (*CAPTURED_SECONDS, *HELD_OUT_SECONDS)]
        sounds = [media.sound(rows, row.values["audio"], rate) for row in _rows(spec)]
        items = [np.resize(sound, length) for sound, length in zip(sounds, lengths, strict=True)]
    else:
        pictures = [media.picture(rows, row.values["image"]) for row in _rows(spec)]
        items = [_cut(picture, 1 - 0.2 * (number % 4)) for number, picture in enumerate(pictures)]
    questions = QUESTIONS_ABOUT_SOUNDS if hears(loaded) else QUESTIONS
    texts = [str(row.values.get("text") or questions[n % len(questions)]) for n, row in enumerate(_rows(spec))]
    pairs = list(zip(items, texts, strict=True))
    cases = {
        "batch 1": pairs[2:3],
        "batch 1, another": pairs[4:5],
        "batch 3, left-padded": pairs[3:6],
        f"other {'sounds' if hears(loaded) else 'pictures'} and texts": pairs[6:8],
    }
    inputs = asked(loaded, pairs[:2])
    grid = {"grid_rows", "grid_columns"} if "image_grid_thw" in inputs else set()
    free = frozenset({"batch_size", "text_batch_size", "sequence_length", *grid} - {*static})
    captured = Captured(inputs, free, dict.fromkeys(sorted(grid), LONGEST_GRID))
    return captured, {name: asked(loaded, pairs) for name, pairs in cases.items()}


def hears(loaded: Loaded) -> bool:
    """Whether what stands in the texts is sound."""
    return hasattr(loaded.processor, "feature_extractor")


def asked(loaded: Loaded, pairs: Sequence[tuple[Any, str]]) -> Inputs:
    """What the processor makes of pictures or sounds and the questions about them, as turns of a chat where it knows
    how."""
    processor = loaded.processor
    if hears(loaded):
        items = {"audio": [item for item, _ in pairs], "sampling_rate": processor.feature_extractor.sampling_rate}
    else:
        items = {"images": [[item] for item, _ in pairs]}
    texts = [_question(loaded, text) for _, text in pairs]
    kinds = {"text_kwargs": {"padding": True}, "return_tensors": "pt"}  # some processors know no other kind
    made = processor(**items, text=texts, **kinds)
    return _arrays({k: value.numpy() for k, value in made.items() if k != "labels" and hasattr(value, "numpy")})


def _question(loaded: Loaded, text: str) -> str:
    processor, sense = loaded.processor, "audio" if hears(loaded) else "image"
    if getattr(processor, "chat_template", None):
        content = [{"type": sense}, {"type": "text", "text": text}]
        chat = [{"role": "user", "content": content}]
        return str(processor.apply_chat_template(chat, tokenize=False, add_generation_prompt=True))
    return f"{getattr(processor, f'{sense}_token')} {text}"


# ── Sounds ──


def _sounds(loaded: Loaded, spec: CaptureSpec, rows: Path, static: Sequence[str]) -> tuple[Captured, dict[str, Inputs]]:
    rate = loaded.feature_extractor.sampling_rate
    sounds = [media.sound(rows, row.values["audio"], rate) for row in _rows(spec)]
    lengths = [round(seconds * rate) | 1 for seconds in (*CAPTURED_SECONDS, *HELD_OUT_SECONDS)]
    cut = [np.resize(sound, length) for sound, length in zip(sounds, lengths, strict=True)]
    shaped = [np.resize(other, one.size) for other, one in zip(cut[2:4], cut[:2], strict=True)]
    free = _varying([features(loaded, [one]) for one in cut[:2]], ("sequence_length",)) | {"batch_size"}
    cases = {
        "batch 1": cut[2:3],
        "batch 1, short": cut[3:4],
        "batch 3": cut[3:6],
        "batch 1, long": [np.resize(cut[5], lengths[6])],
        "batch 2, long": cut[6:8],
        "other sounds in the captured shape": shaped,
    }
    pair = [np.resize(cut[0], lengths[7]), np.resize(cut[1], lengths[6])] if "sequence_length" in static else cut[:2]
    inputs = features(loaded, pair)
    longest = next(iter(inputs.values())).shape[1] * LONGEST_SOUND * rate / pair[1].size
    limits = {"sequence_length": round(longest)}
    return Captured(inputs, frozenset(free - {*static}), limits), {k: features(loaded, v) for k, v in cases.items()}


def features(loaded: Loaded, sounds: Sequence[np.ndarray]) -> Inputs:
    """What the feature extractor makes of the sounds, padded to the longest unless it has a length of its own."""
    extractor = loaded.feature_extractor
    padding = inspect.signature(extractor.__call__).parameters.get("padding")
    settings = {"padding": True} if padding is not None and padding.default in (False, None) else {}
    return _arrays(extractor(list(sounds), sampling_rate=extractor.sampling_rate, return_tensors="np", **settings))


# ── Series ──


def _series(loaded: Loaded, spec: CaptureSpec, rows: Path, static: Sequence[str]) -> tuple[Captured, dict[str, Inputs]]:
    """As many numbers as the model looks back at; further channels are the same series, later."""
    config = loaded.model.config
    length, channels = config.context_length, config.num_input_channels
    windows = [
        np.stack([np.resize(np.roll(row.values["series"], -13 * n), length) for n in range(channels)], axis=-1)
        for row in _rows(spec)
    ]
    captured, one, three, shaped = (
        {"past_values": np.stack(part).astype(np.float32)}
        for part in (windows[:2], windows[2:3], windows[3:6], windows[6:8])
    )
    cases = {"batch 1": one, "batch 3": three, "other series in the captured shape": shaped}
    return Captured(captured, frozenset({"batch_size"} - {*static})), cases


# ── What all of them need ──


def _rows(spec: CaptureSpec) -> tuple[Row, ...]:
    return (*spec.capture, *spec.held_out)


def _arrays(batch: Any) -> Inputs:
    """The arrays of what a processor returned; numbers are float32, everything that counts is int64."""
    arrays = {name: value for name, value in dict(batch).items() if isinstance(value, np.ndarray)}
    return {
        name: np.ascontiguousarray(value, np.float32 if value.dtype.kind == "f" else np.int64)
        for name, value in arrays.items()
    }


def _varying(batches: Sequence[Inputs], axes: Sequence[str]) -> set[str]:
    """Those of `axes` that differ between what the processor made of different items."""
    sizes = [sizes_of(batch) for batch in batches]
    return {axis for axis in axes if len({one.get(axis) for one in sizes}) > 1}


_MAKERS = {
    "picture": _pictures,
    "picture and text": _pictures_and_texts,
    "picture in text": _items_in_texts,
    "sound in text": _items_in_texts,
    "sound": _sounds,
    "series": _series,
}
