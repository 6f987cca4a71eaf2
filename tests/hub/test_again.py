"""What is published on the Hub, fetched for another look; the look itself is made up."""

from __future__ import annotations

from typing import Any

SCRIPT = """
import dataclasses, hashlib
from steps import *
from hub_exporter import again

asked, seen = [], []

def resolve(request):
    asked.append([request.settings.source, request.settings.task])
    return run().model

def look(model, pairs, root, work, events, isolate):
    for job, result in pairs:
        for artifact in result.artifacts:
            data = (root / artifact.path).read_bytes()
            seen.append([job.name, artifact.path, hashlib.sha256(data).hexdigest() == artifact.sha256])
    return ()

again.resolve, again.verify_published, again.fetch_weights = resolve, look, lambda model: None

def verify(repo, *only, **more):
    work = Path(tempfile.mkdtemp())
    return told(lambda: again.verify(again.published(repo, only, **more), work, print))
"""


def do(hub: Any, script: str) -> Any:
    return hub.python(SCRIPT + script)


def test_all_files_are_there_and_what_they_were_made_of_is_at_its_commit(hub: Any) -> None:
    asked, seen, one = do(
        hub,
        """
publish("org/again", {"backends": ["onnx", "openvino"]})
verify("org/again")
everything = list(seen)
seen.clear()
verify("org/again", "*.openvino.*")
tell([asked, everything, sorted({job for job, _, _ in seen})])
""",
    )

    assert asked[0] == ["org/source@c9745ed1d9f207416be6d2e6f8de32d1f16199bf", "sentence-similarity"]
    assert len(seen) == 6
    assert all(same for _, _, same in seen)
    assert one == ["all-MiniLM-L6-v2.openvino.fp32"]


def test_what_cannot_be_looked_at_is_told(hub: Any) -> None:
    altered, missing, none, other = do(
        hub,
        """
publish("org/altered")
put("org/altered", {"onnx/export.json": "altered"})
altered = verify("org/altered")
missing = verify("org/nowhere")
publish("org/whole")
none = verify("org/whole", "*.dynamo.*")
again.resolve = lambda request: run(weights="cd" * 32).model
tell([altered, missing, none, verify("org/whole")])
""",
    )

    assert altered[0] == "TargetError"
    assert "`onnx/export.json` in `org/altered` is missing or was altered" in altered[1]
    assert missing[:2] == ["TargetError", "`org/nowhere` holds no exports of hub-exporter"]
    assert none[0] == "UsageError"
    assert other[0] == "SourceError"
    assert "is not the model that it was made of" in other[1]
