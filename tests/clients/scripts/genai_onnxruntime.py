"""ONNX Runtime GenAI over a folder. Its tokenizer adds no start token to a plain text: whoever calls it writes it."""

import json

import onnxruntime_genai as og
from asked import answer, request

model = og.Model(request["model"])
tokenizer = og.Tokenizer(model)


def continued(prompts):
    """Greedy tokens of a batch, which GenAI pads and masks by itself."""
    ids = tokenizer.encode_batch(prompts)
    rows, length = ids.shape()
    parameters = og.GeneratorParams(model)
    parameters.set_search_options(do_sample=False, max_length=length + request["new_tokens"], batch_size=rows)
    generator = og.Generator(model, parameters)
    generator.append_tokens(ids)
    while not generator.is_done():
        generator.generate_next_token()
    return [generator.get_sequence(row)[length:].tolist() for row in range(rows)]


prompts = [request["start"] + text for text in request["prompts"]]
chat = tokenizer.apply_chat_template(json.dumps(request["chat"]), add_generation_prompt=True)
answer(
    {
        "alone": [continued([text])[0] for text in prompts],
        "batch": continued(prompts),
        "chat": continued([chat])[0],
        "ids": tokenizer.encode(prompts[0]).tolist(),
    }
)
