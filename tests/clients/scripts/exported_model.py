"""transformers' own `ExportedModel`: the files of each folder, run once over each prompt, or over a batch of texts."""

import torch
from asked import answer, request
from torch.utils import _pytree as pytree
from transformers import AutoTokenizer
from transformers.exporters import ExportedModel
from transformers.exporters.metadata import load_treespec

torch.set_grad_enabled(False)
tokenizer = AutoTokenizer.from_pretrained(request["model"])


def embeddings(model):
    inputs = tokenizer(request["texts"], padding=True, truncation=True, return_tensors="pt")
    hidden, mask = model(**inputs)["last_hidden_state"], inputs["attention_mask"][..., None]
    return torch.nn.functional.normalize((hidden * mask).sum(1) / mask.sum(1)).tolist()


def last_logits(model, text):
    inputs = tokenizer(text, return_tensors="pt")
    positions = torch.arange(inputs["input_ids"].shape[1])
    runner = model.runners["model"]
    if "cache_position" in runner.metadata.kwargs:
        return model(input_ids=inputs["input_ids"], cache_position=positions)[0, -1].tolist()
    if model.export_format == "openvino":  # the cache is inside, and is still that of the prompt before
        runner.request.reset_state()
    outputs = model(**inputs, position_ids=positions[None], **empty_cache(model.config, runner.metadata))
    return outputs["logits"][0, -1].tolist()


def empty_cache(config, metadata):
    """Of no tokens: one tensor for each port, or the container that the graph was traced with; none if it is inside."""
    empty = torch.zeros(1, config.num_key_value_heads, 0, config.head_dim)
    if "cache" not in metadata.kwargs:
        return {name: empty for name in metadata.kwargs if name.startswith("past_key_values.")}
    arguments = load_treespec(metadata.in_spec).children_specs[1]
    spec = arguments.children_specs[arguments.context.index("cache")]
    return {"cache": pytree.tree_unflatten([empty] * spec.num_leaves, spec)}


said = {}
for folder in request["subfolders"]:
    model = ExportedModel.from_pretrained(request["model"], subfolder=folder, trust_remote_code=folder == "pt2")
    if "texts" in request:
        said[folder] = embeddings(model)
    else:
        said[folder] = [last_logits(model, text) for text in request["prompts"]]
answer(said)
