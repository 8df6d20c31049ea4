"""Where a policy and its adapter lie, and whether what lies there can be a policy at all. Loads no torch.

What the files hold is looked at when they are loaded (``policies.load``); what is checked here costs nothing, so that a
run that cannot work is refused before it is queued.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from huggingface_hub import try_to_load_from_cache

from workbench.architecture import missing_package
from workbench.config import PolicySection
from workbench.errors import ConfigError, PolicyError, WorkbenchError, did_you_mean, shown
from workbench.packages import lacking
from workbench.places import ADAPTER, checkpoint_or, hub_problem, is_hub_id, local_path, no_folder
from workbench.policies.adapters import check_fits, check_plain
from workbench.policies.consent import check_weights
from workbench.policies.embedded import EMBEDDED


def policy_path(name: str) -> str:
    """Where the weights of ``name`` are: a folder for embedded and local ones, the Hub id itself otherwise.

    Raises PolicyError for a folder that is not there or holds no model, RunError for a run's checkpoint that is not.
    """
    name = checkpoint_or(name)
    if name in EMBEDDED:
        return str(EMBEDDED[name])
    folder = local_path(name)
    if folder is not None:
        if not any((folder / file).is_file() for file in ("config.json", "adapter_config.json")):
            raise PolicyError(f"folder {shown(name)} holds no config.json; point at a folder saved by save_pretrained")
        return str(folder)
    if near := _nearest(name):
        raise PolicyError(
            f"there is no policy {shown(name)}{near} A model of the Hub is named with its owner, as in "
            "'Qwen/Qwen2.5-0.5B-Instruct'"
        )
    if not is_hub_id(name):
        raise PolicyError(
            f"{no_folder(name)}; give the folder of a saved model, a Hub id like "
            f"'Qwen/Qwen2.5-0.5B-Instruct', or {' or '.join(repr(known) for known in EMBEDDED)}"
        )
    return name


def _nearest(name: str) -> str:
    """Which shipped policy, or folder of a model beside it, a name without an owner is probably meant for; "" for none.

    A model of that name that was loaded from the Hub before is what is meant.
    """
    if not is_hub_id(name) or "/" in name or isinstance(try_to_load_from_cache(name, "config.json"), str):
        return ""
    folders = [file.parent.name for file in Path().glob("*/*config.json")]
    return did_you_mean(name.lower(), EMBEDDED) or did_you_mean(name, folders)


def check_there(policy: str, *adapters: str) -> None:
    """Look for a policy, and adapters, before anybody waits for them: here, and by one request on the Hub.

    Raises PolicyError for what is not there, and where the Hub does not answer; RunError for a run's that is not there.
    """
    asked = [("policy", policy, "config.json"), *(("adapter", name, "adapter_config.json") for name in adapters)]
    for what, name, file in asked:
        if local_path(where := policy_path(name)) is None:
            _refuse_from_hub(what, where, file)


def adapter_path(name: str) -> str:
    """Where an adapter's weights are, as ``policy_path``. Raises PolicyError."""
    where = policy_path(name)
    if Path(where).is_dir():
        check_weights(name, Path(where))
        if not (Path(where) / ADAPTER).is_file():
            raise PolicyError(f"adapter folder {name!r} holds no {ADAPTER}; save it with safetensors")
    return where


def is_adapter(folder: Path) -> bool:
    """Whether a folder is an adapter's alone, without its base."""
    return (folder / "adapter_config.json").is_file() and not (folder / "config.json").is_file()


def base_of(folder: Path) -> str:
    """The policy that a folder's adapter was trained on, as the adapter names it."""
    try:
        base = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))["base_model_name_or_path"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise PolicyError(f"adapter folder {str(folder)!r}: its adapter_config.json names no base model") from error
    if not base:
        raise PolicyError(
            f"adapter folder {str(folder)!r} names no base model; give that as the policy, this as adapter"
        )
    return str(base)


def base_and_adapters(section: PolicySection) -> tuple[str, dict[str, float]]:
    """Where a policy's whole weights are, and the adapters on them with their weights; a folder that is an adapter
    names its base.

    Raises PolicyError.
    """
    where = policy_path(section.path)
    if is_adapter(Path(where)):
        return policy_path(base_of(Path(where))), {adapter_path(where): 1.0}
    merged = {adapter_path(name): weight for name, weight in section.merge.items()}
    return where, merged | ({} if section.adapter is None else {adapter_path(section.adapter): 1.0})


def check_policy(section: PolicySection, *, merges: bool = False) -> Path | None:
    """Look for a run's policy and adapter; the folder of the policy's files, None where they are on the Hub.

    ``merges``: an adapter is added to the weights before they are trained, so that another one may be trained on them.
    Raises PolicyError or ConfigError for what could not be loaded or trained.
    """
    check_packages(section.quantisation, section.attention)
    folder = _found(section.path)
    if folder is not None and is_adapter(folder):
        if section.lora is not None and not merges:
            raise ConfigError(
                f"policy.lora: the policy {section.path!r} is an adapter already, which is trained on; leave "
                "policy.lora out, or name the adapter's base as the policy and it in policy.merge"
            )
        refuse_more(section.path, section.adapter, section.merge)
        adapter_path(section.path)
        return check_policy(section.model_copy(update={"path": base_of(folder)}), merges=merges)
    if folder is not None:
        _check_files(section, folder)
    for field, name in (("policy.adapter", section.adapter), *(("policy.merge", name) for name in section.merge)):
        if name is None:
            continue
        if local_path(where := adapter_path(name)) is None:
            _refuse_from_hub(field, name, "adapter_config.json")
            continue
        if section.merge and not (merges and field == "policy.adapter"):
            check_plain(name, Path(where))
        if folder is not None:
            check_fits(name, Path(where), section.path, folder)
    return folder


def refuse_more(path: str, adapter: str | None, merge: Mapping[str, float]) -> None:
    """Raises PolicyError for adapters to put on ``path``, which is an adapter itself."""
    if adapter is not None or merge:
        more = ", ".join(repr(name) for name in (*merge, adapter) if name is not None)
        raise PolicyError(f"folder {path!r} is an adapter itself; name its base as the policy to put {more} on")


def _found(name: str) -> Path | None:
    where = policy_path(name)
    if local_path(where) is None:
        _refuse_from_hub("policy.path", where)
        return None
    return Path(where)


def _refuse_from_hub(field: str, name: str, file: str = "config.json") -> None:
    if problem := hub_problem(name, file, certain=True):
        raise PolicyError(f"{field}: {problem}")


def _check_files(section: PolicySection, folder: Path) -> None:
    try:
        config: Any = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise PolicyError(
            f"policy {section.path!r}: its config.json cannot be read ({error}); save the model again"
        ) from error
    if not isinstance(config, dict):
        raise PolicyError(f"policy {section.path!r}: its config.json holds no settings by name; save the model again")
    check_weights(section.path, folder)
    if problem := missing_package(section.path):
        raise PolicyError(problem)
    if not any(folder.glob("*.safetensors")):
        raise PolicyError(f"folder {section.path!r} holds no weights; save the model there with save_pretrained")


def check_packages(quantisation: str, attention: str) -> None:
    """Raises PolicyError where weights are to be held, or attention computed, by a package that is not installed."""
    for field, value in (("policy.quantisation", quantisation), ("policy.attention", attention)):
        if problem := lacking(field, value):
            raise PolicyError(problem)


def chat_template(folder: Path) -> str | None:
    """The chat template in a folder's files; None where there is none, or it stands elsewhere."""
    try:
        if (file := folder / "chat_template.jinja").is_file():
            return file.read_text(encoding="utf-8")
        config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    template = config.get("chat_template") if isinstance(config, dict) else None
    return template if isinstance(template, str) else None


def known_chat_template(name: str) -> str | None:
    """The chat template of a policy's files on this machine; None where it has none or they are not here."""
    try:
        where = policy_path(name)
    except WorkbenchError:
        return None  # whoever loads it says what is wrong
    folder = Path(where)
    if is_adapter(folder) and not (folder / "tokenizer_config.json").is_file():
        return known_chat_template(base_of(folder))
    if local_path(where) is None:
        cached = try_to_load_from_cache(where, "tokenizer_config.json")
        if not isinstance(cached, str):
            return None
        folder = Path(cached).parent
    return chat_template(folder)


def has_chat_template(folder: Path) -> bool:
    """Whether the tokenizer in a folder can write a conversation as a prompt, as far as its files tell."""
    if any(folder.glob("chat_template*")) or (folder / "additional_chat_templates").is_dir():
        return True
    try:
        config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return True  # a tokenizer of another form: it is tried when it is loaded
    return not isinstance(config, dict) or bool(config.get("chat_template"))
