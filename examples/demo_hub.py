"""A full push and a pull request without an account: the Hub of the tests on this machine, and the command against it.

python examples/demo_hub.py
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
MODEL, EXPORTS = "org/tiny-chat", "org/tiny-chat-exports"
ROWS = ["--backends", "onnx", "--dataset", str(ROOT / "examples" / "rows.jsonl")]

UPLOAD = """
import sys
from huggingface_hub import HfApi
HfApi().create_repo(sys.argv[1])
HfApi().upload_folder(repo_id=sys.argv[1], folder_path=sys.argv[2])
"""

SHOW = """
import sys
from huggingface_hub import HfApi
api, model, exports = HfApi(), *sys.argv[1:]
def show(repo, revision):
    print(f"\\n{repo} at {revision}:")
    for entry in api.list_repo_tree(repo, recursive=True, revision=revision):
        if hasattr(entry, "size"):
            print(f"  {entry.size:>9,}  {entry.path}")
show(exports, "main")
print("commits:", "; ".join(commit.title for commit in api.list_repo_commits(exports)))
show(model, "main")
show(model, "refs/pr/1")
print("\\nThe pull request says:\\n")
print(api.get_discussion_details(model, 1).events[0].content)
"""


def main() -> None:
    """Start the Hub, demonstrate, and end it."""
    with tempfile.TemporaryDirectory(prefix="demo-hub-") as folder:
        server = subprocess.Popen(
            [sys.executable, "-m", "hub_server", "--data", f"{folder}/hub"],
            env={**os.environ, "PYTHONPATH": str(ROOT / "tests" / "hub")},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert server.stdout
        try:
            demonstrate(server.stdout.readline().strip(), Path(folder))
        finally:
            server.terminate()
            server.wait()


def demonstrate(endpoint: str, folder: Path) -> None:
    """Upload a model, publish its exports to a repository of their own, and propose them to the model's."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith("HF_")}
    env = clean | {
        "HF_ENDPOINT": endpoint,
        "HF_HOME": str(folder / "home"),
        "HF_TOKEN": "hf_alice",  # one of the made-up people of that Hub
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "NO_PROXY": "127.0.0.1,localhost",
    }

    def python(*arguments: str) -> None:
        subprocess.run([sys.executable, *arguments], env=env, check=True)

    def export(*arguments: str) -> None:
        print("\n$ hub-exporter export", *arguments, flush=True)
        python("-m", "hub_exporter", "export", *arguments)

    print(f"A Hub on this machine: {endpoint}")
    python("-c", UPLOAD, MODEL, str(ROOT / "examples" / "tiny-chat"))
    export(MODEL, *ROWS, "--to", EXPORTS)
    export(MODEL, *ROWS, "--to", MODEL, "--create-pr")
    python("-c", SHOW, MODEL, EXPORTS)


if __name__ == "__main__":
    main()
