"""Sources on the Hub: pinned, fetched once, and told apart where they cannot be read."""

from __future__ import annotations

import pytest

SETUP = """
from steps import *
from hub_exporter import hub
def fetch(*args, **options):
    value = told(hub.fetch, *args, **options)
    if isinstance(value, list):
        return value
    files = sorted(p.relative_to(value.folder).as_posix() for p in value.folder.rglob("*") if p.is_file())
    return {"commit": value.commit, "files": files}
"""

FILES = {
    "config.json": "{}",
    "model.safetensors": "weights",
    "pytorch_model.bin": "the same weights",
    "onnx/model.onnx": "x",
    "modeling_x.py": "x",
}


@pytest.fixture
def repositories(hub):
    hub.python(
        SETUP
        + """
for name in ("fetched", "hidden", "terms"):
    api.create_repo(f"org/{name}", private=name == "hidden", exist_ok=True)
    put(f"org/{name}", args[0])
api.update_repo_settings("org/terms", gated="auto")
api.create_repo("org/rows-only", repo_type="dataset", exist_ok=True)
""",
        FILES,
    )
    hub.forget()


@pytest.mark.usefixtures("repositories")
def test_only_what_loading_needs_is_fetched_and_only_once(hub):
    first, second = hub.python(SETUP + 'tell([fetch("org/fetched"), fetch("org/fetched")])')

    assert first == second
    assert first["files"] == ["config.json", "model.safetensors"]
    weights = [entry for entry in hub.log() if entry["method"] == "GET" and "_cdn" in entry["path"]]
    assert len(weights) == 1
    assert weights[0]["credential"] is None


@pytest.mark.usefixtures("repositories")
@pytest.mark.parametrize("token", [None, "hf_carol"])
def test_whatever_cannot_be_read_is_told_apart(hub, token):
    missing, hidden, gated, dataset, revision = hub.python(
        SETUP
        + """
names = [("org/nothing",), ("org/hidden",), ("org/terms",), ("org/rows-only",), ("org/fetched", "v9")]
tell([fetch(*name) for name in names])
""",
        token=token,
    )

    assert {error[0] for error in (missing, hidden, gated, dataset, revision)} == {"SourceError"}
    assert missing[1] == "There is no model `org/nothing` on the Hub, or it is private"
    assert hidden[1] == "There is no model `org/hidden` on the Hub, or it is private"
    assert ("the token in use may not read it" in hidden[2]) == (token is not None)
    assert "hf auth login" in hidden[2]
    assert gated[1] == "The model `org/terms` is gated"
    assert "/org/terms" in gated[2]
    assert dataset[1:] == ["`org/rows-only` is a dataset, not a model", "Rows are read from it with `--dataset`"]
    assert revision[1] == "The model `org/fetched` has no revision `v9`"


def test_size_and_dtypes_come_from_headers_and_the_weights_only_when_they_are_needed(hub, model_folder):
    """`model_folder` is small: made a large file by what the Hub takes for one."""
    folder = model_folder(**{"README.md": "---\nlicense: mit\n---\n"})
    known, before, after, again, damaged = hub.python(
        SETUP
        + """
from hub_exporter.records import ModelRequest, ModelSettings
from hub_exporter.resolve import resolve
from hub_exporter.weights import fetch_weights, missing_weights
api.create_repo("org/headers")
api.upload_folder(repo_id="org/headers", folder_path=args[0])
found = resolve(ModelRequest(settings=ModelSettings(source="org/headers@main")))
def local():
    return sorted(p.name for p in Path(found.folder).iterdir())
before, missing = local(), missing_weights(found)
fetch_weights(found)
after = local()
again = [missing_weights(found), resolve(ModelRequest(settings=ModelSettings(source="org/headers@main"))) == found]
weights = Path(found.folder) / "model.safetensors"
weights.unlink()
lie = [msgspec.structs.replace(f, sha256="0" * 64) if f.path == weights.name else f for f in found.files]
damaged = told(fetch_weights, msgspec.structs.replace(found, files=tuple(lie)))
tell([[found.parameters, found.dtypes, found.weight_bytes, missing, found.license, found.commit], before, after, again,
      damaged])
""",
        folder,
    )

    size = (folder / "model.safetensors").stat().st_size
    assert known[:5] == [8, {"F32": 8}, 32, size, "mit"]
    assert len(known[5]) == 40
    assert "model.safetensors" not in before
    assert set(after) - set(before) == {"model.safetensors"}
    assert again == [0, True]
    assert damaged[:2] == ["SourceError", "`org/headers@main`: `model.safetensors` did not arrive as it is on the Hub"]
