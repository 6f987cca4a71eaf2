"""The loop of examples/cpp: a cache that no step copies, in C++, against the runtime that ExecuTorch's wheel carries.

The wheel has headers and one shared library, made for Python: it needs Python's own to be linked. A device would link
ExecuTorch's static libraries instead, which no wheel has.
"""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from pipeline import Subject

from hub_exporter.loading import load
from hub_exporter.records import ExportOutcome

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler"),
    pytest.mark.skipif(
        not sysconfig.get_config_var("Py_ENABLE_SHARED"), reason="needs a Python that was built with a shared library"
    ),
]

SOURCE = Path(__file__).parents[2] / "examples" / "cpp" / "decode_loop.cpp"
STEPS = 24

Made = tuple[Subject, ExportOutcome, Path]


@pytest.fixture(scope="module")
def made(subject_named: Callable[[str], Subject]) -> Made:
    subject = subject_named("llama")
    options = {"generation": {"cache": "static"}, "alloc_graph_input": False, "alloc_graph_output": False}
    return subject, *subject.export("executorch-xnnpack", **options)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import executorch.extension.pybindings as bindings

    package = Path(bindings.__path__[0]).parents[1]
    folders = [package / "extension" / "pybindings", package / "backends" / "qualcomm", Path(torch.__path__[0]) / "lib"]
    libraries = [next(folders[0].glob("_portable_lib*.so")), next(folders[1].glob("libqnn*.so"))]
    python = sysconfig.get_config_var("LIBDIR")
    built = tmp_path_factory.mktemp("cpp") / "decode_loop"
    headers = [package / "include", package / "include/executorch/runtime/core/portable_type/c10"]
    command = ["g++", "-std=c++17", "-O1", "-DC10_USING_CUSTOM_GENERATED_MACROS", f"{SOURCE}", "-o", f"{built}"]
    command += [f"-I{folder}" for folder in headers]
    command += [*map(str, libraries), f"-L{python}", f"-lpython{sysconfig.get_config_var('LDVERSION')}"]
    command += [f"-Wl,-rpath,{folder}" for folder in (*folders, python)] + [f"-L{folders[2]}"]
    subprocess.run(command, check=True)
    return built


def test_the_loop_says_what_the_model_says(made: Made, program: Path) -> None:
    subject, _, files = made
    prompt = torch.from_numpy(subject.arrays["prompt 1/in/input_ids"])

    said = subprocess.run(
        [program, files / "model.pte", str(STEPS), *map(str, prompt[0].tolist())], capture_output=True, text=True
    )

    assert said.returncode == 0, said.stderr
    model = load(subject.model).model
    expected = model.generate(prompt, do_sample=False, max_new_tokens=STEPS, eos_token_id=-1)
    assert [int(word) for word in said.stdout.split()] == expected[0, prompt.shape[1] :].tolist()


def test_python_cannot_give_the_program_its_memory_and_says_so(made: Made) -> None:
    subject, outcome, files = made

    found = subject.verify("executorch-xnnpack", outcome, files)

    assert (found.passed, found.level) == (True, "loaded")
    assert "which ExecuTorch's Python runtime cannot give it" in found.reason


def test_the_order_of_the_outputs_is_the_cache_the_logits_and_the_cache_again(made: Made) -> None:
    (component,) = made[1].components
    cache = [port for port in component.inputs if port.name.startswith("cache_")]

    names = [port.name for port in component.outputs]

    assert len(cache) == 6, "keys, values and a counter for each of two layers"
    assert names == [*(f"mutated_{leaf}" for leaf in range(6)), "logits", *(port.name for port in cache)]
    assert [port.shape for port in component.outputs[:6]] == [port.shape for port in cache]
