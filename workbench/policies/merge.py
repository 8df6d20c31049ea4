"""An adapter put into its base's weights: the model that they are together, as one folder that any loader reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from workbench.errors import PolicyError
from workbench.policies.load import load_policy


def save_merged(adapter: str, folder: Path, *, dtype: str = "float32", trust_remote_code: bool = False) -> None:
    """Write base, adapter and tokenizer as one model to ``folder``.

    The base is loaded in full, whatever bits the adapter was trained on. Raises PolicyError where either cannot be
    loaded, or where there is no adapter.
    """
    policy = load_policy(adapter, device="cpu", dtype=dtype, trust_remote_code=trust_remote_code)
    model: Any = policy.model
    if not hasattr(model, "merge_and_unload"):
        raise PolicyError(f"{adapter!r} holds no adapter to merge; it is a whole model already")
    model.merge_and_unload(safe_merge=True).save_pretrained(folder)
    policy.tokenizer.save_pretrained(folder)
