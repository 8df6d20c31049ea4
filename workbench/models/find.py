"""Paths of a policy and its adapters, and of a reward model, before anything is loaded. Loads no torch.

Asked before a run is queued and before the libraries are imported: a misspelt name is answered at once, and the Hub
with one request. What the files hold is seen when they are loaded (``policies.load``).

A model on a server is named by where it is: ``tinker:MODEL`` is hosted Tinker's, ``tinker:http://HOST:PORT#MODEL`` that
of a server of one's own (SkyRL's), ``http://HOST:PORT/v1#MODEL`` that of an OpenAI-compatible endpoint (vLLM's). Its
tokenizer is that of MODEL, a Hub id or a folder; of any other name for it, ``MODEL@TOKENIZER``.
"""

import hashlib
import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from workbench.assets import EMBEDDED
from workbench.config import PolicySection
from workbench.errors import PolicyError, RewardError, WorkbenchError, did_you_mean, quote
from workbench.places import STEP_FORMAT, default_workspace, hub_problem, is_hub_id, local_path, no_folder
from workbench.rundir import checkpoint_or

GGUF = ".gguf"
_SCORERS = ("SequenceClassification", "TokenClassification", "RewardModel")
TINKER = "tinker:"


@dataclass(frozen=True)
class Served:
    """A model on a server: of the Tinker protocol, at ``url`` or hosted, or of an OpenAI-compatible endpoint."""

    is_tinker: bool
    url: str | None
    model: str
    tokenizer: str


def find_server(name: str) -> Served | None:
    """Return the server and the model that a policy's name stands for; None for one whose weights are files.

    Raises PolicyError for the address of a server without a model.
    """
    is_tinker, rest = name.startswith(TINKER), name.removeprefix(TINKER)
    if not is_tinker and not rest.startswith(("http://", "https://")):
        return None
    url, _, model = rest.partition("#") if "://" in rest else ("", "", rest)
    model, _, tokenizer = model.partition("@")
    if not model:
        raise PolicyError(f"policy {quote(name)} names no model of its server; put it behind a #: {name}#MODEL")
    return Served(is_tinker, url.rstrip("/") or None, model, tokenizer or model)


def policy_path(name: str) -> str:
    """Return where the weights of ``name`` are: a folder for embedded and local ones, else the Hub id.

    The folder of a GGUF file is made when it is loaded. Of a model on a server, it is where its tokenizer is.

    Raises PolicyError for a folder that is not there or holds no model, RunError for a run's checkpoint that is not.
    """
    name = checkpoint_or(name)
    if (there := find_server(name)) is not None:
        try:
            return policy_path(there.tokenizer)
        except PolicyError as error:
            raise PolicyError(f"{error}; or name the tokenizer of {quote(name)} behind it: …@TOKENIZER") from error
    if name in EMBEDDED:
        return str(EMBEDDED[name])
    folder = local_path(name)
    if folder is not None and folder.suffix == GGUF:  # unpacked into the default workspace when it is loaded first
        stat = folder.stat()
        key = hashlib.sha256(f"{folder.resolve()} {stat.st_size} {stat.st_mtime_ns}".encode()).hexdigest()
        return str(default_workspace().resolve() / "models" / f"{folder.stem}-{key[:8]}")
    if folder is not None:
        return _saved(folder, name, PolicyError, "config.json", "adapter_config.json")
    from huggingface_hub import try_to_load_from_cache

    near, is_bare = "", is_hub_id(name) and "/" not in name  # such a name may be a model's that was loaded before
    if is_bare and not isinstance(try_to_load_from_cache(name, "config.json"), str):
        folders = [file.parent.name for file in Path().glob("*/*config.json")]
        near = did_you_mean(name.lower(), EMBEDDED) or did_you_mean(name, folders)
    if near:
        raise PolicyError(
            f"there is no policy {quote(name)}{near} A model of the Hub is named with its owner, as in "
            "'Qwen/Qwen2.5-0.5B-Instruct'"
        )
    if not is_hub_id(name):
        raise PolicyError(
            f"{no_folder(name)}; give the folder of a saved model, a Hub id like "
            f"'Qwen/Qwen2.5-0.5B-Instruct', or {' or '.join(repr(known) for known in EMBEDDED)}"
        )
    return name


def model_path(name: str) -> str:
    """Return a reward model's folder, or its Hub id as it is. Raises RewardError for a folder that cannot be one."""
    name = checkpoint_or(name)
    if (folder := local_path(name)) is not None:
        return _saved(folder, name, RewardError, "config.json")
    if not is_hub_id(name):
        raise RewardError(f"reward model: {no_folder(name)}; give a saved model's folder, or a Hub id")
    return name


def _saved(folder: Path, name: str, kind: type[WorkbenchError], *files: str) -> str:
    if not any((folder / file).is_file() for file in files):
        raise kind(f"folder {quote(name)} holds no config.json; point at a folder saved by save_pretrained")
    return str(folder)


def check_there(policy: str, *adapters: str) -> None:
    """Look for a policy, and adapters, before anybody waits for them: here, and by one request on the Hub.

    Raises PolicyError for what is not there, and where the Hub does not answer; RunError for a run's that is not there.
    """
    asked = [("policy", policy, "config.json"), *(("adapter", name, "adapter_config.json") for name in adapters)]
    for what, name, file in asked:
        where = policy_path(name)
        is_here = local_path(name) is not None or local_path(where) is not None
        if not is_here and (problem := hub_problem(where, file, certain=True)):
            raise PolicyError(f"{what}: {problem}")


def check_section(section: PolicySection) -> None:
    """``check_there`` for a run's policy, the base of an adapter's folder, and its adapters.

    Raises PolicyError for a model on a server, too.
    """
    if (there := find_server(section.path)) is not None:
        raise PolicyError(
            f"policy.path: {quote(section.path)} samples on its server and cannot be trained through it; name "
            f"{quote(there.tokenizer)} to train it here, or with engine.kind tinker on a server"
        )
    adapters = [*section.merge, *([] if section.adapter is None else [section.adapter])]
    check_there(section.path, *adapters)
    folder = Path(policy_path(section.path))
    if is_adapter(folder):
        refuse_more(section.path, adapters)
        check_there(base_of(folder))


def is_adapter(folder: Path) -> bool:
    """Return whether a folder holds an adapter alone, without its base."""
    return (folder / "adapter_config.json").is_file() and not (folder / "config.json").is_file()


def base_of(folder: Path) -> str:
    """Return the policy that a folder's adapter was trained on, as the adapter names it. Raises PolicyError."""
    base = None
    with suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
        base = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))["base_model_name_or_path"]
    if not base:
        raise PolicyError(f"adapter folder {str(folder)!r}: its adapter_config.json names no base model")
    return str(base)


def refuse_more(path: str, adapters: list[str]) -> None:
    """Raise PolicyError for adapters to put on ``path``, which is an adapter itself."""
    if adapters:
        more = ", ".join(map(repr, adapters))
        raise PolicyError(f"folder {path!r} is an adapter itself; name its base as the policy to put {more} on")


def base_and_adapters(section: PolicySection) -> tuple[str, dict[str, float]]:
    """Return where a policy's whole weights are, and the adapters on them with their weights.

    A folder that is an adapter names its base.

    Raises PolicyError.
    """
    where = policy_path(section.path)
    if is_adapter(Path(where)):
        return policy_path(base_of(Path(where))), {where: 1.0}
    merged = {policy_path(name): weight for name, weight in section.merge.items()}
    return where, merged | ({} if section.adapter is None else {policy_path(section.adapter): 1.0})


def check_language_model(path: str, *, may_judge: bool = False) -> None:
    """Raises PolicyError for the folder of a classifier or reward model, which transformers would load and sample from.

    ``may_judge``: a language model that was trained to judge steps by the signs it writes after them is one, too.
    """
    folder = local_path(checkpoint_or(path))
    try:
        config = {} if folder is None else json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):  # an adapter's folder, or one that does not load
        return
    advice = "give a language model as the policy, and this one as a reward (model.path of a reward, --reward-model)"
    kind = str((config.get("architectures") or [""])[0])
    if kind.endswith(_SCORERS):
        raise PolicyError(f"policy {path!r} is a {kind}, which scores text and writes none; {advice}")
    if not may_judge and (form := config.get(STEP_FORMAT)) is not None:
        raise PolicyError(f"policy {path!r} is a process reward model of format {form!r}, which judges steps; {advice}")
