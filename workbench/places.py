"""Names that point to a local file or folder, or to a repository of the Hugging Face Hub. Nothing is loaded here.

``models/llama`` may be either. What lies on this machine is taken first, and a name that can only be meant as a path
is never looked up on the Hub, where anybody may own it. Of a local folder, ``config.json`` says what kind of model it
holds; of a Hub id nothing is known here, and the loaders say what is wrong with one.
"""

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Literal

from workbench.errors import did_you_mean, quote

Repository = Literal["model", "dataset"]
RUN = "run:"
"""What the name of another run's checkpoint begins with: run:NAME, run:NAME@STEP."""
ADAPTER = "adapter_model.safetensors"
"""The file of an adapter's weights in its folder."""
SHIPPED_ONLY = "WORKBENCH_SHIPPED_TASKS"
"""Environment variable; where it is set, no file is read and nothing of the Hub, but for the shipped tasks."""
WORKSPACE = "WORKBENCH_WORKSPACE"
"""Environment variable that names the default workspace."""
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}(?:/[A-Za-z0-9][\w.-]{0,95})?", re.ASCII)
_SECONDS = 5.0  # that the Hub has to answer


def default_workspace() -> Path:
    """Return the folder named by the environment's WORKBENCH_WORKSPACE, else ``workspace`` in the current folder."""
    return Path(os.environ.get(WORKSPACE) or "workspace")


def local_path(name: str) -> Path | None:
    """The file or folder called ``name``, ``~`` expanded; None where there is none that can be looked at."""
    try:
        path = Path(name).expanduser()
        return path if name and path.exists() else None
    except (OSError, ValueError, RuntimeError):  # too long, a NUL, the home of a user that there is not
        return None


def is_of_run(name: str | None) -> bool:
    """Return whether a name stands for a checkpoint of a run."""
    return name is not None and name.startswith(RUN)


def absolute(name: str) -> str:
    """The absolute path of what lies on this machine under ``name``; any other name as it is."""
    path = local_path(name)
    return name if path is None else os.path.abspath(path)


def is_hub_id(name: str) -> bool:
    """Return whether ``name`` has a Hub id's form and no folder beside which it would lie is here."""
    return _HUB_ID.fullmatch(name) is not None and not ("/" in name and local_path(name.partition("/")[0]) is not None)


def no_folder(name: str) -> str:
    """The beginning of a message about a name that is neither a folder of this machine nor a Hub id."""
    path = Path(name)
    siblings: list[str] = []
    with suppress(OSError, ValueError, RuntimeError):
        siblings = [str(path.parent / entry) for entry in os.listdir(path.parent.expanduser())]
    beside = ""
    if _HUB_ID.fullmatch(name):
        beside = f" (it is not looked for on the Hub, as the folder {name.partition('/')[0]!r} is here)"
    return f"there is no folder {quote(name)}{beside}{did_you_mean(name, siblings)}"


def hub_problem(
    name: str, file: str = "config.json", kind: Repository = "model", *, certain: bool = False
) -> str | None:
    """Say why a repository of the Hub cannot be loaded, as far as one request tells; None if nothing speaks against it.

    A model whose ``file`` is in the local cache is not asked for. Without an answer in time nothing is known, which is
    a problem where it has to be ``certain``.
    """
    from huggingface_hub import HfApi, constants, try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError, RepositoryNotFoundError

    what = f"the Hub's {kind} {quote(name)}"
    try:
        asks = kind == "model" or certain  # ``datasets`` has a cache of its own
        known = file if kind == "model" else "README.md"
        if asks and isinstance(try_to_load_from_cache(name, known, repo_type=kind), str):
            return None
        if constants.HF_HUB_OFFLINE:
            offline = f"{what} is not in the cache and HF_HUB_OFFLINE is set; unset that, or give a local one"
            return offline if asks else None
        HfApi().repo_info(name, repo_type=kind, timeout=_SECONDS)
    except RepositoryNotFoundError:
        return f"{what} does not exist, or is not open to you; check the name, or log in with hf auth login"
    except HFValidationError as error:
        return f"{quote(name)} names nothing on the Hub ({error})"
    except Exception:  # no network, or a Hub in trouble: the run will see
        return (
            f"{what} is not in the cache and the Hub does not answer; connect, or give a local one" if certain else None
        )
    return None


# --- what a local folder's config.json says of its model, before anything is loaded -----------------------------------

STEP_FORMAT, STEP_SEPARATOR, STEP_BETA = "step_format", "step_separator", "step_beta"
"""Settings of a process reward model that was trained here, which say what it reads; public models have neither."""
END_TOKEN = "end_token"
"""Setting of a classifier that was trained here: whether plain text ends with the end-of-sequence token."""
