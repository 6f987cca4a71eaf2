"""What the tests do with hub-exporter, in a process that has the test Hub in its environment."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import made_up
import msgspec
from huggingface_hub import CommitOperationAdd, HfApi

from hub_exporter import push
from hub_exporter.errors import HubExporterError
from hub_exporter.records import JobResult, ModelRun, Publication, ResolvedModel, SourceFile

api = HfApi()


def model(**changes: Any) -> ResolvedModel:
    files = (SourceFile(path="model.safetensors", size=3, sha256=changes.pop("weights", "ab" * 32)),)
    for name in ("side_files", "tags", "languages"):
        if name in changes:
            changes[name] = tuple(changes[name])
    return made_up.encoder(**{"repo": "org/source", "source": "org/source", "files": files, **changes})


def run(backends: Sequence[str] = ("onnx",), salt: str = "", extra: int = 0, **changes: Any) -> ModelRun:
    """A run whose programs are binary, and `extra` more files; another `salt` gives other files."""
    folder = Path(tempfile.mkdtemp())
    source = model(**changes)
    results = tuple(_result(backend, salt, extra, source) for backend in backends)
    for path in source.side_files:
        made_up.write(folder / "source" / path, made_up.content(path))
    for result in results:
        for artifact in result.artifacts:
            made_up.write(folder / "work" / result.job / artifact.path, content(artifact.path, salt))
    source = msgspec.structs.replace(source, folder=str(folder / "source"))
    return ModelRun(model=source, work=str(folder / "work"), capture=made_up.capture(), results=results)


def _result(backend: str, salt: str, extra: int, source: ResolvedModel) -> JobResult:
    made = made_up.passed(backend, source.name)
    paths = [*(artifact.path for artifact in made.artifacts), *(f"{made.folder}/part-{n}.bin" for n in range(extra))]
    artifacts = tuple(made_up.artifact(path, content(path, salt)) for path in paths)
    return msgspec.structs.replace(made, artifacts=artifacts)


def content(path: str, salt: str) -> bytes:
    data = made_up.content(path)
    return data if path.endswith((".json", ".data")) else b"\0" + salt.encode() + data


def told(call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """A publication as plain values, or the error as a list."""
    try:
        value = call(*args, **kwargs)
    except HubExporterError as error:
        return [type(error).__name__, str(error), error.hint]
    return json.loads(msgspec.json.encode(value)) if isinstance(value, Publication) else value


def publish(repo: str, made: dict[str, Any] | None = None, **options: Any) -> Any:
    return told(push.publish, repo, run(**(made or {})), **options)


def prepare(repo: str, made: dict[str, Any] | None = None, folders: Sequence[str] = ("onnx",), **options: Any) -> Any:
    return told(push.prepare_repository, repo, run(**(made or {})).model, 1, folders, **options)


def put(repo: str, files: dict[str, str | bytes], **options: Any) -> str:
    """Somebody else's commit."""
    contents = {path: data if isinstance(data, bytes) else data.encode() for path, data in files.items()}
    operations = [CommitOperationAdd(path, data) for path, data in contents.items()]
    return api.create_commit(repo, operations, commit_message="by hand", **options).oid


def kinds(publication: dict[str, Any]) -> dict[str, int]:
    names = [change["kind"] for change in publication["files"]]
    return {name: names.count(name) for name in sorted(set(names))}


def state(repo: str, revision: str = "main") -> dict[str, str]:
    """Path -> digest."""
    info = api.model_info(repo, revision=revision, files_metadata=True)
    return {file.rfilename: file.lfs.sha256 if file.lfs else file.blob_id for file in info.siblings}


def read(repo: str, path: str, revision: str | None = None) -> str:
    return Path(api.hf_hub_download(repo, path, revision=revision)).read_bytes().decode("utf-8", "surrogateescape")
