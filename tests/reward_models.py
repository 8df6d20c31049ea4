"""Tiny random reward models and their tokenizer, made here and saved with ``save_pretrained`` for the real loader."""

from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    LlamaForSequenceClassification,
    LlamaForTokenClassification,
    PreTrainedTokenizerFast,
    Qwen2Config,
)

CHAT = (
    "{% for m in messages %}<|start|>{{ m['role'] }}\n{{ m['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)
FORGETFUL = (  # like templates that drop what earlier turns of the assistant said
    "{% for m in messages %}{% if m['role'] != 'assistant' %}<|start|>{{ m['role'] }}\n{{ m['content'] }}<|end|>"
    "{% endif %}{% endfor %}{% if add_generation_prompt %}{{ messages | length }}<|start|>assistant\n{% endif %}"
)
KINDS = {"stepwise": "token", "ki": "causal", "extra-0": "qwen", "turns": "causal", "implicit": "implicit"}
"""Format → the kind of model that is read in it."""
PROMPT = "Start with 7, add 5, subtract 2.\n"
STEPS = (["Step 1: 7 + 5 = 12\n", "Step 2: 12 - 2 = 10\n", "Answer: 10"], ["Step 1: 7 + 5 = 13\n"], ["Answer: 9"])


def tokenizer(template: str | None = CHAT) -> PreTrainedTokenizerFast:
    """Byte-level BPE with the marks of all formats; "+ -" is two tokens."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    special = ["<|pad|>", "<|end|>", "<|bos|>", "<|start|>", "<extra_0>"]
    trainer = trainers.BpeTrainer(
        vocab_size=340,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    texts = [PROMPT, *(step for steps in STEPS for step in steps), "+ -", "+ - " * 20, " ки\n" * 20, "assistant\n" * 5]
    bpe.train_from_iterator(texts, trainer=trainer)
    made = PreTrainedTokenizerFast(tokenizer_object=bpe, pad_token="<|pad|>", eos_token="<|end|>", bos_token="<|bos|>")
    made.chat_template = template
    return made


def _sizes(vocabulary: int, **more: object) -> dict[str, object]:
    return {
        "vocab_size": vocabulary,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 256,
        "initializer_range": 0.3,
        "pad_token_id": 0,
        **more,
    }


def save(kind: str, folder: Path, *, seed: int = 0, template: str | None = CHAT, **config: object) -> str:
    """Save a model of ``kind`` (token, sequence, causal, implicit, qwen) and its tokenizer; return the folder."""
    from workbench.rewards.models.model import Qwen2ForProcessRewardModel

    torch.manual_seed(seed)
    words = tokenizer(template)
    if kind == "qwen":
        model = Qwen2ForProcessRewardModel(Qwen2Config(**_sizes(len(words), **config)))
    else:
        known = {
            "token": LlamaForTokenClassification,
            "sequence": LlamaForSequenceClassification,
            "causal": LlamaForCausalLM,
            "implicit": LlamaForCausalLM,
        }
        settings = {"token": {"num_labels": 2}, "sequence": {"num_labels": 2}, "implicit": {"step_beta": 0.25}}
        if kind == "implicit":
            known[kind](LlamaConfig(**_sizes(len(words), **config))).save_pretrained(folder / "reference")
        model = known[kind](LlamaConfig(**_sizes(len(words), **(settings.get(kind, {}) | config))))
    model.eval().save_pretrained(folder)
    words.save_pretrained(folder)
    return str(folder)


def reference(form: str, model, words, prompt: str, steps: list[str]) -> list[float]:
    """The model cards' own computation on one completion, unbatched and uncached."""
    steps = [step.strip() for step in steps]

    def run(ids):
        with torch.no_grad():
            return model(input_ids=torch.tensor([ids])).logits[0]

    from workbench.rewards.models.formats import QWEN_SYSTEM

    match form:
        case "implicit":  # sigmoid of beta times the sum of log pi - log pi_ref, a prefix at a time
            before = LlamaForCausalLM.from_pretrained(model.config._name_or_path, subfolder="reference")
            ids = [words.bos_token_id, *words(prompt, add_special_tokens=False)["input_ids"]]
            total, scores = 0.0, []
            for step in steps:
                for token in words(step, add_special_tokens=False)["input_ids"] + words.encode("\n"):
                    with torch.no_grad():
                        after, ref = (m(torch.tensor([ids])).logits[0, -1].log_softmax(-1) for m in (model, before))
                    total += (after[token] - ref[token]).item()
                    ids.append(token)
                scores.append(torch.sigmoid(torch.tensor(model.config.step_beta * total)).item())
            return scores
        case "stepwise":  # TRL's PRMTrainer.tokenize_row; the label is on the last token of step + separator
            ids = [words.bos_token_id, *words(prompt, add_special_tokens=False)["input_ids"]]
            ends = []
            for step in steps:
                ids += words(step, add_special_tokens=False)["input_ids"]
                ids += words.encode("\n", add_special_tokens=False)
                ends.append(len(ids) - 1)
            return run(ids).softmax(-1)[ends, 1].tolist()
        case "ki":  # the card of math-shepherd-mistral-7b-prm
            candidates = words.encode("+ -", add_special_tokens=False)
            tag = words.encode(" ки", add_special_tokens=False)[-1]
            ids = words.encode(prompt.strip() + " " + "".join(f"{step} ки\n" for step in steps).rstrip("\n"))
            scores = run(ids)[:, candidates].softmax(-1)[:, 0]
            return scores[torch.tensor(ids) == tag].tolist()
        case "extra-0":  # the card of Qwen2.5-Math-PRM-7B
            talk = [
                {"role": "system", "content": QWEN_SYSTEM},
                {"role": "user", "content": prompt},
                {"role": "assistant", "content": "<extra_0>".join(steps) + "<extra_0>"},
            ]
            ids = words.encode(words.apply_chat_template(talk, tokenize=False, add_generation_prompt=False))
            mask = torch.tensor(ids) == words.encode("<extra_0>")[0]
            return run(ids).softmax(-1)[mask][:, 1].tolist()
    # RLHFlow math-rm/prm_evaluate.py: a pass for every step, read before the "+" that ends the conversation
    plus, minus = words.encode("+")[-1], words.encode("-")[-1]
    talk, scores = [], []
    for k, step in enumerate(steps):
        talk += [{"role": "user", "content": f"{prompt} {step}" if k == 0 else step}]
        talk += [{"role": "assistant", "content": "+"}]
        ids = words.apply_chat_template(talk, return_dict=True)["input_ids"]
        assert words.convert_ids_to_tokens(ids[-2:]) == ["+", "<|end|>"]
        scores.append(run(ids)[-3, [plus, minus]].softmax(-1)[0].item())
    return scores
