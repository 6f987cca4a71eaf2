"""The client's default way for large files: Xet, with a store on this machine."""

from __future__ import annotations

STEPS = "from steps import *\n"


def test_a_publication_over_xet_is_one_commit_with_the_same_content(hub):
    made, again, titles, loaded = hub.python(
        STEPS
        + """
from huggingface_hub import snapshot_download
made = publish("org/xet", {"salt": "xet", "backends": ["onnx", "openvino"]})
again = publish("org/xet", {"salt": "xet", "backends": ["onnx", "openvino"]})
folder = Path(snapshot_download("org/xet"))
loaded = (folder / "onnx/model.onnx").read_bytes() == content("onnx/model.onnx", "xet")
tell([made, again, [c.title for c in api.list_repo_commits("org/xet")], loaded])
""",
        HF_HUB_DISABLE_XET="0",
    )

    assert {change["kind"] for change in made["files"]} == {"added"}
    assert again["unchanged"]
    assert len(titles) == 2
    assert loaded
    paths = [entry["path"] for entry in hub.log()]
    assert any("/xet-write-token/" in path for path in paths)
    assert not any("info/lfs" in path for path in paths)
