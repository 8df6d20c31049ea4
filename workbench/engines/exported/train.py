"""Trains as the run did on a server that speaks the Tinker protocol: ``python train.py [URL]``.

The key is read from the environment variable that settings.json names. The server's loss is a plain sum over tokens, so
the divisor is sent with the advantages: A · c.
"""

from __future__ import annotations

import json
import os
import sys
from itertools import cycle, islice

import core
import numpy as np

from workbench.credit import length_normalisers

TRAINING = core.SETTINGS["training"]


def main(url):
    """Train for the run's steps and save the weights."""
    import tinker
    from transformers import AutoTokenizer

    types, every = tinker.types, TRAINING["num_iterations"]
    tokenizer = AutoTokenizer.from_pretrained(_path("tokenizer"))
    prompts = cycle(map(json.loads, (core.HERE / "train.jsonl").read_text(encoding="utf-8").splitlines()))
    service = tinker.ServiceClient(base_url=url, api_key=os.environ.get(TRAINING["key_env"], "tml-none"))
    training = service.create_lora_training_client(
        base_model=_path("base_model"), rank=TRAINING["rank"], seed=TRAINING["seed"]
    )
    clips = {"clip_low_threshold": 1 - TRAINING["epsilon"], "clip_high_threshold": 1 + TRAINING["epsilon_high"]}
    loss, limits = ("ppo", clips) if every > 1 else ("importance_sampling", None)
    adam = {name: TRAINING[name] for name in ("beta1", "beta2", "eps", "weight_decay", "grad_clip_norm")}
    for step in range(TRAINING["steps"]):
        if step % every == 0:
            sampler = training.save_weights_and_get_sampling_client()
            asked = list(islice(prompts, TRAINING["prompts_per_step"]))
            data, outcome = generation(types, sampler, tokenizer, asked, step)
        training.forward_backward(data, loss, limits).result()
        training.optim_step(types.AdamParams(learning_rate=rate(step), **adam)).result()
        print(f"step {step + 1}: mean outcome {outcome:.3f}", flush=True)
    print(training.save_state("final").result().path)


def _path(setting):
    """Return a setting's model: the policy's folder beside this file, or what the setting names."""
    beside = core.HERE / TRAINING[setting]
    return str(beside) if beside.exists() else TRAINING[setting]


def rate(step):
    """Return the learning rate of a step, from 0: a linear rise, then as ``lr_scheduler_type`` says."""
    warmup, total = TRAINING["warmup_steps"], TRAINING["steps"]
    rises, done = step / max(1, warmup), (step - warmup) / max(1, total - warmup)
    falls = {"constant": 1.0, "cosine": 0.5 * (1 + np.cos(np.pi * done)), "linear": 1 - done}
    return TRAINING["learning_rate"] * float(rises if step < warmup else falls[TRAINING["lr_scheduler_type"]])


def generation(types, sampler, tokenizer, asked, step):
    """Sample, score and credit a generation; return the data that the server is sent, and the mean outcome."""
    prompts = [prompt_ids_of(tokenizer, row["prompt"]) for row in asked]
    seeds = np.random.SeedSequence((TRAINING["seed"], step)).generate_state(len(asked)) >> 2  # completions add to them
    how = {"max_tokens": core.SETTINGS["sampling"]["max_tokens"], "stop": core.SETTINGS["eos_token_ids"]}
    futures = [
        sampler.sample(
            prompt=types.ModelInput.from_ints(ids),
            num_samples=TRAINING["num_generations"],
            sampling_params=types.SamplingParams(**how, temperature=1.0, seed=int(seed)),
        )
        for ids, seed in zip(prompts, seeds, strict=True)
    ]
    sampled = [(i, one) for i, future in enumerate(futures) for one in future.result().sequences]
    scored = [core.answer(tokenizer, **asked[i], prompt_ids=prompts[i], ids=list(one.tokens)) for i, one in sampled]
    rows, counted, outcomes = zip(*scored, strict=True)
    values = core.advantages(core.pad(rows), [i for i, _ in sampled])
    scales = divisors([len(one.tokens) for _, one in sampled], counted)
    data = []
    for (i, one), advantages, scale in zip(sampled, values, scales, strict=True):
        made = arrays(prompts[i], one.tokens, one.logprobs, advantages[: len(one.tokens)] * scale)
        tensors = {name: types.TensorData.from_numpy(array) for name, array in made.items()}
        model_input = types.ModelInput.from_ints([*prompts[i], *one.tokens][:-1])
        data.append(types.Datum(model_input=model_input, loss_fn_inputs=tensors))
    return data, np.mean([outcome for outcome in outcomes if outcome is not None] or np.nan)


def prompt_ids_of(tokenizer, prompt):
    """Return the ids of a prompt: text as it is, messages through the chat template."""
    if isinstance(prompt, str):
        return tokenizer(prompt)["input_ids"]
    kwargs = {"add_generation_prompt": True, "tokenize": True, "return_dict": True, **TRAINING["template_kwargs"]}
    return tokenizer.apply_chat_template(prompt, **kwargs)["input_ids"]


def divisors(lengths, counted):
    """Return c_i of each completion, (B,): what ``loss_type`` multiplies its tokens with, 0 where it leaves one out."""
    longest, masked = core.SETTINGS["sampling"]["max_tokens"], [not is_counted for is_counted in counted]
    return length_normalisers(lengths, TRAINING["loss_type"], max_completion_length=longest, masked=masked)


def arrays(prompt_ids, ids, logprobs, weights):
    """Return what the server is sent of a completion: arrays of the *targets*, one shorter than the tokens."""
    nothing = np.zeros(len(prompt_ids) - 1, dtype=np.float32)
    return {
        "target_tokens": np.asarray([*prompt_ids, *ids][1:], dtype=np.int64),
        "logprobs": np.concatenate([nothing, np.asarray(logprobs, dtype=np.float32)]),
        "advantages": np.concatenate([nothing, np.asarray(weights, dtype=np.float32)]),
    }


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else TRAINING["url"])
