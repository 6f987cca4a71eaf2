"""A realistic made-up run of two models: the records that the tests of cards, folders and reports start from."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec

from hub_exporter.records import (
    Artifact,
    CaptureSpec,
    CaseResult,
    Component,
    DatasetSpec,
    DecodeResult,
    EngineOptions,
    ExportOutcome,
    Figure,
    Index,
    Job,
    JobKey,
    JobRecipe,
    JobResult,
    ModelRun,
    Port,
    ResolvedModel,
    Row,
    Verification,
)

COMMIT = "c9745ed1d9f207416be6d2e6f8de32d1f16199bf"

VERSIONS = {
    "torch": "2.13.0+cpu",
    "transformers": "5.24.0",
    "numpy": "2.4.6",
    "tokenizers": "0.23.3",
    "onnxruntime": "1.32.0",
    "openvino": "2026.3.1",
    "executorch": "1.4.1",
}

FILES = {
    "onnx": ("onnx", "model.onnx", ("export.json", "model.onnx", "model.onnx.data")),
    "openvino": ("openvino", "openvino_model.xml", ("export.json", "openvino_model.bin", "openvino_model.xml")),
    "executorch-xnnpack": ("executorch/xnnpack", "model.pte", ("export.json", "model.pte")),
    "executorch-mlx": ("executorch/mlx", "model.pte", ("export.json", "model.pte")),
    "executorch-cuda": ("executorch/cuda", "model.pte", ("export.json", "model.pte", "model.ptd")),
    "dynamo": ("pt2", "model.pt2", ("export.json", "model.pt2")),
}
"""Backend -> folder, program, files."""

SIDE_FILES = ("config.json", "tokenizer.json", "tokenizer_config.json", "1_Pooling/config.json")


def artifact(path: str, content: bytes) -> Artifact:
    blob = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
    return Artifact(path=path, size=len(content), sha256=hashlib.sha256(content).hexdigest(), blob=blob)


def content(path: str) -> bytes:
    """What a made-up file holds; the data file beside an ONNX graph is empty."""
    if path.endswith(".json") and "/" not in path:
        return f'{{\n  "what": "contents of {path}"\n}}\n'.encode()
    return b"" if path.endswith(".onnx.data") else f"contents of {path}\n".encode() * 7


def encoder(**changes: object) -> ResolvedModel:
    model = ResolvedModel(
        source="sentence-transformers/all-MiniLM-L6-v2",
        name="all-MiniLM-L6-v2",
        repo="sentence-transformers/all-MiniLM-L6-v2",
        revision="main",
        commit=COMMIT,
        folder="/somewhere/all-MiniLM-L6-v2",
        task="sentence-similarity",
        task_origin="modules.json",
        auto_class="AutoModel",
        architecture="BertModel",
        model_type="bert",
        sentence_transformers=True,
        parameters=22713216,
        weight_bytes=90868376,
        dtypes={"F32": 22713216},
        context_length=512,
        license="apache-2.0",
        languages=("en",),
        tags=("sentence-transformers", "pytorch", "safetensors", "feature-extraction", "arxiv:1904.06472"),
        side_files=SIDE_FILES,
    )
    return msgspec.structs.replace(model, **changes)


def decoder(**changes: object) -> ResolvedModel:
    return encoder(
        source="HuggingFaceTB/SmolLM2-135M-Instruct",
        name="SmolLM2-135M-Instruct",
        repo="HuggingFaceTB/SmolLM2-135M-Instruct",
        task="text-generation",
        task_origin="LlamaForCausalLM",
        auto_class="AutoModelForCausalLM",
        architecture="LlamaForCausalLM",
        model_type="llama",
        sentence_transformers=False,
        parameters=134515008,
        weight_bytes=538090408,
        dtypes={"F32": 134515008},
        context_length=8192,
        padding_side="left",
        tags=(),
        side_files=("config.json", "generation_config.json", "tokenizer.json"),
        **changes,
    )


def job(backend: str, model: ResolvedModel | None = None, **changes: object) -> Job:
    model = model or encoder()
    made = Job(
        name=f"{model.name}.{backend}.fp32",
        model=model,
        backend=backend,
        variant="fp32",
        engine=EngineOptions(),
        dataset=None,
        runner="ubuntu-latest",
        python="3.12",
        time_limit=3600,
        minutes=255,
        target="org/exports",
    )
    return msgspec.structs.replace(made, **changes)


def port(name: str, *shape: int | str, dtype: str = "int64") -> Port:
    return Port(name=name, dtype=dtype, shape=shape)


def encoder_ports() -> dict[str, tuple[Port, ...]]:
    axes = ("batch_size", "sequence_length")
    return {
        "inputs": tuple(port(name, *axes) for name in ("input_ids", "token_type_ids", "attention_mask")),
        "outputs": (
            port("last_hidden_state", *axes, 384, dtype="float32"),
            port("pooler_output", "batch_size", 384, dtype="float32"),
        ),
    }


def decoder_ports(backend: str) -> dict[str, tuple[Port, ...]]:
    logits = port("logits", "batch_size", "sequence_length", 49152, dtype="float32")
    if backend in ("executorch-xnnpack", "executorch-cuda"):
        return {"inputs": (port("input_ids", 1, 512), port("cache_position", 512)), "outputs": (logits,)}
    if backend == "executorch-mlx":
        cache = tuple(port(f"cache_{leaf}", 1, 3, 512, 64, dtype="float32") for leaf in range(4))
        return {
            "inputs": (port("input_ids", 1, 512), port("position_ids", 1, 512), *cache),
            "outputs": (logits, *cache),
        }
    inputs = [port(name, "batch_size", "sequence_length") for name in ("input_ids", "attention_mask", "position_ids")]
    if backend == "openvino":
        inputs.append(port("beam_idx", "batch_size", dtype="int32"))
    outputs = [logits]
    if backend == "onnx":
        past = ("batch_size", "num_key_value_heads", "past_sequence_length", "head_dim")
        present = ("batch_size", 3, "total_sequence_length", 64)
        inputs += [port(f"past_key_values.0.{part}", *past, dtype="float32") for part in ("key", "value")]
        outputs += [port(f"present.0.{part}", *present, dtype="float32") for part in ("key", "value")]
    return {"inputs": tuple(inputs), "outputs": tuple(outputs)}


def outcome(backend: str, layout: str = "encoder", **changes: object) -> ExportOutcome:
    ports = encoder_ports() if layout == "encoder" else decoder_ports(backend)
    data = "model.ptd" if backend == "executorch-cuda" else None
    static = layout == "decoder" and backend in ("executorch-xnnpack", "executorch-cuda")
    export = ExportOutcome(
        components=(Component(name="model", file=FILES[backend][1], data=data, **ports),),
        layout="static-decoder" if static else layout,
        restrictions=("batch 1", "at most 512 tokens") if backend.startswith("executorch") else (),
        versions=VERSIONS,
        seconds={"load": 1.2, "trace": 9.8, "save": 0.9},
        options={"dynamic": True},
    )
    return msgspec.structs.replace(export, **changes)


def figure(max_abs: float | None = 2.4e-07, **changes: object) -> Figure:
    made = Figure(output="last_hidden_state", max_abs=max_abs, max_rel=max_abs, cosine=0.9999999)
    return msgspec.structs.replace(made, **changes)


def verification(layout: str = "encoder", **changes: object) -> Verification:
    decodes = tuple(
        DecodeResult(case=f"prompt {row}", prompts=1, tokens=32, agreed=32, max_abs=4e-05, passed=True)
        for row in range(3)
    )
    made = Verification(
        level="parity",
        reason="agrees on 6 held-out rows at batch sizes 1 and 3",
        passed=True,
        runtime="onnxruntime 1.32.0",
        tolerance={"max_rel": 1e-4},
        cases=(
            CaseResult(case="capture", shape=(2, 9), figures=(figure(),), passed=True),
            CaseResult(case="batch 1", shape=(1, 5), figures=(figure(1.1e-07),), passed=True),
        ),
        decodes=() if layout == "encoder" else decodes,
    )
    return msgspec.structs.replace(made, **changes)


def passed(backend: str, model: str = "all-MiniLM-L6-v2", layout: str = "encoder", **changes: object) -> JobResult:
    folder, _, names = FILES[backend]
    paths = [f"{folder}/{name}" for name in names]
    result = JobResult(
        job=f"{model}.{backend}.fp32",
        backend=backend,
        variant="fp32",
        status="passed",
        folder=folder,
        export=outcome(backend, layout),
        verification=verification(layout),
        artifacts=tuple(artifact(path, content(path)) for path in paths),
        seconds=41.3,
        peak_memory=1_340_000_000,
        key=key(),
        recipe=JobRecipe(task="sentence-similarity" if layout == "encoder" else "text-generation"),
    )
    return msgspec.structs.replace(result, **changes)


def key() -> JobKey:
    return JobKey(source="50" * 32, recipe="4e" * 32, rows=capture().digest, pins="b1" * 32, layout=1)


def not_passed(backend: str, status: str, reason: str, model: str = "all-MiniLM-L6-v2", **changes: object) -> JobResult:
    result = JobResult(job=f"{model}.{backend}.fp32", backend=backend, variant="fp32", status=status, reason=reason)
    return msgspec.structs.replace(result, **changes)


def capture() -> CaptureSpec:
    rows = [Row(id=str(number), values={"text": f"row number {number}"}) for number in range(16)]
    return CaptureSpec(
        path="rajpurkar/squad",
        split="train",
        revision="7b6d24c440a36b6815f21b70d25016731768db1f",
        digest="sha256:" + "ab" * 32,
        capture=tuple(rows[:2]),
        held_out=tuple(rows[2:8]),
        calibration=tuple(rows[8:]),
    )


def dataset() -> DatasetSpec:
    return DatasetSpec(path="rajpurkar/squad", split="train")


def index(model: ResolvedModel | None = None, jobs: tuple[JobResult, ...] | None = None) -> Index:
    model = model or encoder()
    return Index(
        tool="hub-exporter 0.1.0",
        source=model,
        capture=capture(),
        jobs=jobs if jobs is not None else tuple(passed(backend) for backend in FILES),
        side_files=tuple(artifact(path, content(path)) for path in model.side_files),
    )


def run(
    folder: Path, results: tuple[JobResult, ...], model: ResolvedModel | None = None, work: Path | None = None
) -> ModelRun:
    """A run with real files: the source's under `folder/source`, those of passed jobs under `work`."""
    model = msgspec.structs.replace(model or encoder(), folder=str(folder / "source"))
    work = work or folder / "work"
    for path in model.side_files:
        write(folder / "source" / path, content(path))
    for result in results:
        for made in result.artifacts:
            write(work / result.job / made.path, content(made.path))
    return ModelRun(model=model, work=str(work), capture=capture(), results=results)


def write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
