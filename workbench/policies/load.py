"""Loading a policy: the embedded one by name, a Hub id, or a local folder, with or without an adapter.

Everything goes through transformers' Auto classes and peft. Of local weights only safetensors are read, and a
repository's own code runs only when ``trust_remote_code`` says so.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from workbench.architecture import missing_package
from workbench.config import PolicySection
from workbench.errors import PolicyError
from workbench.policies.consent import check_weights, code_refused, pickles_refused
from workbench.policies.find import (
    adapter_path,
    base_of,
    check_packages,
    check_there,
    is_adapter,
    policy_path,
    refuse_more,
)
from workbench.policies.placing import Placing, precision, prepared
from workbench.policies.stacked import Lora, local_adapter, read_lora
from workbench.weights import (
    WeightsError,
    check_finite,
    check_layers,
    check_loaded,
    check_memory,
    is_out_of_memory,
    quiet_loading,
    tensor_names,
    with_adapter,
    with_merged_adapter,
)


@dataclass(frozen=True)
class Policy:
    """A causal language model with its tokenizer, on ``device``, in evaluation mode; ``adapter`` was put on it.

    ``merged`` are the names and weights of adapters that are in its weights, ``under`` what they added.
    """

    name: str
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    adapter: str | None = None
    merged: tuple[tuple[str, float], ...] = ()
    under: tuple[Lora, ...] = ()

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
    if tokenizer is not None and tokenizer.eos_token_id is not None and tokenizer.eos_token_id not in ids:
        ids.append(tokenizer.eos_token_id)
    return ids


def context_length(model: Any) -> int | None:
    """The most tokens a model reads; None where its configuration has no such number."""
    length = getattr(text_config(model), "max_position_embeddings", None)
    return int(length) if length is not None else None


def text_config(model: Any) -> Any:
    """The configuration of a model's language part, which a composite one (text and images) has inside."""
    return model.config.get_text_config() if hasattr(model.config, "get_text_config") else model.config


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
        name: the embedded policy's name (``tiny``), a Hub id, a local folder, or a run's checkpoint (``run:NAME``,
            ``run:NAME@STEP``); an adapter's folder is put on the base that it names.
        adapter: a PEFT adapter to put on it, a Hub id or a local folder.
        merge: LoRA adapters to put into its weights before that, and how much of each: W + Σ weight · scale · B A.
        device: ``auto``, ``cpu``, ``cuda`` or ``cuda:<n>``.
        dtype: ``auto`` (float32 on CPU, as saved on a GPU), ``float32``, ``bfloat16`` or ``float16``.
        attention: transformers' ``attn_implementation`` (``sdpa``, ``eager``, ``flash_attention_2``, …), or ``auto``.
        quantisation: ``4bit`` or ``8bit`` holds the weights of linear layers in as many bits (bitsandbytes), or
            ``none``; ``dtype`` is then what is computed in.
        device_map: how accelerate spreads the weights over the GPUs (``auto``, ``balanced``, …), or ``none``.
        trust_remote_code: run the repository's own modelling code.
        trainable: let an adapter's weights be trained on.

    Raises:
        PolicyError: if it cannot be found or read; the message says where it was looked for.
    """
    check_packages(quantisation, attention)
    check_there(name, *(merge or {}), *([] if adapter is None else [adapter]))
    where = policy_path(name)
    if is_adapter(Path(where)):
        refuse_more(name, adapter, merge or {})
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
    if Path(where).is_dir():
        check_weights(name, Path(where))
        if problem := missing_package(where):
            raise PolicyError(problem)
    target = pick_device(device)
    placing = Placing(target, precision(dtype, target), attention, quantisation, device_map)
    with _refusals(name):
        tokenizer = _tokenizer(where, trust_remote_code)
        model = _model(where, placing, trust_remote_code)
        check_vocabulary(model, tokenizer)
    weights, under = _weights(merge or {}), []
    for more, weight in weights.items():
        with _refusals(more, "adapter"):
            source = local_adapter(more)
            with quiet_loading(str(source)):
                under.append(read_lora(more, source, weight))
                model = with_merged_adapter(model, str(source), weight)
                model.name_or_path = where  # what a run saves holds those that are merged (``stacked``)
    if adapter is not None:
        folder = adapter_path(adapter)
        with _refusals(adapter, "adapter"), quiet_loading(folder):
            model = with_adapter(prepared(model) if trainable else model, folder, trainable=trainable)
    with _refusals(name if adapter is None else adapter, "policy" if adapter is None else "adapter"):
        model = (model if placing.is_placed else model.to(target)).eval()
        check_finite(model)
    return Policy(name, model, tokenizer, adapter, tuple(weights.items()), tuple(under))


def _weights(merge: Mapping[str, float]) -> dict[str, float]:
    """How much of each adapter is merged. Raises PolicyError where a weight, typed by somebody, is no number."""
    try:
        return {name: float(weight) for name, weight in merge.items()}
    except ValueError as error:
        raise PolicyError(f"merge: {error}; give each adapter a weight, NAME=1") from error


def load_configured(section: PolicySection) -> Policy:
    """The policy of a configuration, for sampling. Raises as ``load_policy`` does."""
    return load_policy(section.path, section.adapter, trust_remote_code=section.trust_remote_code, **section.loading)


def _tokenizer(where: str, trust_remote_code: bool) -> PreTrainedTokenizerBase:
    with quiet_loading(where):
        tokenizer = AutoTokenizer.from_pretrained(where, padding_side="left", trust_remote_code=trust_remote_code)
    if not set(tokenizer.get_vocab()) - set(tokenizer.all_special_tokens):
        raise WeightsError("it has no tokenizer, or one without tokens; save its own there: tokenizer.save_pretrained")
    return tokenizer


def _model(where: str, placing: Placing, trust_remote_code: bool) -> PreTrainedModel:
    """The model, after its files were compared with its configuration and its size with the memory there is."""
    trust = {"trust_remote_code": trust_remote_code}
    with quiet_loading(where):
        config = AutoConfig.from_pretrained(where, **trust)
        if Path(where).is_dir():
            check_layers(config, tensor_names(Path(where)))
        with torch.device("meta"):
            empty = AutoModelForCausalLM.from_config(config, **trust)
        stored = config.get_text_config().dtype or config.dtype
        if not placing.is_placed:  # what is quantised or spread takes what it takes
            check_memory(empty, placing.dtype if isinstance(placing.dtype, torch.dtype) else stored, placing.device)
        model, info = AutoModelForCausalLM.from_pretrained(
            where,
            use_safetensors=True,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # so that they can be named
            **placing.arguments(),
            **trust,
        )
    if getattr(config, "quantization_config", None) is None:
        check_loaded(model, info)
    return model


def check_vocabulary(model: Any, tokenizer: Any) -> None:
    """Refuses another model's tokenizer, as far as numbers can tell, and gives a tokenizer without one a padding token.

    Raises WeightsError if the tokenizer gives ids that the model has no embedding for, covers a small part of the
    embeddings, has none of the tokens that end an answer by the model's configuration, or if nothing ends one.
    """
    vocabulary = tokenizer.get_vocab()
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
        tokenizer.pad_token = tokenizer.eos_token or tokenizer.convert_ids_to_tokens(ends[0])


@contextlib.contextmanager
def _refusals(name: str, what: str = "policy") -> Iterator[None]:
    """Turns what transformers, safetensors and peft raise into one sentence about ``name``."""
    try:
        yield
    except PolicyError:
        raise
    except WeightsError as error:
        raise PolicyError(f"{what} {name!r} cannot be used: {error}") from error
    except Exception as error:  # whatever a damaged file or configuration leads to in four libraries
        if is_out_of_memory(error):
            raise PolicyError(
                f"{what} {name!r} does not fit into memory; take a smaller model, or hold its weights in bfloat16 "
                "(policy.dtype) or in 8 or 4 bits (policy.quantisation)"
            ) from error
        raise PolicyError(_refusal(name, error, what)) from error


def _refusal(name: str, error: Exception, what: str) -> str:
    """transformers' message, or a clearer one for what is refused on purpose."""
    if "trust_remote_code" in str(error):
        return code_refused(name)
    if "pytorch_model.bin" in str(error) and "safetensors" in str(error):
        return pickles_refused(name)
    if "backend tokenizer" in str(error):
        return f"{what} {name!r} cannot be used: it has no tokenizer; save its own there: tokenizer.save_pretrained"
    kind = "" if isinstance(error, (OSError, ValueError)) else f"{type(error).__name__}: "
    return f"{what} {name!r} cannot be loaded: {kind}{_first_line(error)}"


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()]
    return " ".join(lines[:2])[:300] if lines else type(error).__name__
