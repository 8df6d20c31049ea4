"""Weights: how they are read and held, what loading gets silently wrong, the memory they take, few bits, adapters.

transformers, PEFT and safetensors say what is wrong with a file, if not always so that one knows what to do
(``_IN_WORDS``). Checked here is what they load without a word: tensors that are missing or left over, NaN, an adapter
of another base, more parameters than there is memory. Policies and reward models are loaded through these checks. Each
raises ``WeightsError`` with a sentence that names the tensor or number and what to do, to follow the model's own name;
``refusals`` puts that before it.
"""

import re
import traceback
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from logging import ERROR, LogRecord, getLogger
from pathlib import Path
from typing import Any

import psutil
import torch
from transformers import AutoTokenizer, PretrainedConfig

from workbench.errors import PolicyError, WorkbenchError, cut
from workbench.places import ADAPTER

HEADS = ("lm_head", "score", "classifier")
"""Modules that a reward model scores with, which are never quantised."""
_NO_MEMORY = (
    *("out of memory", "can't allocate memory", "cannot allocate memory"),
    *("CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED"),
)
_MASKS = re.compile(r"(^|\.)(masked_bias|(attn|attention)\.bias|inv_freq)$")  # constants that old files hold


NO_TOKENIZER = "it has no tokenizer, or one without tokens; save its own there: tokenizer.save_pretrained"
_IN_WORDS = {
    "SafetensorError": "its weights' file is torn or no safetensors file; copy or download it again",
    "file named model.safetensors": "it has no model.safetensors, and weights in pytorch_model.bin are not read, as "
    "they can run code; save them again with save_pretrained",
    "backend tokenizer": NO_TOKENIZER,
    "JSONDecodeError": "one of its JSON files is torn; copy or download it again",
}
"""What libraries raise, as far as it is known by a part of its text, in our words."""
_SIZES = ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "vocab_size")


class WeightsError(ValueError):
    """Weights that must not be computed with."""


@contextmanager
def refusals(what: str, kind: type[WorkbenchError]) -> Iterator[None]:
    """Turn whatever a model's damaged files lead to in four libraries into one sentence about ``what``."""
    try:
        yield
    except WorkbenchError:
        raise
    except WeightsError as error:
        raise kind(f"{what} cannot be used: {error}") from error
    except Exception as error:
        if is_out_of_memory(error):
            raise kind(
                f"{what} does not fit into memory; take a smaller model, or hold its weights in bfloat16 (dtype) or in "
                "8 or 4 bits (quantisation)"
            ) from error
        raised = f"{type(error).__name__}: {' '.join(str(error).split())}"
        said = next((words for sign, words in _IN_WORDS.items() if sign in raised), cut(raised, 500))
        raise kind(f"{what} cannot be loaded: {said}") from error


def check_sizes(where: str) -> None:
    """Refuse a configuration with a size of 0 or less, before a model is made of it."""
    described, _ = PretrainedConfig.get_config_dict(where)
    for name in _SIZES:
        if isinstance(value := described.get(name), int) and value < 1:
            raise WeightsError(
                f"{name} is {value} in its config.json and must be at least 1; take the config.json that was saved "
                "with the weights"
            )


def check_loaded(model: torch.nn.Module, info: Mapping[str, Any]) -> None:
    """Refuse a model whose ``output_loading_info`` says that it is not the one that was saved.

    Tensors beside the model's own modules (a value head, a vision tower) are left unread and harm nobody. One inside
    them, a layer more or a bias, changes what the model computes.
    """
    if mismatched := sorted(info["mismatched_keys"]):
        name, stored, expected = mismatched[0]
        raise WeightsError(
            f"tensor {name} is {tuple(stored)} in the file and {tuple(expected)} by config.json, one of "
            f"{len(mismatched):,} of another shape; the two are not of the same model"
        )
    if missing := info["missing_keys"]:
        raise WeightsError(
            f"the weights hold no {first_few(missing)}, so it would compute with random numbers there; the file is "
            "incomplete or of another architecture than config.json says"
        )
    parts = [name.split(".") for name, _ in model.named_parameters()]
    known = {".".join(names[:i]) for names in parts for i in range(1, len(names))}
    unexpected = []
    for name in info["unexpected_keys"]:
        inside = name.split(".")[:-1]
        numbered = next((i for i, part in enumerate(inside) if part.isdigit()), len(inside))
        if ".".join(inside[:numbered]) in known and not _MASKS.search(name):  # of a layer's tensor, the list of layers
            unexpected.append(name)
    if unexpected:
        raise WeightsError(
            f"the weights hold {first_few(unexpected)}, which a model by its config.json has no place for; the two are "
            "not of the same model"
        )


def check_finite(model: torch.nn.Module) -> None:
    """Refuse a model with a parameter that is NaN or infinite. One pass over the weights, without copies."""
    broken = []
    for name, parameter in model.named_parameters():
        if parameter.numel() and parameter.dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
            low, high = torch.aminmax(parameter.detach())
            if not bool(torch.isfinite(low) & torch.isfinite(high)):
                broken.append(name)
    if broken:
        tensor = model.get_parameter(broken[0])
        raise WeightsError(
            f"{int((~torch.isfinite(tensor)).sum()):,} of {tensor.numel():,} values of tensor {broken[0]} are NaN or "
            f"infinite, in {len(broken):,} tensors of the model; its training diverged or the file is damaged: take an "
            "earlier checkpoint"
        )


def first_few(names: Iterable[str], most: int = 3) -> str:
    """Return the first few names, sorted, and how many more there are."""
    names = sorted(names)
    return ", ".join(names[:most]) + (f", and {len(names) - most:,} more" if len(names) > most else "")


# --- memory -------------------------------------------------------------------------------------------------------


def check_memory(model: torch.nn.Module, dtype: torch.dtype | None, device: torch.device) -> None:
    """Refuse ``model``, which may lie on the meta device, if its parameters as ``dtype`` exceed the free memory."""
    count = sum(parameter.numel() for parameter in model.parameters())
    bytes_each = dtype.itemsize if dtype is not None else next(model.parameters()).element_size()
    need, free = count * bytes_each, free_memory(device)
    if need > free:
        half = f", dtype bfloat16 ({_size(2 * count)})" if bytes_each > 2 else ""
        raise WeightsError(
            f"its {count:,} parameters take {_size(need)} and {_size(free)} of memory are free on "
            f"{device}; take a smaller model{half}, or a machine with more memory"
        )


def free_memory(device: torch.device) -> int:
    """Bytes that a model may take on ``device`` now, within this process's control group."""
    if device.type == "cuda":
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)  # of a model before, say
        return int(torch.cuda.mem_get_info(device)[0]) + kept
    free = int(psutil.virtual_memory().available)
    group = Path("/sys/fs/cgroup")
    try:
        limit, used = ((group / name).read_text().strip() for name in ("memory.max", "memory.current"))
        cached = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())["inactive_file"]
        return free if limit == "max" else min(free, max(0, int(limit) - int(used) + int(cached)))
    except (OSError, ValueError, KeyError):  # no control groups here, or of another version
        return free


def is_out_of_memory(error: BaseException | None) -> bool:
    """Return whether an error, or its cause, is that memory has run out, on a GPU or beside it."""
    while error is not None:
        refused = isinstance(error, RuntimeError) and any(sign in str(error) for sign in _NO_MEMORY)
        if refused or isinstance(error, (torch.OutOfMemoryError, MemoryError)):
            return True
        error = error.__cause__
    return False


def give_memory_back(error: BaseException) -> None:
    """Free what the frames of a failed call still hold, and give the GPU's unused memory to other processes."""
    cause: BaseException | None = error
    while cause is not None:
        traceback.clear_frames(cause.__traceback__)
        cause = cause.__cause__
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def _size(count: int) -> str:
    return f"{count / 1e9:,.1f} GB" if count >= 1e9 else f"{count / 1e6:,.1f} MB"


# --- read, and held on a device -----------------------------------------------------------------------------------


def pick_device(device: str = "auto", error: type[WorkbenchError] = PolicyError) -> torch.device:
    """Return the GPU where there is one for ``auto``. Raises ``error`` for a GPU that is not there."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise error(f"device {device!r} was asked for and torch sees no GPU here; use 'auto' or 'cpu'")
    return torch.device(device)


def loading_options(
    device: torch.device,
    dtype: str,
    attention: str = "auto",
    quantisation: str = "none",
    device_map: str = "none",
    whole: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Return how ``from_pretrained`` is to hold weights; a ``device_map``, and few bits, place them on devices, too.

    ``dtype`` ``auto`` is float32 on a CPU, else as they are saved. ``whole`` are modules that are not held in few bits;
    None leaves that to transformers. NF4 with quantised constants for 4 bits (QLoRA, arXiv 2305.14314), LLM.int8 for 8
    (arXiv 2208.07339).
    """
    named = "float32" if dtype == "auto" and device.type == "cpu" else dtype
    held: dict[str, Any] = {"dtype": named if named == "auto" else getattr(torch, named)}
    if attention != "auto":
        held["attn_implementation"] = attention
    if device_map != "none":
        held["device_map"] = device_map
    if quantisation == "none":
        return held
    from transformers import BitsAndBytesConfig

    skipped = None if whole is None else list(whole)
    if quantisation == "8bit":
        # It says at every product that it casts to float16.
        getLogger("bitsandbytes.autograd._functions").setLevel(ERROR)
        bits = BitsAndBytesConfig(load_in_8bit=True, llm_int8_skip_modules=skipped)
    else:
        half = torch.bfloat16 if device.type == "cuda" and torch.cuda.is_bf16_supported() else torch.float32
        bits = BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=half if held["dtype"] == "auto" else held["dtype"],
            llm_int8_skip_modules=skipped,
        )
    return {"device_map": {"": device}, **held, "quantization_config": bits}


def read_model(kind: Any, where: str, trust_remote_code: bool | None = None, **held: Any) -> tuple[Any, dict[str, Any]]:
    """Return a model of transformers' class ``kind`` read from safetensors alone, and what is said of its tensors."""
    if trust_remote_code is not None:
        held["trust_remote_code"] = trust_remote_code
    model, info = kind.from_pretrained(
        where,
        use_safetensors=True,
        output_loading_info=True,
        ignore_mismatched_sizes=True,  # so that ``check_loaded`` can name them
        **held,
    )
    return model, info


def read_tokenizer(where: str, trust_remote_code: bool, **options: Any) -> Any:
    """Return a tokenizer, with the end-of-sequence token for padding where it has none of its own."""
    tokenizer = AutoTokenizer.from_pretrained(where, trust_remote_code=trust_remote_code, **options)
    if tokenizer.pad_token_id is None and tokenizer.eos_token is not None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def context_length(model: Any) -> int | None:
    """Return the most tokens a model reads; None where its configuration has no such number."""
    language = model.config.get_text_config()  # which a composite one (text and images) has inside
    length = getattr(language, "max_position_embeddings", None)
    return int(length) if length is not None else None


# --- adapters -----------------------------------------------------------------------------------------------------


def with_adapter(model: Any, where: str, *, trainable: bool = False) -> Any:
    """Return the language model with the adapter in ``where``, a folder or Hub id, on it.

    Raises WeightsError for a folder's adapter that was trained on another base.
    """
    adapted, unexpected = _adapted(model, where, is_trainable=trainable)
    if unexpected:
        raise WeightsError(f"{ADAPTER} holds {first_few(unexpected)}, for which this base has no place")
    return adapted


def with_merged_adapter(model: Any, where: str, weight: float = 1.0) -> Any:
    """Return a model with a language model's body and perhaps another head, an adapter added to its weights.

    ``weight`` is how much of it, 1 unless it is a LoRA adapter. What the adapter has for a head that is not here is
    left out. Raises WeightsError as ``with_adapter`` does.
    """
    from peft import PeftConfig

    config = PeftConfig.from_pretrained(where)
    config.task_type = None  # what PEFT would look for the methods of a language model by
    adapted, unexpected = _adapted(model, where, config=config)
    body = f"base_model.model.{model.base_model_prefix}."
    if inside := [name for name in unexpected if name.startswith(body)]:
        raise WeightsError(f"{ADAPTER} holds {first_few(inside)}, for which this base has no place")
    for module in adapted.modules():
        if hasattr(module, "scale_layer"):
            module.scale_layer(weight)
    merged = adapted.merge_and_unload().requires_grad_(True)  # PEFT had frozen them
    merged.name_or_path = None  # an adapter trained on these weights must not name the base without this one
    return merged


def _adapted(model: Any, where: str, **options: Any) -> tuple[Any, list[str]]:
    """Return the model with an adapter, and what a folder's adapter holds that has no place there."""
    from peft import PeftModel, get_peft_model_state_dict
    from safetensors import safe_open

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Found missing adapter keys")  # refused below
        adapted = PeftModel.from_pretrained(model, where, **options)
    if not (file := Path(where) / ADAPTER).is_file():
        return adapted, []
    with safe_open(file, framework="pt") as tensors:
        stored = set(tensors.keys())
    expected = set(get_peft_model_state_dict(adapted))
    if missing := expected - stored:
        raise WeightsError(f"{ADAPTER} holds no {first_few(missing)}; it was trained on another base than this one")
    return adapted, sorted(stored - expected)


# --- loading without progress bars and warnings that nobody can act on -----------------------------------------------

RENAMED = "`(is_)?gradient_checkpointing"
"""How the warning begins that transformers 5 gives TRL 1.16 and PEFT, for names that it is renaming."""


@contextmanager
def quiet_loading(where: str | Path) -> Iterator[None]:
    """No progress bar while a folder's weights are read, no warning that is meant for TRL and PEFT, and no table of
    tensors that are missing or left over: whoever loads compares them with what it needs.

    A download, which is what anything but a folder is, still says how far it is.
    """
    from transformers.utils import logging

    shown = Path(where).is_dir() and logging.is_progress_bar_enabled()
    if shown:
        logging.disable_progress_bar()
    logger = getLogger("transformers.modeling_utils")
    logger.addFilter(_is_no_load_report)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", RENAMED, FutureWarning)
            yield
    finally:
        logger.removeFilter(_is_no_load_report)
        if shown:
            logging.enable_progress_bar()


def _is_no_load_report(record: LogRecord) -> bool:
    return "LOAD REPORT" not in record.getMessage()
