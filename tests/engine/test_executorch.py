"""What only ExecuTorch needs: weights once, bounds that hold, weights outside of the program."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import zoo
from executorch.exir._serialize._named_data_store import NamedDataStore
from executorch.exir._serialize._program import PTEFile, deserialize_pte_binary, serialize_pte_binary
from executorch.exir.schema import Buffer, Program
from hypothesis import given, settings
from hypothesis import strategies as st
from pipeline import Subject, subject_of

from hub_exporter.backends import executorch, executorch_mlx, pte
from hub_exporter.errors import HubExporterError
from hub_exporter.export import ExportError
from hub_exporter.records import ExportOutcome

pytestmark = pytest.mark.engine

Made = tuple[Subject, ExportOutcome, Path]


# ── One copy of a weight ──


@pytest.fixture(scope="module")
def tied(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A language model that is little more than its tied embedding, with a context beyond what is planned at a time."""
    folder = tmp_path_factory.mktemp("tied")
    sizes = {"vocab_size": 8192, "hidden_size": 64, "num_hidden_layers": 1, "max_position_embeddings": 2048}
    config = zoo._config("LlamaConfig", **sizes, num_key_value_heads=2, tie_word_embeddings=True)
    subject = subject_of(
        zoo.write(zoo.Kind("tied", "a tied embedding", "AutoModelForCausalLM", config), folder / "model"), folder
    )
    return subject, *subject.export("executorch-xnnpack")


def test_a_tied_embedding_is_in_the_file_once_and_the_program_agrees(tied: Made) -> None:
    subject, outcome, files = tied

    found = subject.verify("executorch-xnnpack", outcome, files)

    assert (files / "model.pte").stat().st_size <= 1.03 * subject.model.weight_bytes
    assert (found.passed, found.level) == (True, "parity"), found.reason
    assert pte.share_constants(files / "model.pte") == 0, "nothing is left to share"


def test_without_sharing_the_file_is_nearly_twice_as_large(tied: Made) -> None:
    subject, _, files = tied

    whole = bytes(serialize_pte_binary(read(files / "model.pte"), extract_delegate_segments=True))

    assert len(whole) > 1.8 * subject.model.weight_bytes


def test_the_llm_runner_reads_a_program_whose_weights_are_shared(tied: Made) -> None:
    from executorch.extension.llm.runner import GenerationConfig, TextLLMRunner

    subject, _, files = tied
    said: list[str] = []
    runner = TextLLMRunner(str(files / "model.pte"), str(Path(subject.model.folder) / "tokenizer.json"))
    runner.generate("The cat sat", GenerationConfig(max_new_tokens=8, temperature=0.0, echo=False), said.append)

    assert said, "the C++ runner loads the program and generates"


@settings(max_examples=50)
@given(
    constants=st.lists(st.integers(0, 3), max_size=5),
    named=st.lists(st.integers(0, 3), max_size=5),
    sizes=st.lists(st.integers(1000, 5000), min_size=4, max_size=4),
)
def test_sharing_leaves_every_constant_and_every_named_blob_as_it_was(
    constants: list[int], named: list[int], sizes: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    blobs = [np.random.default_rng(index).bytes(size) for index, size in enumerate(sizes)]
    store = NamedDataStore()
    for index in named:
        store.add_named_data(f"blob {index}", blobs[index], alignment=16)
    buffers = [Buffer(storage=b""), *(Buffer(storage=blobs[index]) for index in dict.fromkeys(constants))]
    path = tmp_path_factory.mktemp("pte") / "model.pte"
    path.write_bytes(bytes(serialize_pte_binary(program(buffers, store), extract_delegate_segments=True)))
    before, size = read(path), path.stat().st_size

    shorter = pte.share_constants(path)

    after = read(path)
    assert [buffer.storage for buffer in after.program.constant_buffer] == [
        buffer.storage for buffer in before.program.constant_buffer
    ]
    assert contents(after) == contents(before) == {f"blob {index}": blobs[index] for index in named}
    shared = {index for index in set(named) & set(constants) if sizes[index] >= 1024}
    assert size - path.stat().st_size == shorter >= sum(sizes[index] for index in shared) - 128 * len(shared)
    assert bool(shorter) == bool(shared)


def program(buffers: list[Buffer], store: NamedDataStore) -> PTEFile:
    empty = Program(
        version=0,
        execution_plan=[],
        constant_buffer=buffers,
        backend_delegate_data=[],
        segments=[],
        constant_segment=None,  # type: ignore[arg-type]
    )
    return PTEFile(program=empty, named_data=store.get_named_data_store_output())


def read(path: Path) -> PTEFile:
    return deserialize_pte_binary(path.read_bytes())


def contents(file: PTEFile) -> dict[str, bytes]:
    data = file.named_data
    return {key: data.buffers[entry.buffer_index] for key, entry in data.pte_data.items()} if data else {}


# ── Bounds ──


def test_a_long_prompt_is_fed_in_pieces_that_the_program_says_it_takes(tied: Made) -> None:
    subject, outcome, files = tied
    (component,) = outcome.components
    loaded = executorch.open_runner(files, outcome)
    ids = np.random.default_rng(0).integers(5, 300, (1, 1500))

    loaded.start(1)
    pieces = [loaded.step(part, np.ones_like(part), part) for part in np.split(ids, [1024], axis=1)]

    assert component.inputs[0].shape == (1, 1024)
    assert constants(files, "get_max_seq_len", "get_max_context_len") == [1024, 2048]
    assert outcome.restrictions == (
        "batch 1",
        "at most 2048 tokens of text and answer together",
        "at most 1024 new tokens at a time",
    )
    from hub_exporter.loading import load

    with torch.no_grad():
        expected = load(subject.model).model(input_ids=torch.from_numpy(ids)).logits
    np.testing.assert_allclose(np.concatenate(pieces, axis=1), expected, atol=1e-3)


def constants(files: Path, *names: str) -> list[Any]:
    from executorch.runtime import Runtime

    loaded = Runtime.get().load_program(files / "model.pte")
    return [loaded.load_method(name).execute([])[0] for name in names]


def test_a_bound_beyond_the_engines_own_is_kept(tmp_path: Path) -> None:
    config = zoo._config("BertConfig", max_position_embeddings=1500, num_hidden_layers=1)
    subject = subject_of(
        zoo.write(zoo.Kind("long", "a long context", "AutoModel", config, special=True), tmp_path / "model"), tmp_path
    )

    outcome, files = subject.export("executorch-xnnpack")

    ids = np.full((1, 1400), 7)
    answer = executorch.open_runner(files, outcome).forward({"input_ids": ids, "attention_mask": np.ones_like(ids)})
    assert outcome.components[0].inputs[0].shape == (1, 1500)
    assert answer["last_hidden_state"].shape == (1, 1400, 32)


def test_a_lowering_that_fixes_a_free_axis_is_refused() -> None:
    executorch._check_axes({"input_ids": [1, 128]}, {"input_ids": [1, 128]})

    with pytest.raises(HubExporterError, match=r"`input_ids` is planned for \[1, 7\], not \[1, 128\]"):
        executorch._check_axes({"input_ids": [1, 128]}, {"input_ids": [1, 7]})


# ── Weights outside of the program ──


def test_weights_outside_of_the_program_are_written_and_loaded_with_it(
    subject_named: Callable[[str], Subject], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As CUDA's delegate keeps them; here it is the constants of the portable operators that are kept outside."""
    from executorch.exir import ExecutorchBackendConfig
    from transformers.exporters import exporter_executorch as engine

    outside = ExecutorchBackendConfig(external_constants=True)
    monkeypatch.setattr(engine, "_get_backend_config", lambda config: outside)
    subject = subject_named("bert")

    outcome, files = subject.export("executorch-xnnpack")

    assert outcome.components[0].data == "model.ptd"
    assert (files / "model.ptd").stat().st_size > 320 * 32 * 4, "the embedding at least"
    found = subject.verify("executorch-xnnpack", outcome, files)
    assert (found.passed, found.level) == (True, "parity"), found.reason
    assert subject.run_example("executorch-xnnpack", outcome, files), "the card's example takes both files"

    (files / "model.ptd").unlink()
    found = subject.verify("executorch-xnnpack", outcome, files)
    assert not found.passed


def test_no_file_is_written_for_a_program_that_keeps_all_of_its_weights(tied: Made) -> None:
    _, outcome, files = tied

    assert outcome.components[0].data is None
    assert not list(files.glob("*.ptd"))


# ── CUDA, on a machine without it ──


def test_cuda_on_a_machine_without_it_fails_with_what_to_do(subject_named: Callable[[str], Subject]) -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has CUDA: tests/gpu is for it")

    with pytest.raises(ExportError, match="CUDA is not available in this environment") as error:
        subject_named("bert").export("executorch-cuda")

    assert error.value.hint == "Run this job on a machine with an NVIDIA GPU and a CUDA build of torch"


def test_cuda_takes_a_language_model_with_its_cache_inside_only(subject_named: Callable[[str], Subject]) -> None:
    with pytest.raises(HubExporterError, match="with its static cache inside only"):
        subject_named("llama").export("executorch-cuda", generation={"cache": "dynamic"})


# ── MLX, without its delegate ──


def test_mlx_without_its_generated_files_fails_with_what_to_do(subject_named: Callable[[str], Subject]) -> None:
    with pytest.raises(ExportError, match="MLX delegate generated files not found") as error:
        subject_named("bert").export("executorch-mlx")

    assert "a Mac with Apple Silicon" in (error.value.hint or "")


@pytest.mark.parametrize("kind", ["llama", "bert"])
def test_the_graphs_for_mlx_agree_when_xnnpack_runs_them(
    kind: str, subject_named: Callable[[str], Subject], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One row, no mask, the cache outside: what is lowered to MLX is right, whoever computes it."""
    monkeypatch.setattr(executorch_mlx, "DEFAULTS", {"backend": "xnnpack"})
    monkeypatch.setattr(executorch_mlx, "missing_runtime", lambda: None)
    subject = subject_named(kind)

    outcome, files = subject.export("executorch-mlx")

    found = subject.verify("executorch-mlx", outcome, files)
    assert (found.passed, found.level) == (True, "parity"), found.reason
    assert bool(found.decodes) == (kind == "llama")
    assert subject.run_example("executorch-mlx", outcome, files)


def test_mlx_takes_no_static_cache(subject_named: Callable[[str], Subject]) -> None:
    with pytest.raises(HubExporterError, match="MLX takes no static cache"):
        subject_named("llama").export("executorch-mlx", generation={"cache": "static"})


# ── What cannot be run here, and what cannot be judged ──


def test_a_program_whose_delegate_is_missing_is_exported_and_no_more(tied: Made) -> None:
    subject, outcome, files = tied

    for backend, title in (("executorch-mlx", "MLX"), ("executorch-cuda", "CUDA")):
        found = subject.verify(backend, outcome, files)
        assert (found.passed, found.level, found.runtime) == (True, "exported", "")
        assert found.reason.endswith(f"as installed here has no {title} delegate")


def test_a_virtual_mac_does_not_run_mlx(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executorch, "missing_delegate", lambda name, title: None)
    assert executorch_mlx.missing_runtime() is None

    monkeypatch.setattr(executorch_mlx, "_virtual_mac", lambda: True)
    assert "virtual machine" in (executorch_mlx.missing_runtime() or "")


def test_a_bf16_program_that_loads_is_loaded_and_no_more(tied: Made) -> None:
    from hub_exporter.verify import verify

    subject, outcome, files = tied

    found = verify("executorch-xnnpack", outcome, files, subject.reference, subject.arrays, variant="bf16")

    assert (found.passed, found.level) == (True, "loaded")
    assert "how far `bf16` may differ from float32 is not decided" in found.reason
