"""Loading a policy: the embedded one by name, a Hub id, or a local folder, with or without an adapter.

Everything goes through transformers' Auto classes and peft. Of local weights only safetensors are read, and a
repository's own code runs only when ``trust_remote_code`` says so.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from workbench.errors import PolicyError
from workbench.policies.consent import check_weights, code_refused, pickles_refused
from workbench.policies.embedded import EMBEDDED
from workbench.quiet import quiet_loading


@dataclass(frozen=True)
class Policy:
    """A causal language model with its tokenizer, on ``device``, in evaluation mode; ``adapter`` was put on it."""

    name: str
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    adapter: str | None = None

    @property
    def device(self) -> torch.device:
        return self.model.device

    @property
    def eos_token_ids(self) -> list[int]:
        return eos_token_ids(self.model, self.tokenizer)


def eos_token_ids(model: Any, tokenizer: Any) -> list[int]:
    """Every id that ends a completion: the model's own list (an end-of-turn token, say) and the tokenizer's."""
    declared = model.generation_config.eos_token_id
    ids = [] if declared is None else [declared] if isinstance(declared, int) else list(declared)
    if tokenizer.eos_token_id is not None and tokenizer.eos_token_id not in ids:
        ids.append(tokenizer.eos_token_id)
    return ids


def pick_device(device: str = "auto") -> torch.device:
    """``auto`` is the GPU where there is one. Raises PolicyError for a GPU that is not there."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise PolicyError("device 'cuda' was asked for and torch sees no GPU here; use 'auto' or 'cpu'")
    return torch.device(device)


def load_policy(
    name: str,
    adapter: str | None = None,
    *,
    device: str = "auto",
    dtype: str = "auto",
    trust_remote_code: bool = False,
    trainable: bool = False,
) -> Policy:
    """Load a policy for sampling, or for training.

    Args:
        name: the embedded policy's name (``tiny``), a Hub id, or a local folder; that of an adapter is put on the base
            that it names.
        adapter: a PEFT adapter to put on it, a Hub id or a local folder.
        device: ``auto``, ``cpu``, ``cuda`` or ``cuda:<n>``.
        dtype: ``auto`` (float32 on CPU, as saved on a GPU), ``float32``, ``bfloat16`` or ``float16``.
        trust_remote_code: run the repository's own modelling code.
        trainable: let an adapter's weights be trained on.

    Raises:
        PolicyError: if it cannot be found or read; the message says where it was looked for.
    """
    where = policy_path(name)
    if (Path(where) / "adapter_config.json").is_file() and not (Path(where) / "config.json").is_file():
        if adapter is not None:
            raise PolicyError(
                f"folder {name!r} is an adapter itself; name its base as the policy to put {adapter!r} on"
            )
        base = _base_of(Path(where))
        policy = load_policy(
            base, where, device=device, dtype=dtype, trust_remote_code=trust_remote_code, trainable=trainable
        )
        return replace(policy, name=name, adapter=None)  # the folder is both
    if Path(where).is_dir():
        check_weights(name, Path(where))
    target = pick_device(device)
    if dtype == "auto":
        wanted: Any = torch.float32 if target.type == "cpu" else "auto"
    else:
        wanted = getattr(torch, dtype, None)
        if not isinstance(wanted, torch.dtype):
            raise PolicyError(f"unknown dtype {dtype!r}; use auto, float32, bfloat16 or float16")
    try:
        with quiet_loading(where):
            tokenizer = AutoTokenizer.from_pretrained(where, padding_side="left", trust_remote_code=trust_remote_code)
            model = AutoModelForCausalLM.from_pretrained(
                where, dtype=wanted, use_safetensors=True, trust_remote_code=trust_remote_code
            )
            if adapter is not None:
                from peft import PeftModel

                model = PeftModel.from_pretrained(model, _adapter_path(adapter), is_trainable=trainable)
    except (OSError, ValueError) as error:
        raise PolicyError(_refusal(name, error)) from error
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return Policy(name, model.to(target).eval(), tokenizer, adapter)


def policy_path(name: str) -> str:
    """Where the weights of ``name`` are: a folder for embedded and local ones, the Hub id itself otherwise.

    Raises PolicyError for a folder that is not there or holds no model.
    """
    if name in EMBEDDED:
        return str(EMBEDDED[name])
    folder = Path(name).expanduser()
    if folder.is_dir():
        if not any((folder / file).is_file() for file in ("config.json", "adapter_config.json")):
            raise PolicyError(f"folder {name!r} holds no config.json; point at a folder saved by save_pretrained")
        return str(folder)
    if name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise PolicyError(
            f"there is no folder {name!r}; give the folder of a saved model, a Hub id like "
            f"'Qwen/Qwen2.5-0.5B-Instruct', or {' or '.join(repr(known) for known in EMBEDDED)}"
        )
    return name


def _base_of(folder: Path) -> str:
    """The policy that a folder's adapter was trained on, as the adapter names it."""
    try:
        base = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))["base_model_name_or_path"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise PolicyError(f"adapter folder {str(folder)!r}: its adapter_config.json names no base model") from error
    if not base:
        raise PolicyError(
            f"adapter folder {str(folder)!r} names no base model; give that as the policy, this as adapter"
        )
    return str(base)


def _adapter_path(name: str) -> str:
    where = policy_path(name)
    if Path(where).is_dir():
        check_weights(name, Path(where))
    if Path(where).is_dir() and not (Path(where) / "adapter_model.safetensors").is_file():
        raise PolicyError(f"adapter folder {name!r} holds no adapter_model.safetensors; save it with safetensors")
    return where


def _refusal(name: str, error: Exception) -> str:
    """transformers' message, or a clearer one for what is refused on purpose."""
    if "trust_remote_code" in str(error):
        return code_refused(name)
    if "pytorch_model.bin" in str(error) and "safetensors" in str(error):
        return pickles_refused(name)
    return f"policy {name!r} cannot be loaded: {_first_line(error)}"


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
