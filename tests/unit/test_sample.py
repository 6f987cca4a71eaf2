from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hub_exporter import builtin, hub, rows
from hub_exporter.errors import DatasetError, HubError
from hub_exporter.records import CaptureSpec, DatasetSpec
from hub_exporter.sample import draw
from hub_exporter.tasks import TASKS, Task

TEXTS = [("word " * (3 + 5 * number)).strip() + f" {number}" for number in range(20)]
FILL_MASK, CHAT = TASKS["fill-mask"], TASKS["text-generation"]


def jsonl(path: Path, records: list[Any]) -> DatasetSpec:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return DatasetSpec(path=str(path))


def refusal(spec: DatasetSpec | None, task: Task = FILL_MASK) -> DatasetError:
    with pytest.raises(DatasetError) as caught:
        draw(spec, task)
    return caught.value


def drawn(spec: CaptureSpec) -> list[str]:
    return [row.values["text"] for row in (*spec.capture, *spec.held_out, *spec.calibration)]


def test_rows_are_split_into_three_disjoint_sets(tmp_path: Path) -> None:
    spec = draw(jsonl(tmp_path / "rows.jsonl", [{"text": text} for text in TEXTS]), FILL_MASK)

    assert (len(spec.capture), len(spec.held_out), len(spec.calibration)) == (2, 6, 8)
    assert sorted(drawn(spec)) == sorted(TEXTS[:16])
    short, long = (len(row.values["text"]) for row in spec.capture)
    assert long >= 1.5 * short
    assert len({len(row.values["text"]) for row in spec.held_out}) == 6


def test_the_same_rows_give_the_same_sets_and_others_another_digest(tmp_path: Path) -> None:
    spec = jsonl(tmp_path / "rows.jsonl", [{"text": text} for text in TEXTS])
    first = draw(spec, FILL_MASK)
    assert draw(spec, FILL_MASK) == first

    jsonl(tmp_path / "rows.jsonl", [{"text": text + "!"} for text in TEXTS])
    assert draw(spec, FILL_MASK).digest != first.digest


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_builtin_rows_serve_every_task(task: Task, tmp_path: Path) -> None:
    spec = draw(DatasetSpec(path="builtin"), task, tmp_path)

    assert (len(spec.capture), len(spec.held_out), len(spec.calibration)) == (2, 6, 8)
    assert set(spec.capture[0].values) == set(task.reads[0])
    assert spec.revision is None


@pytest.mark.parametrize(("name", "count"), [("text", 24), ("pairs", 16), ("chat", 16)])
def test_builtin_sets_are_varied(name: str, count: int) -> None:
    records = list(builtin.rows(name))
    lengths = sorted(len(json.dumps(record)) for record in records)

    assert len({json.dumps(record) for record in records}) == len(records) == count
    assert lengths[-1] > 2 * lengths[0]


def test_empty_and_repeated_rows_are_left_out(tmp_path: Path) -> None:
    records = [{"text": text} for text in ["", "  ", *TEXTS[:8], *TEXTS[:8], None]]
    spec = draw(jsonl(tmp_path / "rows.jsonl", records), FILL_MASK)

    assert sorted(drawn(spec)) == sorted(TEXTS[:8])
    assert {row.id for row in spec.held_out} <= {str(number) for number in range(2, 10)}


def test_too_few_rows_are_refused_with_the_count(tmp_path: Path) -> None:
    records = [{"text": text} for text in [*TEXTS[:3], *TEXTS[:3], "", ""]]

    assert "has 3 usable rows of 8 (2 empty, 3 repeated): at least 8 are needed" in str(
        refusal(jsonl(tmp_path / "rows.jsonl", records))
    )


def test_equal_rows_are_refused(tmp_path: Path) -> None:
    assert "All 30 rows" in str(refusal(jsonl(tmp_path / "rows.jsonl", [{"text": "the same"}] * 30)))


def test_rows_of_one_length_are_refused(tmp_path: Path) -> None:
    error = refusal(jsonl(tmp_path / "rows.jsonl", [{"text": f"row number {number:03}"} for number in range(20)]))

    assert "all about as long" in str(error)
    assert "--dataset-rows" in str(error.hint)


def test_column_is_mapped(tmp_path: Path) -> None:
    spec = jsonl(tmp_path / "rows.jsonl", [{"sentence": text, "label": 1} for text in TEXTS])

    error = refusal(spec)
    assert "has no column `text` for `fill-mask`, it has `sentence`, `label`" in str(error)
    assert "`--dataset-columns text=<column>`" in str(error.hint)
    mapped = DatasetSpec(path=spec.path, columns={"text": "sentence"})
    assert drawn(draw(mapped, FILL_MASK))
    assert "has no column `sentense`, it has `sentence`, `label`" in str(
        refusal(DatasetSpec(path=spec.path, columns={"text": "sentense"}))
    )
    assert "expected text, got int" in str(refusal(DatasetSpec(path=spec.path, columns={"text": "label"})))
    assert "`fill-mask` does not read `txt`" in str(refusal(DatasetSpec(path=spec.path, columns={"txt": "sentence"})))


def test_pair_is_read_only_where_it_is_mapped(tmp_path: Path) -> None:
    spec = jsonl(tmp_path / "rows.jsonl", [{"text": text, "other": f"b {text}"} for text in TEXTS])
    task = TASKS["text-classification"]

    assert set(draw(spec, task).capture[0].values) == {"text"}
    mapped = DatasetSpec(path=spec.path, columns={"text_pair": "other"})
    assert set(draw(mapped, task).capture[0].values) == {"text", "text_pair"}


def test_question_and_context_are_found_under_their_names(tmp_path: Path) -> None:
    spec = jsonl(tmp_path / "rows.jsonl", [{"question": f"q {text}", "context": text} for text in TEXTS])
    (row, _) = draw(spec, TASKS["question-answering"]).capture

    assert row.values["text"] == f"q {row.values['text_pair']}"


def test_tokens_are_joined(tmp_path: Path) -> None:
    spec = jsonl(tmp_path / "rows.jsonl", [{"tokens": text.split()} for text in TEXTS])
    mapped = DatasetSpec(path=spec.path, columns={"text": "tokens"})

    assert sorted(drawn(draw(mapped, TASKS["token-classification"]))) == sorted(TEXTS[:16])


def conversation(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}, {"role": "assistant", "content": "Yes.", "extra": "x"}]


def test_conversation_ends_with_the_user(tmp_path: Path) -> None:
    spec = draw(jsonl(tmp_path / "rows.jsonl", [{"messages": conversation(text)} for text in TEXTS]), CHAT)

    for row in spec.held_out:
        (message,) = row.values["messages"]
        assert set(message) == {"role", "content"}
        assert message["role"] == "user"


def test_text_generation_reads_text_where_there_are_no_messages_or_it_is_mapped(tmp_path: Path) -> None:
    spec = jsonl(tmp_path / "rows.jsonl", [{"text": text} for text in TEXTS])
    assert set(draw(spec, CHAT).capture[0].values) == {"text"}

    both = jsonl(tmp_path / "both.jsonl", [{"text": text, "messages": conversation(text)} for text in TEXTS])
    assert set(draw(both, CHAT).capture[0].values) == {"messages"}
    mapped = DatasetSpec(path=both.path, columns={"text": "text"})
    assert set(draw(mapped, CHAT).capture[0].values) == {"text"}


@pytest.mark.parametrize(
    "messages",
    ["hello", [{"from": "human", "value": "hello"}], [{"role": "user", "content": [{"type": "image"}]}], ["hello"]],
)
def test_conversation_of_another_form_is_refused(tmp_path: Path, messages: Any) -> None:
    error = refusal(jsonl(tmp_path / "rows.jsonl", [{"messages": messages}] * 9), CHAT)

    assert "row 0, `messages`: expected a list of messages with `role` and `content`" in str(error)


# ── Files ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("rows.jsonl", "\n".join(json.dumps({"text": text}) for text in TEXTS) + "\n\n"),
        ("rows.json", json.dumps([{"text": text} for text in TEXTS])),
        ("rows.csv", "id,text\r\n" + "".join(f'{n},"{text}"\r\n' for n, text in enumerate(TEXTS))),
        ("rows.tsv", "\ufefftext\tid\n" + "".join(f"{text}\t{n}\n" for n, text in enumerate(TEXTS))),
        ("rows.txt", "\n".join(TEXTS)),
        ("ROWS.TXT", "\n\n".join(TEXTS)),
    ],
)
def test_files_of_rows_are_read(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content, encoding="utf-8", newline="")

    assert sorted(drawn(draw(DatasetSpec(path=str(tmp_path / name)), FILL_MASK))) == sorted(TEXTS[:16])


def test_quoted_line_ends_and_large_cells_of_a_csv_are_kept(tmp_path: Path) -> None:
    cells = ["one\ntwo", "x" * 200_000, *TEXTS[:8]]
    (tmp_path / "rows.csv").write_text("text\n" + "".join(f'"{cell}"\n' for cell in cells), newline="")

    assert set(cells) == set(drawn(draw(DatasetSpec(path=str(tmp_path / "rows.csv")), FILL_MASK)))


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("rows.jsonl", b'{"text": "a"}\n{"text": \n', "line 2 is not JSON"),
        ("rows.jsonl", b'["text"]\n', "line 1 is not an object"),
        ("rows.json", b'{"text": []}', "expected a list of rows"),
        ("rows.json", b"[3]", "row 0 is not an object"),
        ("rows.json", b"[" * 100_000, "is damaged"),
        ("rows.txt", b"caf\xe9\n", "is not text in UTF-8"),
        ("rows.jsonl", b"", "has no rows"),
        ("rows.csv", b"text\n", "has no rows"),
        ("rows.xml", b"<a/>", "cannot read such a file"),
    ],
)
def test_broken_files_are_refused(tmp_path: Path, name: str, content: bytes, words: str) -> None:
    (tmp_path / name).write_bytes(content)
    error = refusal(DatasetSpec(path=str(tmp_path / name)))

    assert words in str(error)
    assert name in str(error)
    assert error.hint


def test_missing_file_is_refused(tmp_path: Path) -> None:
    assert "There is no file" in str(refusal(DatasetSpec(path=str(tmp_path / "rows.jsonl"))))


# ── The Hub ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_dataset_that_cannot_be_reached_is_an_error_and_never_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(repo: str, revision: str | None = None) -> str:
        raise HubError(f"The Hub cannot be reached for `{repo}`", hint="Check the network")

    monkeypatch.setattr(hub, "dataset_commit", unreachable)
    error = refusal(None)

    assert "`Salesforce/wikitext`" in str(error)
    assert "`--dataset builtin`" in str(error.hint)


def test_dataset_of_the_hub_is_pinned_to_its_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {}

    def streamed(spec: DatasetSpec, *args: Any, **kwargs: Any) -> Any:
        asked.update(kwargs, path=args[0])
        return ({"text": text} for text in TEXTS)

    monkeypatch.setattr(hub, "dataset_commit", lambda repo, revision: f"sha of {revision}")
    monkeypatch.setattr(rows, "_streamed", streamed)
    spec = draw(DatasetSpec(path="org/rows", name="en", split="test", revision="v1"), FILL_MASK)

    assert asked == {"path": "org/rows", "name": "en", "split": "test", "revision": "sha of v1"}
    assert (spec.path, spec.name, spec.split, spec.revision) == ("org/rows", "en", "test", "sha of v1")


@pytest.mark.engine  # the datasets library imports torch to stream
def test_parquet_is_read_without_the_network(tmp_path: Path) -> None:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.table({"text": TEXTS}), tmp_path / "rows.parquet")
    (tmp_path / "broken.parquet").write_bytes(b"PAR1")

    assert sorted(drawn(draw(DatasetSpec(path=str(tmp_path / "rows.parquet")), FILL_MASK))) == sorted(TEXTS[:16])
    assert "broken.parquet` cannot be read" in str(refusal(DatasetSpec(path=str(tmp_path / "broken.parquet"))))
