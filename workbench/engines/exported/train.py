"""Trains as the run did on a server that speaks the Tinker protocol: ``python train.py [URL]``.

The key is read from the environment variable that settings.json names. The server's loss is a plain sum over tokens, so
the divisor is sent with the advantages: A · c.
"""

from __future__ import annotations

import json
import os
import sys

import core
import numpy as np

SETTINGS = core.SETTINGS
TRAINING = SETTINGS["training"]


def divisors(lengths, counted):
    """Return c_i of each completion: what ``loss_type`` multiplies its tokens with, 0 where it leaves one out."""
    lengths = np.asarray(lengths, dtype=np.float64)
    counted = np.asarray(counted, dtype=bool)
    each = {
        "grpo": 1 / (len(lengths) * np.maximum(lengths, 1)),
        "dr_grpo": np.full(len(lengths), 1 / (len(lengths) * SETTINGS["sampling"]["max_tokens"])),
    }.get(TRAINING["loss_type"], np.full(len(lengths), 1 / max(lengths[counted].sum(), 1)))  # dapo, bnpo
    return np.where(counted, each, 0.0)


def arrays(prompt_ids, ids, logprobs, weights):
    """Return what the server is sent of a completion: arrays of the *targets*, one shorter than the tokens."""
    nothing = np.zeros(len(prompt_ids) - 1, dtype=np.float32)
    return {
        "target_tokens": np.asarray([*prompt_ids, *ids][1:], dtype=np.int64),
        "logprobs": np.concatenate([nothing, np.asarray(logprobs, dtype=np.float32)]),
        "advantages": np.concatenate([nothing, np.asarray(weights, dtype=np.float32)]),
    }


def rate(step):
    """Return the learning rate of a step, from 0: a linear rise, then as ``lr_scheduler_type`` says."""
    warmup, total = TRAINING["warmup_steps"], TRAINING["steps"]
    if step < warmup:
        share = step / warmup
    else:
        done = (step - warmup) / max(1, total - warmup)
        falls = {"linear": 1 - done, "cosine": 0.5 * (1 + np.cos(np.pi * done))}
        share = falls.get(TRAINING["lr_scheduler_type"], 1.0)
    return TRAINING["learning_rate"] * share


def main(url):
    """Train for the run's steps and save the weights."""
    import tinker
    from transformers import AutoTokenizer

    types = tinker.types
    beside = core.HERE / SETTINGS["tokenizer"]
    tokenizer = AutoTokenizer.from_pretrained(beside if beside.exists() else SETTINGS["tokenizer"])
    rows = [json.loads(line) for line in (core.HERE / "train.jsonl").read_text(encoding="utf-8").splitlines()]
    service = tinker.ServiceClient(base_url=url, api_key=os.environ.get(TRAINING["key_env"], "tml-none"))
    training = service.create_lora_training_client(
        base_model=TRAINING["base_model"], rank=TRAINING["rank"], seed=TRAINING["seed"]
    )
    loss = "importance_sampling" if TRAINING["num_iterations"] == 1 else "ppo"
    limits = {"clip_low_threshold": 1 - TRAINING["epsilon"], "clip_high_threshold": 1 + TRAINING["epsilon_high"]}
    step, count = 0, TRAINING["prompts_per_step"]
    while step < TRAINING["steps"]:
        first = step // TRAINING["num_iterations"] * count
        asked = [rows[(first + i) % len(rows)] for i in range(count)]
        sampler = training.save_weights_and_get_sampling_client()
        sent, total = generation(types, sampler, tokenizer, asked, step)
        data = [
            types.Datum(model_input=types.ModelInput.from_ints(ids), loss_fn_inputs=as_tensors(types, values))
            for ids, values in sent
        ]
        for _ in range(TRAINING["num_iterations"]):
            training.forward_backward(data, loss, limits if loss == "ppo" else None).result()
            adam = {name: TRAINING[name] for name in ("beta1", "beta2", "eps", "weight_decay", "grad_clip_norm")}
            training.optim_step(types.AdamParams(learning_rate=rate(step), **adam)).result()
            step += 1
            print(f"step {step}: mean outcome {total:.3f}", flush=True)
    print(training.save_state("final").result().path)


def as_tensors(types, values):
    return {name: types.TensorData.from_numpy(array) for name, array in values.items()}


def generation(types, sampler, tokenizer, asked, seed):
    """Sample, score and credit a generation: (input ids, arrays) of each completion, and their mean outcome."""
    prompts = [prompt_ids_of(tokenizer, row["prompt"]) for row in asked]
    how = {"max_tokens": SETTINGS["sampling"]["max_tokens"], "temperature": 1.0}
    futures = []
    for number, ids in enumerate(prompts):
        params = types.SamplingParams(**how, seed=(seed * len(asked) + number) * 1000, stop=SETTINGS["eos_token_ids"])
        prompt = types.ModelInput.from_ints(ids)
        futures.append(sampler.sample(prompt=prompt, num_samples=TRAINING["num_generations"], sampling_params=params))
    members, encoded, outcomes = [], [], []
    for number, future in enumerate(futures):
        opened = tokenizer.decode(prompts[number][-16:]).rstrip().endswith("<think>")
        for sequence in future.result().sequences:
            ids = list(sequence.tokens)
            finished = bool(ids) and ids[-1] in SETTINGS["eos_token_ids"]
            texts = core.steps.token_texts(tokenizer, ids)
            scored = core.score(ids, texts, finished, asked[number]["prompt"], asked[number]["columns"], opened)
            members.append((number, ids, list(sequence.logprobs), finished))
            encoded.append(core.encode(len(ids), scored))
            outcomes.append(scored.outcome or 0.0)
    table = np.zeros((len(encoded), max(map(len, encoded))), dtype=np.float64)
    for i, row in enumerate(encoded):
        table[i, : len(row)] = row
    values = core.advantages(table, [number for number, *_ in members])
    counted = [finished or not SETTINGS["mask_truncated_completions"] for *_, finished in members]
    scales = divisors([len(ids) for _, ids, *_ in members], counted)
    sent = []
    for i, (number, ids, logprobs, _) in enumerate(members):
        weights = values[i, : len(ids)] * scales[i]
        sent.append(([*prompts[number], *ids][:-1], arrays(prompts[number], ids, logprobs, weights)))
    return sent, float(np.mean(outcomes))


def prompt_ids_of(tokenizer, prompt):
    """Return the ids of a prompt: text as it is, messages through the chat template."""
    if isinstance(prompt, str):
        return tokenizer(prompt)["input_ids"]
    kwargs = {"add_generation_prompt": True, "tokenize": True, "return_dict": True, **SETTINGS["template_kwargs"]}
    return tokenizer.apply_chat_template(prompt, **kwargs)["input_ids"]


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else TRAINING["url"])
