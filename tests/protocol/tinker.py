"""The Tinker protocol's client with its server inside: what a run calls, computed with transformers in this process.

In the place of the package ``tinker`` (this folder first on the path) a run trains with it, as a run in a process of
its own does. The losses are written down from the protocol's own words, and not from this package: a second
implementation of both. ``base_url`` is file:///FOLDER, where states and archives are kept; while a file ``down`` is in
it, no call returns, and with a file ``mean`` gradients are averaged. With a file ``lost`` no checkpoint is loaded, and
``asked`` is there once one was asked for.
"""

import math
import tarfile
import tempfile
import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer

from workbench.config import SamplingConfig
from workbench.policies.sampler import sample_rows


def tensor(array):
    return SimpleNamespace(data=array.tolist(), dtype=str(array.dtype))


types = SimpleNamespace(
    ModelInput=SimpleNamespace(from_ints=lambda tokens: SimpleNamespace(ids=list(tokens))),
    TensorData=SimpleNamespace(from_numpy=tensor),
    Datum=lambda model_input, loss_fn_inputs: SimpleNamespace(model_input=model_input, loss_fn_inputs=loss_fn_inputs),
    SamplingParams=lambda **named: SimpleNamespace(**({"temperature": 1.0, "top_p": 1.0, "top_k": -1} | named)),
    AdamParams=lambda learning_rate, beta1=0.9, beta2=0.95, eps=1e-12, weight_decay=0.0, grad_clip_norm=0.0: (
        SimpleNamespace(
            learning_rate=learning_rate,
            beta1=beta1,
            beta2=beta2,
            eps=eps,
            weight_decay=weight_decay,
            grad_clip_norm=grad_clip_norm,
        )
    ),
)


def done(value):
    """A future that is there already."""
    return SimpleNamespace(result=lambda timeout=None: value)


def answered(call):
    """A method whose answer is a future, and which never answers while the server is down."""

    def asked(self, *args, **kwargs):
        self.wait()
        return done(call(self, *args, **kwargs))

    return asked


class Here:
    """What all clients know: the model, and the folder in which the server keeps things."""

    def __init__(self, folder, model, tokenizer):
        self.folder, self.model, self.tokenizer = folder, model, tokenizer

    def wait(self):
        if (self.folder / "down").exists():
            threading.Event().wait()

    def logprobs(self, rows):
        """Log-probabilities of each row's tokens after its first, (length - 1,) each."""
        longest = max(map(len, rows))
        ids = torch.tensor([[*row, *[0] * (longest - len(row))] for row in rows])
        mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows])
        logits = self.model(input_ids=ids, attention_mask=mask).logits[:, :-1].float()
        of_next = logits.log_softmax(-1).gather(-1, ids[:, 1:, None])[..., 0]
        return [of_next[i, : len(row) - 1] for i, row in enumerate(rows)]


class SamplingClient(Here):
    @answered
    def sample(self, prompt, num_samples, sampling_params):
        how = sampling_params
        rows = sample_rows(
            self.model,
            [prompt.ids] * num_samples,
            SamplingConfig(
                max_completion_length=how.max_tokens,
                temperature=how.temperature,
                top_p=how.top_p,
                top_k=max(how.top_k, 0),
            ),
            eos_token_ids=list(how.stop),
            pad_token_id=self.tokenizer.pad_token_id,
            seed=how.seed,
        )
        return SimpleNamespace(sequences=[SimpleNamespace(tokens=r.token_ids, logprobs=r.logprobs) for r in rows])

    @answered
    def compute_logprobs(self, prompt):
        with torch.no_grad():
            return [None, *self.logprobs([prompt.ids])[0].tolist()]


class TrainingClient(Here):
    def __init__(self, *here):
        super().__init__(*here)
        self.adam = torch.optim.AdamW([p for p in self.model.parameters() if p.requires_grad])
        self.sent = []  # all data of all calls, for tests to look at
        self.averages, self.rows = (self.folder / "mean").exists(), 0  # as SkyRL's server on JAX does

    @answered
    def forward_backward(self, data, loss_fn, loss_fn_config=None):
        self.sent.append(data)
        inputs = [{name: tensor.data for name, tensor in datum.loss_fn_inputs.items()} for datum in data]
        rows = [
            [*datum.model_input.ids, values["target_tokens"][-1]] for datum, values in zip(data, inputs, strict=True)
        ]
        assert [row[1:] for row in rows] == [values["target_tokens"] for values in inputs]  # targets are shifted by one
        outputs, total, self.rows = [], 0.0, self.rows + len(rows)
        for new, values in zip(self.logprobs(rows), inputs, strict=True):
            advantages = torch.tensor(values["advantages"])
            ratio = (new - torch.tensor(values["logprobs"])).exp()
            losses = -ratio * advantages
            if loss_fn == "ppo":
                limits = loss_fn_config["clip_low_threshold"], loss_fn_config["clip_high_threshold"]
                losses = -torch.minimum(ratio * advantages, ratio.clamp(*limits) * advantages)
            total = total + (losses.mean() if self.averages else losses.sum())
            arrays = {"elementwise_loss": losses, "logprobs": new}
            outputs.append({n: tensor(np.float32(v.detach().numpy())) for n, v in arrays.items()})
        total.backward()
        return SimpleNamespace(loss_fn_outputs=outputs)

    @answered
    def optim_step(self, adam_params):
        for group in self.adam.param_groups:
            group |= {"lr": adam_params.learning_rate, "betas": (adam_params.beta1, adam_params.beta2)}
            group |= {"eps": adam_params.eps, "weight_decay": adam_params.weight_decay}
        weights = self.adam.param_groups[0]["params"]
        for weight in weights if self.averages else ():
            weight.grad /= self.rows
        self.rows = 0
        norm = torch.nn.utils.clip_grad_norm_(weights, adam_params.grad_clip_norm or math.inf)
        self.adam.step()
        self.adam.zero_grad()
        return SimpleNamespace(metrics={"grad_norm": float(norm)})

    def save_weights_and_get_sampling_client(self):
        self.wait()
        return SamplingClient(self.folder, self.model, self.tokenizer)

    @answered
    def save_state(self, name):
        weights = {n: p for n, p in self.model.named_parameters() if p.requires_grad}
        torch.save((weights, self.adam.state_dict()), self.folder / name)
        return SimpleNamespace(path=f"tinker://{name}")

    @answered
    def load_state_with_optimizer(self, path):
        if "checkpoint" in path and (self.folder / "lost").exists():
            (self.folder / "asked").touch()
            threading.Event().wait()
        weights, adam = torch.load(self.folder / path.removeprefix("tinker://"))
        with torch.no_grad():
            for name, weight in weights.items():
                self.model.get_parameter(name).copy_(weight)
        self.adam.load_state_dict(adam)

    @answered
    def save_weights_for_sampler(self, name):
        with tempfile.TemporaryDirectory() as folder, tarfile.open(self.folder / f"{name}.tar", "w") as archive:
            self.model.save_pretrained(folder)
            for file in ("adapter_config.json", "adapter_model.safetensors"):
                archive.add(Path(folder) / file, file)
        return SimpleNamespace(path=f"tinker://model/{name}")


class ServiceClient:
    last: "ServiceClient"
    """The newest one, for tests to look at."""

    def __init__(self, base_url, api_key):
        assert api_key.startswith("tml-")
        self.folder = Path(base_url.removeprefix("file://"))
        ServiceClient.last = self

    def _here(self, base_model):
        model = AutoModelForCausalLM.from_pretrained(base_model, dtype=torch.float32).eval()
        return model, AutoTokenizer.from_pretrained(base_model)

    def create_lora_training_client(self, base_model, rank, seed):
        model, tokenizer = self._here(base_model)
        torch.manual_seed(seed)
        lora = get_peft_model(model, LoraConfig(r=rank, lora_alpha=32, target_modules="all-linear")).eval()
        self.training = TrainingClient(self.folder, lora, tokenizer)
        self.training.wait()
        return self.training

    def create_sampling_client(self, base_model):
        self.sampling = SamplingClient(self.folder, *self._here(base_model))
        return self.sampling

    def create_rest_client(self):
        return self

    def get_checkpoint_archive_url(self, run, checkpoint):
        return done(SimpleNamespace(url=f"file://{self.folder}/{checkpoint}.tar"))
