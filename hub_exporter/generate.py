"""An exported repository runs from its files alone: a prompt in, text out, piece by piece.

For trying and proving, not a serving engine. The loop and the runners are those of verification; tokenizer, processor
and configuration are the ones beside the files.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from hub_exporter import backends, inputs, media
from hub_exporter.capture import Inputs
from hub_exporter.decoding import Loop
from hub_exporter.errors import UsageError
from hub_exporter.loading import Loaded, processors
from hub_exporter.records import Ask, ExportOutcome, Job
from hub_exporter.tasks import TASKS


def generate(job: Job, outcome: ExportOutcome, folder: Path, ask: Ask, say: Callable[[str], None]) -> None:
    """Answer `ask` with the files in `folder`, and `say` every piece of text as JSON, as soon as it is there.

    `job.model.folder` is where tokenizer and configuration lie. Raises UsageError for a question that such files cannot
    be asked.
    """
    root, task = Path(job.model.folder), TASKS[job.model.task]
    loaded = Loaded(model=None, notes=(), **processors(job.model, task.inputs, []))
    given = _given(loaded, task.inputs, task.layout, ask)
    least = max(part.min_length for part in outcome.components)
    if "input_ids" in given and given["input_ids"].shape[1] < least:
        raise UsageError(f"These files take {least} tokens of text at least", hint="Give a longer prompt")
    config = {**_read(root / "config.json"), **_read(root / "generation_config.json")}
    start = config.get("decoder_start_token_id") if task.layout == "seq2seq" else None
    loop = Loop(backends.get(job.backend).open_runner(folder, outcome), start, job.model.model_type)
    tokens = _tokens(loop, given, set(np.ravel(config.get("eos_token_id") or []).tolist()), ask.tokens)
    for piece in _pieces(_tokenizer(loaded, job), tokens):
        say(json.dumps(piece))


def _given(loaded: Loaded, kind: str, layout: str, ask: Ask) -> Inputs:
    """What is read before the first new token."""
    if kind == "picture in text":
        if ask.image is None:
            raise UsageError("This model reads a picture in its prompt", hint="Name one with `--image FILE`")
        return inputs.asked(loaded, [(_opened(ask.image, media.picture), ask.prompt)])
    if kind == "sound in text":
        return inputs.asked(loaded, [(_heard(ask, loaded.processor.feature_extractor), ask.prompt)])
    if kind == "sound":
        return inputs.features(loaded, [_heard(ask, loaded.feature_extractor)])
    if not ask.prompt:
        raise UsageError("There is no prompt", hint="Give one with `--prompt TEXT`")
    return _texts(loaded.tokenizer, layout, ask.prompt)


def _heard(ask: Ask, extractor: Any) -> np.ndarray:
    if ask.audio is None:
        raise UsageError("This model reads sound", hint="Name a file with `--audio FILE`")
    heard: np.ndarray = _opened(ask.audio, media.sound, extractor.sampling_rate)
    return heard


def _opened(file: str, read: Callable[..., Any], *settings: Any) -> Any:
    path = Path(file)
    try:
        return read(path.parent, {"file": path.name}, *settings)
    except Exception as error:  # Pillow and soundfile raise many kinds for a damaged file
        raise UsageError(f"`{file}` cannot be read: {error}", hint="Name a picture or a sound") from error


def _texts(tokenizer: Any, layout: str, prompt: str) -> Inputs:
    """A turn of a chat where the tokenizer knows how, the text as it is otherwise."""
    if layout == "decoder" and getattr(tokenizer, "chat_template", None):
        chat = [{"role": "user", "content": prompt}]
        prompt = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
        encoded = tokenizer(prompt, add_special_tokens=False, return_tensors="np")
    else:
        encoded = tokenizer(prompt, return_tensors="np")
    return {name: encoded[name].astype(np.int64) for name in ("input_ids", "attention_mask")}


def _tokens(loop: Loop, given: Inputs, stops: set[int], limit: int) -> Iterator[int]:
    token = 0
    for number in range(limit):
        logits = loop.go_on(np.array([[token]], np.int64)) if number else loop.begin(given)
        token = int(logits[0].argmax())
        if token in stops:
            return
        yield token


def _pieces(tokenizer: Any, tokens: Iterator[int]) -> Iterator[str]:
    """The text of the tokens, as far as it cannot change any more: a character may take several tokens."""
    read: list[int] = []
    said = ""
    for token in tokens:
        read.append(token)
        text = tokenizer.decode(read, skip_special_tokens=True)
        if not text.endswith("\ufffd"):
            yield text[len(said) :]
            said = text
    yield tokenizer.decode(read, skip_special_tokens=True)[len(said) :]


def _tokenizer(loaded: Loaded, job: Job) -> Any:
    return loaded.tokenizer or processors(job.model, "text", [])["tokenizer"]


def _read(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    return {key: value for key, value in msgspec.json.decode(path.read_bytes()).items() if value is not None}
