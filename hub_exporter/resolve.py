"""A source as the user wrote it -> one pinned state of a model, and what is known of it without loading it.

Everything that cannot be exported for a reason that its files tell is refused here, before anything costs time.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hub_exporter import hub
from hub_exporter.checkpoint import read_checkpoint
from hub_exporter.errors import SourceError
from hub_exporter.files import expanded, job_name, listing, require_config, require_inside, side_files, wanted
from hub_exporter.hub import Snapshot
from hub_exporter.metadata import (
    Json,
    context_length,
    has_vocabulary,
    other_modality,
    read_front_matter,
    read_json,
    read_modules,
    reads_pictures,
    text_of,
    texts_of,
)
from hub_exporter.records import ModelRequest, ResolvedModel, SourceFile
from hub_exporter.tasks import TASKS, Task, auto_class_of, task_of
from hub_exporter.weights import SnapshotWeights, file_of

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_PROCESSORS = ("preprocessor_config.json", "processor_config.json")
_TOKENIZERS = re.compile(r"tokenizer.*|vocab.*|.*\.(model|spm|tiktoken)")


def resolve(request: ModelRequest) -> ResolvedModel:
    """Pin the source of a request and read what its files say.

    Raises SourceError for a model that is missing, broken, unsafe or unsupported, HubError when the Hub fails.
    """
    source = request.settings.source
    try:
        return _resolved(request, _snapshot(source, request.settings.trust_remote_code))
    except OSError as error:
        raise SourceError(
            f"`{source}` cannot be read: {error.strerror}: `{error.filename}`",
            hint="Check the path and its permissions",
        ) from error


def _resolved(request: ModelRequest, snapshot: Snapshot) -> ResolvedModel:
    source, folder = request.settings.source, snapshot.folder
    present = listing(folder)
    require_inside(folder, wanted(present, code=True), source)
    config = _config(folder, source)
    tokenizer_config = read_json(folder, "tokenizer_config.json", source)
    read_json(folder, "generation_config.json", source)  # only that it can be read: loading would fail late
    architecture = _architecture(config, source)
    remote_code = _remote_code(config, tokenizer_config, request.settings.trust_remote_code, snapshot, source)
    modules = read_modules(folder, source)
    task, task_origin = _task(request, config, architecture, modules, folder)
    _check_modality(task, config, source)
    tied = config.get("tie_word_embeddings") is True
    checkpoint = read_checkpoint(folder, snapshot.names, source, SnapshotWeights(snapshot), tied=tied)
    carried = side_files(present)
    _check_processor(task, carried, source)
    code = [name for name in present if remote_code and name.endswith(".py")]
    files = tuple(file_of(snapshot, name) for name in sorted({*checkpoint.files, *carried, *code}))
    return ResolvedModel(
        source=source,
        name=job_name(snapshot.repo or folder.name),
        repo=snapshot.repo or None,
        revision=snapshot.revision,
        commit=snapshot.commit or _commit(files),
        folder=str(folder),
        task=task.name,
        task_origin=task_origin,
        auto_class=auto_class_of(task, architecture),
        architecture=architecture,
        model_type=str(config.get("model_type") or ""),
        sentence_transformers=bool(modules),
        remote_code=remote_code,
        parameters=checkpoint.parameters,
        weight_bytes=checkpoint.weight_bytes,
        dtypes=checkpoint.dtypes,
        context_length=context_length(config, tokenizer_config),
        padding_side=_padding_side(task, tokenizer_config),
        side_files=carried,
        files=files,
        **_card(folder, source),
    )


def _snapshot(source: str, consent: bool) -> Snapshot:
    """The files of a folder, which has no commit yet, or of the Hub."""
    folder = expanded(source)
    if folder.is_dir():
        names = listing(folder)
        require_config(names, source)
        return Snapshot("", None, "", folder.resolve(), names)
    if folder.exists():
        raise SourceError(f"`{source}` is a file, not the folder of a model", hint="Name the folder that it is in")
    repo, _, revision = source.partition("@")
    if not _HUB_ID.fullmatch(repo):
        raise SourceError(
            f"There is no folder `{source}`", hint="Name a folder, or a Hub id of the form `namespace/name[@revision]`"
        )
    return hub.fetch(repo, revision or None, code=consent, weights=False)


def _config(folder: Path, source: str) -> Json:
    config = read_json(folder, "config.json", source)
    method = config.get("quantization_config")
    if method is not None:
        named = f" (`{method['quant_method']}`)" if isinstance(method, dict) and "quant_method" in method else ""
        raise SourceError(
            f"`{source}` is quantised already{named}: such weights cannot be traced",
            hint="Name the original checkpoint that it was made from",
        )
    return config


def _architecture(config: Json, source: str) -> str:
    named = config.get("architectures")
    if not isinstance(named, list) or not named or not isinstance(named[0], str):
        raise SourceError(
            f"`{source}`: its `config.json` names no `architectures`",
            hint='Add the class that it was saved from, for example `"architectures": ["BertForMaskedLM"]`',
        )
    return str(named[0])


def _remote_code(config: Json, tokenizer_config: Json, consent: bool, snapshot: Snapshot, source: str) -> bool:
    remote = bool(config.get("auto_map") or tokenizer_config.get("auto_map"))
    if remote and not consent:
        raise SourceError(
            f"`{source}` brings its own Python code (`auto_map`), which would run on this machine",
            hint="Read the code; if you trust it, pass `--trust-remote-code` or set `trust-remote-code: true`",
        )
    if remote and snapshot.repo and not _COMMIT.fullmatch(snapshot.revision or ""):
        raise SourceError(
            f"`{source}` brings its own Python code, and may bring other code tomorrow",
            hint=f"Name the commit that you read and trust: `{snapshot.repo}@{snapshot.commit}`",
        )
    return remote


def _task(
    request: ModelRequest, config: Json, architecture: str, modules: Sequence[str], folder: Path
) -> tuple[Task, str]:
    """The task and what says so: the user, else the repository as a whole, else the class it was saved from."""
    source, asked = request.settings.source, request.settings.task
    implied = task_of(architecture, bool(config.get("is_encoder_decoder")), reads_pictures(config))
    if asked is not None:
        if implied is not None and TASKS[implied].tag == asked:  # the Hub's name for what the class does in its own way
            asked = implied
        return TASKS[asked], next((setting.origin for setting in request.origins if setting.key == "task"), "recipe")
    kind = read_json(folder, "config_sentence_transformers.json", source).get("model_type", "SentenceTransformer")
    if modules[:1] == ("Transformer",) and "Pooling" in modules and kind == "SentenceTransformer":
        return TASKS["sentence-similarity"], "modules.json"
    name = implied
    if name == "feature-extraction" and not has_vocabulary(config):
        raise SourceError(
            f"`{source}`: `{architecture}` has no `vocab_size` in its configuration, so it is not a text model",
            hint="Text models are supported; if it is one, pass `--task feature-extraction`",
        )
    if name is None:
        raise SourceError(
            f"`{source}`: the task of `{architecture}` is not known",
            hint="Pass `--task` with one of " + ", ".join(f"`{known}`" for known in TASKS),
        )
    return TASKS[name], architecture


def _check_modality(task: Task, config: Json, source: str) -> None:
    """A model of pictures or sounds is no text model, whatever its head is called. (One that speaks reads text.)"""
    modality = other_modality(config)
    if task.inputs == "text" and modality and task.name != "text-to-audio":
        raise SourceError(
            f"`{source}` is {modality} model, and `{task.name}` feeds a model with text alone",
            hint="Pass `--task` with what it is for: " + ", ".join(f"`{known}`" for known in _others()),
        )


def _others() -> list[str]:
    return [name for name, task in TASKS.items() if task.inputs != "text"]


def _check_processor(task: Task, carried: Sequence[str], source: str) -> None:
    """What the rows are made into inputs with must be in the repository."""
    if "text" in task.inputs and not any(_TOKENIZERS.fullmatch(name) for name in carried):
        raise SourceError(
            f"`{source}` has no tokenizer, so that no inputs can be made for it",
            hint="Save its tokenizer into the same folder",
        )
    if ("picture" in task.inputs or "sound" in task.inputs) and not set(_PROCESSORS) & set(carried):
        raise SourceError(
            f"`{source}` has no `{_PROCESSORS[0]}`, so that no inputs can be made for `{task.name}`",
            hint="Save its image processor or feature extractor into the same folder",
        )


def _padding_side(task: Task, tokenizer_config: Json) -> Any:
    side = tokenizer_config.get("padding_side")
    return side if task.layout == "encoder" and side in ("left", "right") else task.padding_side


def _card(folder: Path, source: str) -> dict[str, Any]:
    values = read_front_matter(folder, source)
    return {
        "license": text_of(values, "license"),
        "license_name": text_of(values, "license_name"),
        "license_link": text_of(values, "license_link"),
        "languages": texts_of(values, "language"),
        "tags": texts_of(values, "tags"),
    }


def _commit(files: Sequence[SourceFile]) -> str:
    """What stands in for a commit of a folder: it changes with any file that matters."""
    lines = "".join(f"{file.sha256}  {file.path}\n" for file in files)
    return "sha256:" + hashlib.sha256(lines.encode()).hexdigest()
