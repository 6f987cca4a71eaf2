"""ExecuTorch's own runner for language models (C++ behind a Python binding) over a `.pte`: text in, text out.

It puts no start token before a text unless it is told to.
"""

from pathlib import Path

from asked import answer, request
from executorch.extension.llm.runner import GenerationConfig, TextLLMRunner

folder = Path(request["model"])
runner = TextLLMRunner(str(folder / "executorch/xnnpack/model.pte"), str(folder / "tokenizer.json"))


def continued(text):
    pieces = []
    config = GenerationConfig(max_new_tokens=request["new_tokens"], temperature=0.0, echo=False)
    runner.generate(text, config, pieces.append)
    runner.reset()
    return "".join(pieces)


answer({"texts": [continued(text) for text in request["prompts"]]})
