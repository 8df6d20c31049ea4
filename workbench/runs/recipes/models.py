"""Tiny models for reduced recipes, made of the embedded policy's files. No torch is loaded.

=============== =====================================================================================================
``causal``      the embedded policy with room for longer prompts
``chat``        the same with a chat template, which system messages need
``classifier``  its layers below a random head of two labels, NEGATIVE and POSITIVE
=============== =====================================================================================================
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from workbench.errors import ConfigError, did_you_mean
from workbench.policies.embedded import EMBEDDED

CONTEXT = 2048
_TEMPLATE = (
    "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)


def made_model(name: str, workspace: Path) -> Path:
    """The folder of a tiny model, made in the workspace where it is not there yet. Raises ConfigError."""
    if name not in MODELS:
        raise ConfigError(f"{{models}}/{name}: no such model is made{did_you_mean(name, MODELS)}; there are {_NAMES}")
    folder = workspace.resolve() / "recipe-models" / name
    if (folder / "config.json").is_file():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(dir=folder.parent))
    for file in EMBEDDED["tiny"].iterdir():
        if file.suffix in (".json", ".safetensors"):
            shutil.copy(file, draft)
    _change(draft / "config.json", max_position_embeddings=CONTEXT)
    MODELS[name](draft)
    draft.chmod(0o755)
    try:
        os.rename(draft, folder)
    except OSError:  # another command has made it meanwhile
        shutil.rmtree(draft)
    return folder


def _causal(folder: Path) -> None:
    """The embedded policy as it is."""


def _chat(folder: Path) -> None:
    (folder / "chat_template.jinja").write_text(_TEMPLATE, encoding="utf-8")


def _classifier(folder: Path) -> None:
    import numpy as np
    from safetensors.numpy import load_file, save_file

    weights = load_file(folder / "model.safetensors")
    weights.pop("lm_head.weight", None)
    width = weights["model.norm.weight"].shape[0]
    head = np.random.default_rng(0).normal(0, width**-0.5, (2, width))
    weights["score.weight"] = head.astype(np.float32)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    labels = ("NEGATIVE", "POSITIVE")
    _change(
        folder / "config.json",
        architectures=["LlamaForSequenceClassification"],
        id2label={str(number): label for number, label in enumerate(labels)},
        label2id={label: number for number, label in enumerate(labels)},
    )


def _change(file: Path, **values: Any) -> None:
    data = json.loads(file.read_text(encoding="utf-8")) | values
    file.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")


MODELS: dict[str, Callable[[Path], None]] = {"causal": _causal, "chat": _chat, "classifier": _classifier}
"""What makes each of them of a copy of the embedded policy."""
_NAMES = ", ".join(MODELS)
