"""What planning many models costs: `hub-exporter plan` over 1,000 models and six backends, from cached metadata.

    .venv/bin/python bench/plan_cost.py [MODELS]

It makes a cache of the Hub in a temporary folder: every model has a configuration, a tokenizer of 1 MB, and weights of
which only the header is real. Nothing is asked of the network.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
BACKENDS = "onnx,openvino,executorch-xnnpack,dynamo,executorch-mlx,executorch-cuda"
LAYERS, HIDDEN, VOCABULARY = 24, 64, 1000


def main() -> None:
    """Make the cache, plan, and print one line for each command."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for number in range(count):
            write_repository(root / "hub", f"org/model-{number:04}", number)
        recipe = {"models": [{"source": f"org/model-{n:04}", "target": f"org/exports-{n:04}"} for n in range(count)]}
        (root / "recipe.yaml").write_text(json.dumps(recipe), "utf-8")
        print(f"| {count:,} models, six backends | wall s | CPU s | peak MB |\n|---|---:|---:|---:|")
        measure(root, "`plan`, the table")
        measure(root, "`plan --save`", "--save", "plan.json", "--quiet")
        measure(root, "`plan --format matrix --shard 1/24`", "--format", "matrix", "--shard", "1/24", "--quiet")
        print(f"\nThe plan is a file of {(root / 'plan.json').stat().st_size / 1e6:.0f} MB.")


def measure(root: Path, name: str, *options: str) -> None:
    """Run one command to its end."""
    command = [
        sys.executable,
        "-m",
        "hub_exporter",
        "plan",
        "--recipe",
        "recipe.yaml",
        "--backends",
        BACKENDS,
        *options,
    ]
    env = {**os.environ, "HF_HOME": str(root), "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ROOT)}
    began = time.monotonic()
    with (root / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=root, env=env, stdout=log, stderr=log)
        _, status, usage = os.wait4(process.pid, 0)
    wall = time.monotonic() - began
    if status:
        sys.exit((root / "log").read_text("utf-8", "replace")[-2000:])
    peak = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    print(f"| {name} | {wall:.1f} | {usage.ru_utime + usage.ru_stime:.1f} | {peak / 1e6:.0f} |", flush=True)


def write_repository(cache: Path, repo: str, number: int) -> None:
    """A repository as the Hub's client keeps it: one snapshot, and `main` that names it."""
    commit = hashlib.sha1(repo.encode()).hexdigest()
    place = cache / f"models--{repo.replace('/', '--')}"
    snapshot = place / "snapshots" / commit
    snapshot.mkdir(parents=True)
    (place / "refs").mkdir()
    (place / "refs" / "main").write_text(commit, "ascii")
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": VOCABULARY,
        "max_position_embeddings": 8192,
    }
    (snapshot / "config.json").write_text(json.dumps(config), "utf-8")
    (snapshot / "tokenizer_config.json").write_text("{}", "utf-8")
    (snapshot / "tokenizer.json").write_bytes(json.dumps({"number": number}).encode().ljust(1_000_000))
    (snapshot / "README.md").write_text("---\nlicense: mit\nlanguage: [en]\n---\n", "utf-8")
    (snapshot / "model.safetensors").write_bytes(weights())


def weights() -> bytes:
    """A safetensors file of a decoder with bfloat16 zeros."""
    shapes = {"model.embed_tokens.weight": (VOCABULARY, HIDDEN)}
    for layer in range(LAYERS):
        for part in ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"):
            shapes[f"model.layers.{layer}.{part}.weight"] = (HIDDEN, HIDDEN)
        for part in ("input_layernorm", "post_attention_layernorm"):
            shapes[f"model.layers.{layer}.{part}.weight"] = (HIDDEN,)
    header, at = {}, 0
    for name, shape in shapes.items():
        size = 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + bytes(at)


if __name__ == "__main__":
    main()
