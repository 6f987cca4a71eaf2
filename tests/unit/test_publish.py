"""Writing a target: all of it or nothing, and never anybody else's files."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import made_up
import msgspec
import pytest

from hub_exporter import folder, publish
from hub_exporter.card import render_card
from hub_exporter.errors import HubExporterError, TargetError
from hub_exporter.records import INDEX_FILE, Index, SourceFile, from_json, to_json
from hub_exporter.section import BEGIN, END


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "place" / "out"


def snapshot(root: Path) -> dict[str, bytes]:
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def index_of(target: Path) -> Index:
    return from_json((target / INDEX_FILE).read_bytes(), Index)


def export(tmp_path: Path, target: Path, *results, model=None, **options) -> bool:
    """One whole run: its files are made in a working folder beside the target, as a real run does."""
    with publish.open_work(target) as work:
        run = made_up.run(tmp_path, results or (made_up.passed("onnx"),), model, work)
        return publish.write_folder(target, run, **options)


def leftovers(target: Path) -> list[str]:
    return [path.name for path in target.parent.iterdir() if path != target] if target.parent.exists() else []


# ── A new target ──


def test_a_new_target_holds_files_side_files_card_and_index(tmp_path, target):
    assert export(tmp_path, target, made_up.passed("onnx"), made_up.passed("executorch-xnnpack"))

    files = snapshot(target)
    assert set(files) == {
        "README.md",
        INDEX_FILE,
        *made_up.SIDE_FILES,
        "onnx/export.json",
        "onnx/model.onnx",
        "onnx/model.onnx.data",
        "executorch/xnnpack/export.json",
        "executorch/xnnpack/model.pte",
    }
    assert files["onnx/model.onnx"] == made_up.content("onnx/model.onnx")
    assert files["tokenizer.json"] == made_up.content("tokenizer.json")
    assert leftovers(target) == []


def test_the_index_lists_every_file_with_its_digest(tmp_path, target):
    export(tmp_path, target)

    index = index_of(target)
    listed = {artifact.path for artifact in [*index.side_files, *index.jobs[0].artifacts]}
    assert listed == set(snapshot(target)) - {INDEX_FILE}
    assert all(folder.holds(target, artifact) for artifact in index.side_files)


def test_the_card_can_be_made_again_from_the_index(tmp_path, target):
    export(tmp_path, target)

    assert render_card(index_of(target)) == (target / "README.md").read_text()


def test_the_index_says_nothing_of_the_machine_nor_what_the_rows_say(tmp_path, target):
    failed = made_up.not_passed("openvino", "failed", f"{tmp_path}/place broke", log=f"{tmp_path}/log.txt")
    export(tmp_path, target, made_up.passed("onnx"), failed, model=made_up.encoder(repo=None, source=f"{tmp_path}/m"))

    text = (target / INDEX_FILE).read_text()
    assert "row number" not in text
    assert f"{tmp_path}/source" not in text
    assert f"{tmp_path}/m" not in text
    assert "log.txt" not in text
    assert [row.id for row in index_of(target).capture.capture] == ["0", "1"]


def test_files_are_readable_by_others_whatever_their_writer_chose(tmp_path, target):
    previous = os.umask(0o022)
    try:
        run = made_up.run(tmp_path, (made_up.passed("onnx"),))
        (Path(run.work) / run.results[0].job / "onnx/model.onnx").chmod(0o600)
        publish.write_folder(target, run)
    finally:
        os.umask(previous)

    assert (target / "onnx/model.onnx").stat().st_mode & 0o777 == 0o644
    assert target.stat().st_mode & 0o777 == 0o755


def test_no_file_is_a_hard_link(tmp_path, target):
    export(tmp_path, target)
    export(tmp_path, target)

    assert {path.stat().st_nlink for path in target.rglob("*") if path.is_file()} == {1}


def test_an_empty_target_is_filled(tmp_path, target):
    target.mkdir(parents=True)

    assert export(tmp_path, target)
    assert (target / "onnx/model.onnx").exists()


def test_a_link_to_a_folder_stays_a_link(tmp_path, target):
    real = tmp_path / "real"
    real.mkdir()
    target.parent.mkdir()
    target.symlink_to(real)

    export(tmp_path, target)

    assert target.is_symlink()
    assert (real / INDEX_FILE).exists()


def test_the_current_directory_is_filled_and_not_replaced(tmp_path, target, monkeypatch):
    target.mkdir(parents=True)
    monkeypatch.chdir(target)
    before = target.stat().st_ino

    export(tmp_path, Path())

    assert target.stat().st_ino == before
    assert (target / INDEX_FILE).exists()


# ── What is not written ──


def test_nothing_is_written_when_no_job_passed(tmp_path, target):
    assert not export(tmp_path, target, made_up.not_passed("onnx", "mismatch", "differs"))

    assert not target.parent.exists()


def test_require_all_writes_nothing_when_one_failed(tmp_path, target):
    results = (made_up.passed("onnx"), made_up.not_passed("openvino", "failed", "broke"))

    assert not export(tmp_path, target, *results, require="all")
    assert not target.exists()
    assert export(tmp_path, target, *results, require="any")


def test_files_of_a_mismatch_are_never_written(tmp_path, target):
    wrong = msgspec.structs.replace(made_up.passed("openvino"), status="mismatch", reason="differs")

    export(tmp_path, target, made_up.passed("onnx"), wrong)

    assert not (target / "openvino").exists()
    assert "disagrees with the original model: differs" in (target / "README.md").read_text()


def test_a_file_that_is_not_the_verified_one_is_refused(tmp_path, target):
    run = made_up.run(tmp_path, (made_up.passed("onnx"),))
    (Path(run.work) / run.results[0].job / "onnx/model.onnx").write_bytes(b"other")

    with pytest.raises(HubExporterError, match="not the file that was verified"):
        publish.write_folder(target, run)
    assert not target.exists()


def test_a_dry_run_says_what_would_change_and_changes_nothing(tmp_path, target):
    made = publish.write_folder(target, made_up.run(tmp_path, (made_up.passed("onnx"),)), dry_run=True)

    assert {change.kind for change in made.files} == {"added"}
    assert {change.path for change in made.files} >= {"README.md", INDEX_FILE, "config.json", "onnx/model.onnx"}
    assert not target.exists()


# ── An earlier export in the target ──


def test_a_second_run_says_that_nothing_changed(tmp_path, target):
    first = publish.write_folder(target, made_up.run(tmp_path, (made_up.passed("onnx"),)))
    slower = made_up.passed("onnx", seconds=99.0, peak_memory=1)
    second = publish.write_folder(target, made_up.run(tmp_path, (slower,)))

    assert (first.unchanged, second.unchanged) == (False, True)


def test_the_last_run_of_a_model_that_only_got_another_card_keeps_its_commit(tmp_path, target):
    files = (SourceFile(path="model.safetensors", size=1, sha256="ab"),)
    export(tmp_path, target, model=made_up.encoder(files=files))
    export(tmp_path, target, made_up.passed("openvino"), model=made_up.encoder(files=files, commit="other"))

    assert index_of(target).source.commit == made_up.COMMIT
    assert {job.backend for job in index_of(target).jobs} == {"onnx", "openvino"}


def test_the_same_run_again_changes_no_byte(tmp_path, target):
    export(tmp_path, target)
    before = snapshot(target)

    export(tmp_path, target)

    assert snapshot(target) == before


def test_jobs_of_the_same_commit_that_were_not_run_again_stay(tmp_path, target):
    export(tmp_path, target, made_up.passed("onnx"))
    export(tmp_path, target, made_up.passed("openvino"))

    assert {job.backend for job in index_of(target).jobs} == {"onnx", "openvino"}
    assert (target / "onnx/model.onnx").exists()
    assert "onnxruntime==1.32.0" in (target / "README.md").read_text()


def test_a_job_that_stayed_names_its_own_rows(tmp_path, target, monkeypatch):
    export(tmp_path, target, made_up.passed("onnx"))
    other = msgspec.structs.replace(made_up.capture(), digest="sha256:other")
    first = made_up.capture().digest
    monkeypatch.setattr(made_up, "capture", lambda: other)

    export(tmp_path, target, made_up.passed("openvino"))

    assert {job.backend: job.rows for job in index_of(target).jobs} == {"openvino": None, "onnx": first}


def test_jobs_of_another_commit_go_with_their_files(tmp_path, target):
    export(tmp_path, target, made_up.passed("onnx"))
    export(tmp_path, target, made_up.passed("openvino"), model=made_up.encoder(commit="other"))

    assert {job.backend for job in index_of(target).jobs} == {"openvino"}
    assert not (target / "onnx").exists()


def test_a_failure_now_keeps_files_that_passed_before_and_a_mismatch_does_not(tmp_path, target):
    export(tmp_path, target, made_up.passed("onnx"), made_up.passed("openvino"))
    export(
        tmp_path,
        target,
        made_up.passed("dynamo"),
        made_up.not_passed("onnx", "failed", "out of memory"),
        made_up.not_passed("openvino", "mismatch", "differs"),
    )

    assert {job.backend: job.status for job in index_of(target).jobs} == {
        "dynamo": "passed",
        "onnx": "passed",
        "openvino": "mismatch",
    }
    assert (target / "onnx/model.onnx").exists()
    assert not (target / "openvino").exists()


def test_a_side_file_that_the_source_dropped_goes(tmp_path, target):
    export(tmp_path, target, model=made_up.encoder(side_files=("config.json", "vocab.txt")))
    export(tmp_path, target, model=made_up.encoder(side_files=("config.json",), commit="other"))

    assert not (target / "vocab.txt").exists()


def test_another_model_is_not_written_over(tmp_path, target):
    export(tmp_path, target)
    before = snapshot(target)

    with pytest.raises(TargetError, match="holds exports of `sentence-transformers/all-MiniLM-L6-v2`"):
        export(tmp_path, target, model=made_up.decoder())
    assert snapshot(target) == before


# ── Other people's files ──


def test_foreign_files_survive_byte_for_byte(tmp_path, target):
    for path in ("notes.txt", "onnx/mine.onnx", "data/x.bin"):
        made_up.write(target / path, path.encode())
    export(tmp_path, target)
    export(tmp_path, target, made_up.passed("openvino"), model=made_up.encoder(commit="other"))

    files = snapshot(target)
    assert {path: files[path] for path in ("notes.txt", "onnx/mine.onnx", "data/x.bin")} == {
        "notes.txt": b"notes.txt",
        "onnx/mine.onnx": b"onnx/mine.onnx",
        "data/x.bin": b"data/x.bin",
    }
    assert "onnx/model.onnx" not in files


@pytest.mark.parametrize("path", ["onnx/model.onnx", "config.json"])
def test_a_foreign_file_in_the_way_is_refused_before_and_after_the_work(tmp_path, target, path):
    made_up.write(target / path, b"mine")
    model = made_up.run(tmp_path, ()).model

    with pytest.raises(TargetError, match="is not from hub-exporter") as caught:
        publish.prepare_target(target, model, 0, ["onnx"])
    assert "--to" in caught.value.hint
    with pytest.raises(TargetError, match="is not from hub-exporter"):
        export(tmp_path, target)
    assert snapshot(target) == {path: b"mine"}


def test_a_folder_in_the_way_is_refused(tmp_path, target):
    (target / "tokenizer.json").mkdir(parents=True)
    (target / "tokenizer.json" / "mine").touch()

    with pytest.raises(TargetError):
        export(tmp_path, target)
    assert (target / "tokenizer.json" / "mine").exists()


def test_a_configuration_that_was_edited_is_not_overwritten(tmp_path, target):
    export(tmp_path, target)
    (target / "config.json").write_bytes(b"edited")

    with pytest.raises(TargetError, match="was changed since"):
        export(tmp_path, target)
    assert (target / "config.json").read_bytes() == b"edited"


def test_the_models_own_folder_keeps_its_side_files(tmp_path):
    source = tmp_path / "source"
    export(tmp_path, source)
    export(tmp_path, source, model=made_up.encoder(side_files=("config.json",), commit="other"))

    assert (source / "tokenizer.json").exists()
    assert (source / "onnx/model.onnx").exists()


def test_a_foreign_card_gets_our_section_and_keeps_its_text(tmp_path, target):
    made_up.write(target / "README.md", "---\r\nlicense: mit\r\n---\r\n# Mine\r\n\xff".encode("latin-1"))
    export(tmp_path, target)
    export(tmp_path, target, made_up.passed("openvino"))

    card = (target / "README.md").read_bytes()
    assert card.startswith(b"---\r\nlicense: mit\r\n")
    assert b"# Mine\r\n\xff" in card
    assert card.count(BEGIN.encode()) == card.count(END.encode()) == 1
    assert b"openvino_model.xml" in card


def test_our_own_card_is_renewed_as_a_whole_until_somebody_edits_it(tmp_path, target):
    export(tmp_path, target)
    export(tmp_path, target, made_up.passed("openvino"), model=made_up.encoder(commit="other"))
    assert "- onnx\n" not in (target / "README.md").read_text()

    text = (target / "README.md").read_text().replace("# all-MiniLM-L6-v2", "# Better name")
    (target / "README.md").write_text(text)
    export(tmp_path, target)

    assert "# Better name" in (target / "README.md").read_text()


# ── What goes wrong ──


def test_an_index_of_a_newer_schema_is_refused(tmp_path, target):
    made_up.write(target / INDEX_FILE, b'{"schema": 99, "unknown": {}}')

    with pytest.raises(TargetError, match="newer hub-exporter"):
        publish.prepare_target(target, made_up.run(tmp_path, ()).model, 0)


@pytest.mark.parametrize("data", [b"{", b'{"schema": 1}', b"[]", b'{"schema": "x"}', b"\xff"])
def test_an_index_that_cannot_be_read_is_refused(tmp_path, target, data):
    made_up.write(target / INDEX_FILE, data)

    with pytest.raises(TargetError, match="cannot be read"):
        publish.prepare_target(target, made_up.run(tmp_path, ()).model, 0)


@pytest.mark.parametrize("path", ["../victim", "/tmp/victim", "a/../../victim", "", "..\\victim"])
def test_an_index_that_leads_out_of_its_folder_is_refused(tmp_path, target, path):
    stray = msgspec.structs.replace(made_up.index(), side_files=(made_up.artifact(path, b"x"),))
    made_up.write(target / INDEX_FILE, to_json(stray))
    (target.parent / "victim").write_bytes(b"x")

    with pytest.raises(TargetError, match="cannot be read"):
        export(tmp_path, target, model=made_up.encoder(commit="other"))
    assert (target.parent / "victim").exists()


def test_a_target_that_is_a_file_is_refused(tmp_path, target):
    made_up.write(target, b"")

    with pytest.raises(TargetError, match="is a file"):
        publish.prepare_target(target, made_up.run(tmp_path, ()).model, 0)


def test_a_target_below_a_file_is_refused(tmp_path, target):
    made_up.write(target.parent, b"")

    with pytest.raises(TargetError, match="cannot be written"):
        publish.prepare_target(target, made_up.run(tmp_path, ()).model, 0)


def test_too_little_disk_is_told_before_the_work_with_what_there_is(tmp_path, target):
    with pytest.raises(TargetError, match=r"about 1000000\.0 GB needed, [\d.]+ GB free"):
        publish.prepare_target(target, made_up.run(tmp_path, ()).model, 10**15)
    assert not target.parent.exists()


def test_enough_disk_leaves_no_trace(tmp_path, target):
    publish.prepare_target(target, made_up.run(tmp_path, ()).model, 1, ["onnx"])

    assert not target.parent.exists()


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
@pytest.mark.parametrize("when", ["staging", "replacing"])
@pytest.mark.parametrize("earlier", [False, True])
def test_whatever_stops_the_writing_the_target_is_as_it_was(tmp_path, target, monkeypatch, error, when, earlier):
    if earlier:
        export(tmp_path, target)
        made_up.write(target / "notes.txt", b"mine")
    before = snapshot(target) if earlier else {}
    _fail(monkeypatch, error, when)

    with pytest.raises(TargetError if isinstance(error, OSError) else KeyboardInterrupt):
        export(tmp_path, target, made_up.passed("onnx"), made_up.passed("openvino"))

    monkeypatch.undo()
    assert (snapshot(target) if target.exists() else {}) == before
    assert leftovers(target) == []
    assert not (target / "openvino").exists()


def _fail(monkeypatch, error: BaseException, when: str) -> None:
    """Let the disk fail while side files are copied, or when the index, the last of all, is put in place."""

    def fail(*args: object) -> None:
        raise error

    if when == "staging":
        monkeypatch.setattr(shutil, "copyfile", fail)
    else:
        original = Path.replace
        monkeypatch.setattr(
            Path, "replace", lambda self, to: fail() if self.name in (INDEX_FILE, "new") else original(self, to)
        )


def test_a_working_folder_is_removed_even_when_the_work_fails(target):
    def work_and_fail() -> None:
        with publish.open_work(target) as work:
            (work / "file").touch()
            raise RuntimeError

    with pytest.raises(RuntimeError):
        work_and_fail()
    assert not target.parent.exists()


def test_a_working_folder_is_kept_when_asked_for(target):
    with publish.open_work(target, keep=True) as work:
        pass

    assert work.parent == target.parent
    assert work.exists()


def test_a_target_whose_parent_cannot_be_written_is_worked_in_from_inside(tmp_path, target, monkeypatch):
    target.mkdir(parents=True)
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != target.parent)

    with publish.open_work(target) as work:
        assert work.parent == target
        assert publish.write_folder(target, made_up.run(tmp_path, (made_up.passed("onnx"),)))

    assert sorted(path.name for path in target.iterdir()) == sorted(
        ["README.md", INDEX_FILE, "onnx", "1_Pooling", "config.json", "tokenizer.json", "tokenizer_config.json"]
    )
