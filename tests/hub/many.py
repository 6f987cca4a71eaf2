"""Many published repositories, put straight into the store of the test Hub: publishing each would take minutes.

python many.py DATA COUNT      makes `lab/m0`, `org/m0-exports` and so on; every fifth is exported into its own
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import made_up
import msgspec
from hub_server.store import MAIN, Entry, Store

from hub_exporter import keys, pins
from hub_exporter.card import render_card
from hub_exporter.records import Index, Job, JobResult, ResolvedModel, SourceFile, to_json

LARGE = (".safetensors", ".onnx", ".bin", ".pte", ".pt2")
BACKENDS = ("onnx", "openvino")


def put(store: Store, path: str, data: bytes) -> Entry:
    if not path.endswith(LARGE):
        return store.blob(data)
    sha256 = hashlib.sha256(data).hexdigest()
    store.lfs_path(sha256).write_bytes(data)
    return store.lfs(sha256)


def source_files(number: int) -> dict[str, bytes]:
    return {
        "config.json": json.dumps({"number": number}).encode(),
        "model.safetensors": b"\0weights of %d" % number,
        "tokenizer.json": b"{}",
        "README.md": b"# A model\n",
    }


def model_of(name: str, commit: str, files: dict[str, Entry], contents: dict[str, bytes]) -> ResolvedModel:
    made = tuple(
        SourceFile(
            path=path,
            size=entry["size"],
            sha256=hashlib.sha256(contents[path]).hexdigest(),
            blob=None if "lfs" in entry else entry["oid"],
        )
        for path, entry in sorted(files.items())
        if path in contents and path != "README.md"
    )
    return made_up.encoder(
        source=name,
        name=name.partition("/")[2],
        repo=name,
        revision=None,
        commit=commit,
        files=made,
        side_files=("config.json", "tokenizer.json"),
        languages=(),
    )


def result_of(job: Job) -> JobResult:
    made = made_up.passed(job.backend, job.model.name)
    export = msgspec.structs.replace(made.export, versions={})
    made = msgspec.structs.replace(made, export=export)
    return keys.with_key(made, job, made_up.capture(), pins.locked(job.backend))


def index_of(model: ResolvedModel, side: dict[str, bytes]) -> Index:
    jobs = [made_up.job(name, model, dataset=made_up.dataset(), pins=pins.digest(name)) for name in BACKENDS]
    beside = tuple(made_up.artifact(path, data) for path, data in side.items())
    return msgspec.structs.replace(made_up.index(model, tuple(map(result_of, jobs))), side_files=beside)


def publish(store: Store, number: int, own: bool) -> None:
    contents = source_files(number)
    source = store.create("models", f"lab/m{number}", "alice")
    files = {path: put(store, path, data) for path, data in contents.items()}
    commit = source.commit(MAIN, files, "model", "alice")
    target = source if own else store.create("models", f"org/m{number}-exports", "alice")
    side = {} if own else {path: contents[path] for path in ("config.json", "tokenizer.json")}
    index = index_of(model_of(source.name, commit, files, contents), side)
    made = {artifact.path: made_up.content(artifact.path) for job in index.jobs for artifact in job.artifacts}
    made |= side | {"hub-exporter.json": to_json(index), "README.md": render_card(index, own=own).encode()}
    there = target.files(target.refs[MAIN])
    target.commit(MAIN, there | {path: put(store, path, data) for path, data in made.items()}, "exports", "alice")


if __name__ == "__main__":
    hub = Store(Path(sys.argv[1]))
    for count in range(int(sys.argv[2])):
        publish(hub, count, own=count % 5 == 4)
