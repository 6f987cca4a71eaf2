"""What the engine raises becomes a failed job that ends with the engine's last line and a hint."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pipeline import Subject

from hub_exporter.errors import HubExporterError, UsageError
from hub_exporter.export import ExportError, hint_for, last_line

pytestmark = pytest.mark.engine


def test_an_architecture_that_cannot_be_traced_fails_with_the_engines_last_line(
    subject_named: Callable[[str], Subject], monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers.models.bert.modeling_bert import BertEmbeddings

    forward = BertEmbeddings.forward

    def data_dependent(self: Any, input_ids: Any, **kwargs: Any) -> Any:
        return forward(self, input_ids, **kwargs) * (2 if input_ids.sum().item() > 10 else 1)

    subject = subject_named("bert")
    monkeypatch.setattr(BertEmbeddings, "forward", data_dependent)

    with pytest.raises(ExportError, match="The engine cannot export `model`: ") as error:
        subject.export("dynamo")
    assert "depends on values of its input" in (error.value.hint or "")


def test_an_option_that_the_engine_refuses_is_the_users_to_change(subject_named: Callable[[str], Subject]) -> None:
    subject = subject_named("bert")
    job = subject.job("onnx")
    from hub_exporter import backends
    from hub_exporter.export import engine_config
    from hub_exporter.graphs import Graph
    from hub_exporter.records import EngineOptions

    options = EngineOptions(ort_fusions="cpu", optimize=False)  # the recipe refuses this pair; the engine does too

    with pytest.raises(UsageError, match="`ort_fusions` requires `optimize=True`"):
        engine_config(backends.get(job.backend), options, Graph(None, {}, None))  # type: ignore[arg-type]


def test_the_last_line_is_that_of_the_cause() -> None:
    error = RuntimeError("export_program failed on component 'decode'")
    error.__cause__ = ValueError("first line\n\n  the real reason\n")

    assert last_line(error) == "ValueError: the real reason"


def test_an_error_without_a_text_is_named() -> None:
    assert last_line(AssertionError()) == "AssertionError without a text"


def test_an_error_that_ends_in_advice_is_told_by_its_first_line() -> None:
    advice = "For C++ stack trace, run with SOME_FLAG=1\n  in a file, line 4"
    error = RuntimeError(f"Could not guard on Eq(u0, 0) (unhinted: Eq(u0, 0))\n\n{advice}")

    assert last_line(error) == "RuntimeError: Could not guard on Eq(u0, 0)"


def test_every_failure_has_a_hint() -> None:
    assert "docs/coverage.md" in hint_for(ValueError("something new"))
    assert "NVIDIA GPU" in hint_for(RuntimeError("CUDA is not available in this environment"))


def test_a_graph_of_which_nothing_was_delegated_is_a_failure(
    subject_named: Callable[[str], Subject], monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers.exporters import exporter_executorch as engine

    prepare = engine._BACKEND_PREPARE["xnnpack"]
    without = lambda model, inputs: (*prepare(model, inputs)[:2], [])  # noqa: E731
    monkeypatch.setitem(engine._BACKEND_PREPARE, "xnnpack", without)

    with pytest.raises(HubExporterError, match="Nothing of `model` was delegated to XNNPACK"):
        subject_named("bert").export("executorch-xnnpack", dynamic_shapes={"sequence_length": {"max": 64}})
