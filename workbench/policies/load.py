"""Loading a policy: the embedded one by name, a Hub id, or a local folder, with or without adapters.

Everything goes through transformers' Auto classes and peft, which say what is wrong with a file. Weights are read from
safetensors alone, and a repository's own code runs only if ``trust_remote_code`` says so. What the libraries would load
without a word is refused here and in ``weights``: another model's tokenizer, an adapter put on an adapter, missing
tensors, NaN, more than there is memory for.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    GgufConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from workbench.config import PolicySection
from workbench.errors import PolicyError
from workbench.models.find import GGUF, base_of, check_there, find_server, is_adapter, policy_path, refuse_more
from workbench.models.weights import (
    NO_TOKENIZER,
    WeightsError,
    check_finite,
    check_loaded,
    check_memory,
    check_sizes,
    loading_options,
    pick_device,
    quiet_loading,
    read_model,
    read_tokenizer,
    refusals,
    with_adapter,
    with_merged_adapter,
)
from workbench.places import ADAPTER
from workbench.policies.served import Server, connect

SMALL = 4_000_000
"""Parameters below which one thread is best on a CPU: several would wait for each other at each of many small products,
and for any other process that uses a core."""
THREADS = torch.get_num_threads()


@dataclass(frozen=True)
class Policy:
    """A causal language model with its tokenizer, on ``device``, in evaluation mode; ``adapter`` was put on it.

    ``merged`` are the names and weights of adapters that are in its weights, ``under`` what they added. Where a
    ``server`` samples, the model is its configuration alone.
    """

    name: str
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    adapter: str | None = None
    merged: tuple[tuple[str, float], ...] = ()
    under: tuple[Lora, ...] = ()
    server: Server | None = None

    @property
    def device(self) -> torch.device:
        return self.model.device

    @property
    def eos_token_ids(self) -> list[int]:
        return eos_token_ids(self.model, self.tokenizer)


def eos_token_ids(model: Any, tokenizer: Any) -> list[int]:
    """Return every id that ends a completion: the model's own list (an end-of-turn token, say) and the tokenizer's."""
    declared = model.generation_config.eos_token_id
    ids = [] if declared is None else [declared] if isinstance(declared, int) else list(declared)
    if tokenizer is not None and tokenizer.eos_token_id is not None and tokenizer.eos_token_id not in ids:
        ids.append(tokenizer.eos_token_id)
    return ids


def load_policy(
    name: str,
    adapter: str | None = None,
    *,
    merge: Mapping[str, float] | None = None,
    device: str = "auto",
    dtype: str = "auto",
    attention: str = "auto",
    quantisation: str = "none",
    device_map: str = "none",
    trust_remote_code: bool = False,
    trainable: bool = False,
) -> Policy:
    """Load a policy for sampling, or for training.

    Args:
        name: as ``policy.path`` says. An adapter's folder is put on the base that it names, a GGUF file unpacked into
            the default workspace, once; a model on a server (``find.find_server``) is sampled there.
        adapter: a PEFT adapter to put on it, a Hub id or a local folder.
        merge: LoRA adapters to put into its weights before that, and how much of each: W + Σ weight · scale · B A.
        device: ``auto``, ``cpu``, ``cuda`` or ``cuda:<n>``.
        dtype: ``auto`` (float32 on CPU, as saved on a GPU), ``float32``, ``bfloat16`` or ``float16``.
        attention: transformers' ``attn_implementation`` (``sdpa``, ``eager``, ``flash_attention_2``, …), or ``auto``.
        quantisation: ``4bit`` or ``8bit`` holds linear layers in as many bits and computes in ``dtype``; or ``none``.
        device_map: how accelerate spreads the weights over the GPUs (``auto``, ``balanced``, …), or ``none``.
        trust_remote_code: run the repository's own modelling code.
        trainable: let an adapter's weights be trained on.

    Raises:
        PolicyError: if it cannot be found or read; the message says where it was looked for.
        EngineError: if its server does not answer.
    """
    more = [*(merge or {}), *([] if adapter is None else [adapter])]
    check_there(name, *more)
    if find_server(name) is not None:
        more += {dtype, attention, quantisation, device_map} - {"auto", "none"}
        return _load_served(name, more, trust_remote_code)
    where = policy_path(name)
    if is_adapter(Path(where)):
        refuse_more(name, more)
        policy = load_policy(
            base_of(Path(where)),
            where,
            device=device,
            dtype=dtype,
            attention=attention,
            quantisation=quantisation,
            device_map=device_map,
            trust_remote_code=trust_remote_code,
            trainable=trainable,
        )
        return replace(policy, name=name, adapter=None)  # the folder is both
    if name.endswith(GGUF):
        with refusals(f"policy {name!r}", PolicyError), quiet_loading((file := Path(name).expanduser()).parent):
            unpack(file, Path(where))
    target = pick_device(device)
    held = loading_options(target, dtype, attention, quantisation, device_map)
    with refusals(f"policy {name!r}", PolicyError):
        with quiet_loading(where):
            check_sizes(where)
            tokenizer = read_tokenizer(where, trust_remote_code, padding_side="left")
        model = _model(where, target, held, trust_remote_code)
        check_vocabulary(model, tokenizer)
    weights, under = {other: float(weight) for other, weight in (merge or {}).items()}, []
    for other, weight in weights.items():
        with refusals(f"adapter {other!r}", PolicyError), quiet_loading(source := str(local_adapter(other))):
            under.append(read_lora(other, Path(source), weight))
            model = with_merged_adapter(model, source, weight)
            model.name_or_path = where  # what a run saves holds those that are merged (``stacked``)
    if adapter is not None:
        folder = policy_path(adapter)
        with refusals(f"adapter {adapter!r}", PolicyError), quiet_loading(folder):
            model = with_adapter(prepared(model) if trainable else model, folder, trainable=trainable)
    with refusals(f"policy {name!r}" if adapter is None else f"adapter {adapter!r}", PolicyError):
        model = (model if "device_map" in held else model.to(target)).eval()
        check_finite(model)
    if target.type == "cpu" and "OMP_NUM_THREADS" not in os.environ:
        small = sum(tensor.numel() for tensor in model.parameters()) < SMALL
        torch.set_num_threads(1 if small else THREADS)
    return Policy(name, model, tokenizer, adapter, tuple(weights.items()), tuple(under))


def unpack(file: Path, folder: Path) -> None:
    """Write a GGUF file's model, its weights in bfloat16, and its tokenizer to ``folder``, unless that is there.

    Raises WeightsError where the package ``gguf`` is not installed.
    """
    if folder.is_dir():
        return
    if find_spec("gguf") is None:
        raise WeightsError("reading a GGUF file needs the package gguf: pip install gguf")
    plain = GgufConfig(dequantize=True)
    model: Any = AutoModelForCausalLM.from_pretrained(
        file.parent, gguf_file=file.name, dtype=torch.bfloat16, quantization_config=plain
    )
    model.hf_quantizer = None  # which refuses to save what is quantised no more
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder.parent, prefix=".") as draft:
        model.save_pretrained(draft)
        AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name).save_pretrained(draft)
        with suppress(OSError):  # another process was faster
            Path(draft).rename(folder)


def without_weights(section: PolicySection) -> Policy:
    """Return the tokenizer and the configuration of a policy whose weights are elsewhere; its model holds none.

    Raises PolicyError as ``load_policy`` does.
    """
    check_there(section.path)
    where, trust = policy_path(section.path), {"trust_remote_code": section.trust_remote_code}
    with refusals(f"policy {section.path!r}", PolicyError), quiet_loading(where):
        tokenizer = read_tokenizer(where, section.trust_remote_code, padding_side="left")
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(where, **trust), **trust)
        with suppress(OSError):  # there need not be one
            model.generation_config = GenerationConfig.from_pretrained(where)
        check_vocabulary(model, tokenizer)
    return Policy(section.path, model, tokenizer)


def _load_served(name: str, more: Sequence[str], trust_remote_code: bool) -> Policy:
    """Return a policy whose server answers. Raises EngineError, and PolicyError for ``more``: adapters, a dtype …"""
    there = find_server(name)
    assert there is not None
    if more:
        raise PolicyError(
            f"policy {name!r}: its server holds the weights; leave out {more[0]!r}, which is about weights"
        )
    policy = without_weights(PolicySection(path=name, trust_remote_code=trust_remote_code))

    def refuse(*_: Any, **__: Any) -> None:
        raise PolicyError(
            f"policy {name!r} samples on its server, and this asks for its weights; name {there.tokenizer!r} itself as "
            "the policy to load them here"
        )

    policy.model.forward = refuse
    return replace(policy, server=connect(there, policy.tokenizer))


def load_configured(section: PolicySection) -> Policy:
    """Return the policy of a configuration, for sampling. Raises as ``load_policy`` does."""
    return load_policy(section.path, section.adapter, trust_remote_code=section.trust_remote_code, **section.loading)


def prepared(model: Any) -> Any:
    """Return a quantised model made ready for an adapter to be trained on it (peft's, of QLoRA); any other as it is."""
    if not getattr(model, "is_quantized", False):
        return model
    from peft import prepare_model_for_kbit_training

    return prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)  # the trainer's to switch on


def _model(where: str, device: torch.device, held: Mapping[str, Any], trust_remote_code: bool) -> PreTrainedModel:
    """The model, after its size was compared with the memory there is, and then its tensors with its configuration."""
    trust = {"trust_remote_code": trust_remote_code}
    with quiet_loading(where):
        config = AutoConfig.from_pretrained(where, **trust)
        if "device_map" not in held:  # what is quantised or spread takes what it takes
            with torch.device("meta"):
                empty = AutoModelForCausalLM.from_config(config, **trust)
            stored = config.get_text_config().dtype or config.dtype
            check_memory(empty, stored if held["dtype"] == "auto" else held["dtype"], device)
        model, info = read_model(AutoModelForCausalLM, where, trust_remote_code, **held)
    if getattr(config, "quantization_config", None) is None:
        check_loaded(model, info)
    return model


def check_vocabulary(model: Any, tokenizer: Any) -> None:
    """Refuses another model's tokenizer, as far as numbers can tell, and gives a tokenizer without one a padding token.

    Raises WeightsError if the tokenizer gives ids that the model has no embedding for, covers a small part of the
    embeddings, has none of the tokens that end an answer by the model's configuration, or if nothing ends one.
    """
    vocabulary = tokenizer.get_vocab()
    if not set(vocabulary) - set(tokenizer.all_special_tokens):
        raise WeightsError(NO_TOKENIZER)
    rows, highest = model.get_input_embeddings().weight.shape[0], max(vocabulary.values())
    another = "take the tokenizer that was saved with the weights"
    if highest >= rows:
        token = next(text for text, number in vocabulary.items() if number == highest)
        raise WeightsError(
            f"its tokenizer has token ids up to {highest:,} ({token!r}) and the model embeds {rows:,} tokens; "
            f"{another}, or save the model again after model.resize_token_embeddings(len(tokenizer))"
        )
    if highest + 1 < rows // 2:
        raise WeightsError(
            f"its tokenizer has {highest + 1:,} token ids and the model embeds {rows:,} tokens; that is "
            f"another model's tokenizer: {another}"
        )
    ends, declared = eos_token_ids(model, tokenizer), eos_token_ids(model, None)
    if not ends:
        raise WeightsError(
            "nothing would end an answer: neither its tokenizer nor its generation_config.json has an end-of-sequence "
            "token; set tokenizer.eos_token and save the tokenizer again"
        )
    special = {*tokenizer.all_special_ids, *tokenizer.added_tokens_decoder}
    if declared and not special & set(declared) and tokenizer.eos_token_id not in declared:
        text = tokenizer.convert_ids_to_tokens(declared[0])
        raise WeightsError(
            f"token {declared[0]:,} ends an answer by its configuration and is plain {text!r} in its "
            f"tokenizer; {another}, or set eos_token_id in generation_config.json and config.json"
        )
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.convert_ids_to_tokens(ends[0])


def save_merged(adapter: str, folder: Path, *, dtype: str = "float32", trust_remote_code: bool = False) -> None:
    """Write base, adapter and tokenizer as one model to ``folder``.

    The base is loaded in full, whatever bits the adapter was trained on. Raises PolicyError if either cannot be loaded,
    or there is no adapter.
    """
    policy = load_policy(adapter, device="cpu", dtype=dtype, trust_remote_code=trust_remote_code)
    model: Any = policy.model
    if not hasattr(model, "merge_and_unload"):
        raise PolicyError(f"{adapter!r} holds no adapter to merge; it is a whole model already")
    model.merge_and_unload(safe_merge=True).save_pretrained(folder)
    policy.tokenizer.save_pretrained(folder)


# --- LoRA adapters put into a policy's weights, and one trained on top of them saved as one adapter of the base -------
#
# A sum of LoRA updates is one LoRA: s1 B1 A1 + s2 B2 A2 = s1 [B1 B2] [A1; (s2/s1) A2]. So the checkpoint of an adapter
# that was trained over merged ones holds them all, and is read by whatever reads adapters. The trained rows of A and
# columns of B stand first, bit for bit: a run resumes from those.

SETTINGS = "adapter_config.json"
A, B = ".lora_A.weight", ".lora_B.weight"
Factors = dict[str, tuple[torch.Tensor, torch.Tensor]]


@dataclass(frozen=True)
class Lora:
    """A (r, in) and B (out, r) of each module, by the name that its file has; ``scale`` times B A is added to it."""

    factors: Factors
    scale: float

    @property
    def rank(self) -> int:
        """The highest of its modules'."""
        return max(a.shape[0] for a, _ in self.factors.values())


def local_adapter(name: str) -> Path:
    """Return the folder of an adapter's files, brought from the Hub where they are not here. Raises PolicyError."""
    where = policy_path(name)
    if Path(where).is_dir():
        return Path(where)
    from huggingface_hub import hf_hub_download

    hf_hub_download(where, SETTINGS)
    return Path(hf_hub_download(where, ADAPTER)).parent


def read_lora(name: str, folder: Path, weight: float = 1.0) -> Lora:
    """A plain LoRA adapter, ``weight`` times. Raises PolicyError for one that is more than A and B of some modules."""
    settings = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))
    tensors = load_file(folder / ADAPTER)
    more = [setting for setting in ("rank_pattern", "alpha_pattern", "layer_replication") if settings.get(setting)]
    more += [tensor for tensor in tensors if not tensor.endswith((A, B))]  # DoRA, biases, whole modules
    if settings.get("peft_type") != "LORA" or more:
        raise PolicyError(
            f"adapter {name!r} is no plain LoRA ({more[0] if more else settings.get('peft_type')}), of which alone a "
            "sum is one again; merge it into its base by itself (workbench export RUN --merged, or PEFT's "
            "merge_and_unload), and name that as the policy"
        )
    root = 0.5 if settings.get("use_rslora") else 1.0
    modules = [tensor.removesuffix(A) for tensor in tensors if tensor.endswith(A)]
    factors = {module: (tensors[module + A], tensors[module + B]) for module in modules}
    return Lora(factors, weight * settings["lora_alpha"] / settings["r"] ** root)


def stacked(trained: Lora, under: Sequence[Lora]) -> Lora:
    """The sum of all as one LoRA with the first one's scale; its own rows and columns come first, as they are."""
    every = (trained, *under)
    names = dict.fromkeys(name for lora in every for name in lora.factors)
    return Lora({name: _side_by_side(name, every) for name in names}, trained.scale)


def _side_by_side(module: str, every: Sequence[Lora]) -> tuple[torch.Tensor, torch.Tensor]:
    a, b = next(lora.factors[module] for lora in every if module in lora.factors)
    absent = a.new_zeros(1, a.shape[1]), b.new_zeros(b.shape[0], 1)
    rows, columns = [], []
    for lora in every:
        a, b = lora.factors.get(module, absent)
        a = a if lora is every[0] else a * (lora.scale / every[0].scale)
        missing = lora.rank - a.shape[0] if module in lora.factors else lora.rank - 1
        rows.append(torch.nn.functional.pad(a, (0, 0, 0, missing)))
        columns.append(torch.nn.functional.pad(b, (0, missing)))
    dtype = every[0].factors[next(iter(every[0].factors))][0].dtype
    return torch.cat(rows).to(dtype), torch.cat(columns, dim=1).to(dtype)  # (R, in), (out, R)


def save_stacked(folder: Path, under: Sequence[Lora]) -> None:
    """Make the adapter in ``folder`` the sum of itself and those that it was trained over."""
    together = stacked(read_lora(str(folder), folder), under)
    tensors = {
        name + end: part for name, both in together.factors.items() for end, part in zip((A, B), both, strict=True)
    }
    save_file({name: part.contiguous() for name, part in tensors.items()}, folder / ADAPTER, metadata={"format": "pt"})
    modules = sorted(name.removeprefix("base_model.model.") for name in together.factors)
    settings = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))
    settings |= {"r": together.rank, "lora_alpha": together.scale * together.rank}
    settings |= {"use_rslora": False, "target_modules": modules, "exclude_modules": None}
    (folder / SETTINGS).write_text(json.dumps(settings, indent=2), encoding="utf-8")


@contextmanager
def trained_alone(folder: Path, ranks: Mapping[str, int]) -> Iterator[Path]:
    """A folder like ``folder`` whose adapter has of each module in ``ranks`` the first rows and columns alone."""
    tensors = load_file(folder / ADAPTER)
    own = {name + A: tensors[name + A][:rank] for name, rank in ranks.items()}
    own |= {name + B: tensors[name + B][:, :rank] for name, rank in ranks.items()}
    with TemporaryDirectory() as aside:
        for path in folder.iterdir():
            if path.name != ADAPTER:
                (Path(aside) / path.name).symlink_to(path.resolve())
        save_file({name: part.contiguous() for name, part in own.items()}, Path(aside) / ADAPTER)
        yield Path(aside)
