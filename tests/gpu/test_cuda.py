"""ExecuTorch for CUDA, on a machine that has it: `pytest -m gpu tests/gpu`. Everywhere else it is skipped.

It needs an NVIDIA GPU, a CUDA build of torch and its compiler (`nvcc`, `ptxas`). The wheels of ExecuTorch have no CUDA
delegate: with one that was built from source the files are run too, without it their level is `exported`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from executorch.exir._serialize._program import deserialize_pte_binary
from pipeline import Subject, subject

from hub_exporter.backends import executorch, executorch_cuda
from hub_exporter.records import ExportOutcome

pytestmark = [
    pytest.mark.engine,
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU and a CUDA build of torch"),
]

Made = tuple[Subject, ExportOutcome, Path]


@pytest.fixture(scope="module", params=["bert", "llama"])
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Made:
    model = subject(request.param, tmp_path_factory.mktemp("cuda"))
    return model, *model.export("executorch-cuda")


def test_the_weights_lie_beside_the_program(made: Made) -> None:
    model, outcome, files = made
    (component,) = outcome.components

    program = deserialize_pte_binary((files / component.file).read_bytes()).program
    assert [delegate.id for delegate in program.execution_plan[0].delegates] == ["CudaBackend"]
    assert component.data == "model.ptd"
    assert (files / component.data).stat().st_size >= 0.45 * model.model.weight_bytes, "bf16: half of float32"
    assert (files / component.file).stat().st_size < (files / component.data).stat().st_size + 50_000_000


def test_the_card_says_what_the_files_need(made: Made) -> None:
    major, minor = torch.cuda.get_device_capability()

    assert any(text.startswith(f"compiled for compute capability {major}.{minor} ") for text in made[1].restrictions)


def test_the_level_is_what_could_be_shown(made: Made) -> None:
    model, outcome, files = made

    found = model.verify("executorch-cuda", outcome, files)

    assert found.passed, found.reason
    assert found.level == ("loaded" if executorch_cuda.missing_runtime() is None else "exported")


def test_the_answers_are_those_of_the_model_rounded_to_bfloat16(made: Made) -> None:
    if executorch_cuda.missing_runtime() is not None:
        pytest.skip("this build of ExecuTorch has no CUDA delegate")
    model, outcome, files = made
    case = next(case for case in model.reference.cases if case.batch == 1)
    inputs = {name: model.arrays[f"{case.name}/in/{name}"] for name in case.inputs}
    runner = executorch.open_runner(files, outcome)

    if outcome.layout == "static-decoder":
        runner.start(1)
        name, answer = "logits", runner.step(inputs["input_ids"], inputs["attention_mask"], inputs["input_ids"])
    else:
        name, answer = "last_hidden_state", runner.forward(inputs)["last_hidden_state"]

    expected = model.arrays[f"{case.name}/out/{name}"]
    assert np.abs(answer - expected).max() <= 0.1 * np.abs(expected).max(), "no more than rounding: eight bits"
