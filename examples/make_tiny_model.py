"""Trains the tiny chat model of `examples/tiny-chat`, with its own tokenizer, in about four minutes on one core.

    python examples/make_tiny_model.py [FOLDER]

The model tells the day of somebody who walks out of a town. A day is drawn at random but told by rule: who, from which
town and to which place decide every later word. So a model that has learned the rules is sure of nearly every token, on
combinations that it never saw too, and a greedy decode that goes wrong in an exported file is seen at once. Two runs
give the same files.
"""

from __future__ import annotations

import itertools
import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from torch import Tensor
from transformers import AutoTokenizer, GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerBase

SEED = 20
STEPS = 700
BATCH = 24
CONTEXT = 256
VOCABULARY = 768
PEAK_LEARNING_RATE = 4e-3
WARM_UP = 60
"""Steps until the peak."""
NEW_TOKENS = 40
"""That the report looks at, for each beginning."""
ROWS = 24
"""Of the example's dataset."""
PAD, END, START, USER, ASSISTANT, SYSTEM = SPECIAL = (
    "<|pad|>",
    "<|end|>",
    "<|start|>",
    "<|user|>",
    "<|assistant|>",
    "<|system|>",
)
INSTRUCTION = "Tell the rest of the day."
CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}{{ '<|' + message['role'] + '|>' + message['content'] + eos_token }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)

# ── The stories ───────────────────────────────────────────────────────────────────────────────────────────────────

TOWNS = {  # -> its weather, and what is sold on its market
    "Lisbon": ("warm and bright", "oranges"),
    "Bergen": ("grey and wet", "salted fish"),
    "Krakow": ("cold and clear", "honey cakes"),
    "Nairobi": ("hot and dry", "green coffee"),
    "Quito": ("cool and misty", "red beans"),
    "Kyoto": ("mild and still", "white tea"),
    "Cork": ("windy and wet", "brown bread"),
    "Tunis": ("dry and windy", "ripe dates"),
    "Oslo": ("cold and snowy", "smoked cheese"),
    "Hanoi": ("warm and stormy", "fresh rice"),
    "Zagreb": ("mild and sunny", "sweet plums"),
    "Austin": ("hot and bright", "black pepper"),
}
PLACES = {  # -> the animal that lives there, its look, its food, and the place that comes next on the way
    "forest": ("fox", "small and red", "berries", "lake"),
    "lake": ("swan", "large and white", "water plants", "old mill"),
    "old mill": ("cat", "thin and grey", "mice", "meadow"),
    "meadow": ("hare", "quick and brown", "clover", "river"),
    "river": ("otter", "sleek and dark", "little fish", "hill"),
    "hill": ("goat", "strong and black", "dry grass", "harbour"),
    "harbour": ("gull", "loud and hungry", "crabs", "garden"),
    "garden": ("hedgehog", "round and shy", "beetles", "quarry"),
    "quarry": ("lizard", "green and silent", "flies", "orchard"),
    "orchard": ("donkey", "slow and friendly", "fallen apples", "forest"),
}
PEOPLE = {  # -> companion, and what is in the bag
    "Anna": ("her brother", "bread and cheese"),
    "Bruno": ("his daughter", "a bottle of milk"),
    "Chloe": ("her neighbour", "two boiled eggs"),
    "David": ("his uncle", "a warm potato"),
    "Elif": ("her teacher", "a jar of olives"),
    "Farid": ("his sister", "nuts and figs"),
    "Greta": ("her cousin", "a slice of cake"),
    "Hugo": ("his dog", "cold pancakes"),
    "Ines": ("her friend", "rice and lemon"),
    "Jonas": ("his mother", "apple juice"),
    "Kaito": ("his grandfather", "dumplings"),
    "Lena": ("her aunt", "a bag of cherries"),
}
OPENINGS = (
    "{person} left {town} early in the morning and walked to the {place}.",
    "Early in the morning {person} walked from {town} to the {place}.",
    "The road from {town} to the {place} is long, but {person} likes it.",
    "{person} lives in {town} and often goes to the {place}.",
    "This is the story of {person} from {town}, who wanted to see the {place}.",
)
EVENTS = (
    "The weather was {weather}, as it often is in {town}.",
    "{person} came with {companion} and carried {bag}.",
    "At the {place} they met the {animal}.",
    "The {animal} was {look}, and it was eating {food}.",
    "At noon they rested and shared {bag}.",
    "Then they went on from the {place} to the {next_place}.",
    "At the {next_place} they met the {next_animal}.",
    "The {next_animal} was {next_look}, and it was eating {next_food}.",
    "In the evening {person} returned to {town} with {companion}.",
    "On the market of {town} they bought {goods}.",
    "At night {person} dreamt of the {animal} and the {next_animal}.",
    "In the dream the {animal} was eating {goods}, and the {next_animal} was eating {bag}.",
    "The next day the weather in {town} was {weather} again.",
)


class Day(NamedTuple):
    """The three choices that decide a story, and how it opens."""

    person: str
    town: str
    place: str
    opening: str

    def sentences(self) -> list[str]:
        """The whole story: one opening and thirteen events."""
        words = self._asdict()
        words["weather"], words["goods"] = TOWNS[self.town]
        words["companion"], words["bag"] = PEOPLE[self.person]
        words["animal"], words["look"], words["food"], words["next_place"] = PLACES[self.place]
        words["next_animal"], words["next_look"], words["next_food"], _ = PLACES[words["next_place"]]
        return [sentence.format(**words) for sentence in (self.opening, *EVENTS)]


def split_days() -> tuple[list[Day], list[Day]]:
    """All days in random order: nine in ten to train on, the others held out."""
    days = [Day(*choice) for choice in itertools.product(PEOPLE, TOWNS, PLACES, OPENINGS)]
    random.Random(SEED).shuffle(days)
    return days[len(days) // 10 :], days[: len(days) // 10]


def as_training_text(day: Day, rng: random.Random) -> str:
    """The story as plain text or, twice as often, as a chat whose user tells one to five sentences of it."""
    sentences = day.sentences()
    told = rng.randint(1, 5)
    if rng.random() < 1 / 3:
        return f"{START}{' '.join(sentences)}{END}"
    system = f"{SYSTEM}{INSTRUCTION}{END}" if rng.random() < 0.2 else ""
    user, assistant = " ".join(sentences[:told]), " ".join(sentences[told:])
    return f"{START}{system}{USER}{user}{END}{ASSISTANT}{assistant}{END}"


# ── Tokenizer and model ───────────────────────────────────────────────────────────────────────────────────────────


def train_tokenizer(days: list[Day], folder: Path) -> PreTrainedTokenizerBase:
    """A byte-level BPE (so it can encode any text), written by hand so that transformers 4 and 5 both load it."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    texts = [" ".join(day.sentences()) for day in days[:2000]] + [INSTRUCTION]
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{START} $A", pair=f"{START} $A $B", special_tokens=[(START, tokenizer.token_to_id(START))]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "bos_token": START,
        "chat_template": CHAT_TEMPLATE,
        "clean_up_tokenization_spaces": False,
        "eos_token": END,
        "model_input_names": ["input_ids", "attention_mask"],  # transformers 4 would add token types
        "model_max_length": CONTEXT,
        "pad_token": PAD,
        "padding_side": "left",
        "tokenizer_class": "PreTrainedTokenizerFast",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
    return AutoTokenizer.from_pretrained(folder)


def new_model(tokenizer: PreTrainedTokenizerBase) -> LlamaForCausalLM:
    """A random Llama: grouped key/value heads and tied embeddings, as most small language models have them."""
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=192,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = LlamaForCausalLM(config)
    model.generation_config = GenerationConfig(
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return model


# ── Training ──────────────────────────────────────────────────────────────────────────────────────────────────────


def batches(tokenizer: PreTrainedTokenizerBase, days: list[Day]) -> Iterator[dict[str, Tensor]]:
    """Endless right-padded batches of whole stories."""
    rng = random.Random(SEED)
    while True:
        texts = [as_training_text(day, rng) for day in rng.sample(days, BATCH)]
        encoded = tokenizer(texts, add_special_tokens=False, padding=True, padding_side="right", return_tensors="pt")
        mask = encoded["attention_mask"]
        labels = encoded["input_ids"].masked_fill(mask == 0, -100)
        yield {"input_ids": encoded["input_ids"], "attention_mask": mask, "labels": labels}


def train(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerBase, days: list[Day]) -> None:
    """AdamW over `STEPS` batches, with a linear warm-up and a cosine decay to zero."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=PEAK_LEARNING_RATE, betas=(0.9, 0.98), weight_decay=0.01)
    warm_up = torch.optim.lr_scheduler.LinearLR(optimizer, 1 / WARM_UP, total_iters=WARM_UP)
    decay = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS - WARM_UP)
    schedule = torch.optim.lr_scheduler.SequentialLR(optimizer, [warm_up, decay], [WARM_UP])
    model.train()
    for step, batch in enumerate(itertools.islice(batches(tokenizer, days), STEPS)):
        loss = model(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if step % 100 == 99:
            print(f"step {step + 1}: loss {loss.item():.3f}", flush=True)
    model.eval()


# ── How sure is it? ───────────────────────────────────────────────────────────────────────────────────────────────


def encode(tokenizer: PreTrainedTokenizerBase, text: str, *, chat: bool) -> dict[str, Tensor]:
    """The beginning of a story as plain text, or as what a user says."""
    if not chat:
        return dict(tokenizer(text, return_tensors="pt"))
    messages = [{"role": "user", "content": text}]
    return dict(
        tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    )


@torch.inference_mode()
def continue_greedily(model: LlamaForCausalLM, inputs: dict[str, Tensor]) -> tuple[Tensor, list[float]]:
    """`NEW_TOKENS` tokens, and for each the gap between the best two logits."""
    out = model.generate(
        **inputs,
        max_new_tokens=NEW_TOKENS,
        min_new_tokens=NEW_TOKENS,
        do_sample=False,
        output_logits=True,
        return_dict_in_generate=True,
    )
    best, second = torch.stack(out.logits).squeeze(1).topk(2).values.unbind(1)
    return out.sequences[0, inputs["input_ids"].shape[1] :], (best - second).tolist()


def report(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerBase, days: list[Day]) -> None:
    """Prints how many held-out days the model tells right, how sure it is of each token, and three examples."""
    gaps: list[float] = []
    right = 0
    for number, day in enumerate(days):
        sentences = day.sentences()
        told = 1 + number % 5
        text, rest = " ".join(sentences[:told]), " ".join(sentences[told:])
        tokens, gaps_here = continue_greedily(model, encode(tokenizer, text, chat=number % 2 == 0))
        answer = tokenizer.decode(tokens).strip()
        gaps += gaps_here
        right += rest.startswith(answer)
        if number < 3:
            print(f"{text}\n  -> {answer}")
    gap = torch.tensor(gaps)
    print(
        f"{right} of {len(days)} held-out days told right; gap of the best two logits over {len(gaps)} tokens: "
        f"median {gap.median():.2f}, min {gap.min():.2f}, below 0.5 in {(gap < 0.5).float().mean():.2%}"
    )


def write_rows(days: list[Day], file: Path) -> None:
    """The first one to five sentences of each day, one JSON object a line: the dataset of the example's recipe."""
    rows = (" ".join(day.sentences()[: 1 + number % 5]) for number, day in enumerate(days))
    file.write_text("".join(json.dumps({"text": text}) + "\n" for text in rows), encoding="utf-8")


def main() -> None:
    """Trains, saves and reports; `rows.jsonl` goes beside the folder."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "tiny-chat"
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(SEED)
    torch.set_num_threads(1)  # sums in one order: the same weights on every run
    training, held_out = split_days()
    tokenizer = train_tokenizer(training, folder)
    model = new_model(tokenizer)
    print(f"{model.num_parameters():,} parameters, {len(tokenizer)} tokens in the vocabulary")
    train(model, tokenizer, training)
    model.save_pretrained(folder)
    write_rows(held_out[-ROWS:], folder.parent / "rows.jsonl")
    report(model, tokenizer, held_out[:60])


if __name__ == "__main__":
    main()
