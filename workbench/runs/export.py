"""The model of a run taken elsewhere: an adapter merged into its base or as it is, with a model card; to the Hub.

A folder is complete or not there. Nothing is pushed but by ``push``.
"""

import re
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from workbench.assets import EMBEDDED
from workbench.config.reading import write_yaml
from workbench.errors import RunError, cut, quote, redact
from workbench.models.find import base_of, is_adapter
from workbench.places import is_hub_id, local_path
from workbench.rundir import find_checkpoint
from workbench.rundir.checkpoints import MANIFEST
from workbench.runs.run import Run, open_run
from workbench.training.methods import METHODS, RunConfig

Form = Literal["merged", "adapter"]
_LEFT_OUT = re.compile(r"(optimizer|scheduler|rng_state.*|critic|reference|trainer_state|training_args)\.[a-z]+")
"""Files of a checkpoint that only a run resumes from."""
_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}", re.ASCII)


def export_model(reference: str, form: Form | None, folder: Path, workspace: Path | str | None = None) -> Path:
    """Write the model of a run's checkpoint, ``NAME`` or ``NAME@STEP``, to ``folder``, with a model card.

    ``form``: merged puts an adapter into its base's weights, adapter leaves it one, None takes what was trained as it
    is. Raises RunError or PolicyError for a checkpoint that is not there or not of this form, and for a folder that
    holds something.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise RunError(f"{quote(str(folder))} holds something already; name a folder that does not exist")
    run = open_run(reference.partition("@")[0], workspace)
    checkpoint = find_checkpoint(f"run:{reference}", workspace)
    adapter = is_adapter(checkpoint)
    if form == "adapter" and not adapter:
        raise RunError(
            f"run {run.name!r} trained whole weights and has no adapter; export them with --merged {quote(str(folder))}"
        )
    config = run.config()
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        if form == "merged" and adapter:
            from workbench.policies.load import save_merged

            dtype = "float32" if config.policy.dtype == "auto" else config.policy.dtype
            save_merged(str(checkpoint), draft, dtype=dtype, trust_remote_code=config.policy.trust_remote_code)
        else:
            for path in sorted(checkpoint.iterdir()):
                if path.is_file() and path.name != MANIFEST and not _LEFT_OUT.fullmatch(path.name):
                    shutil.copy2(path, draft / path.name)
        (draft / "README.md").write_text(card(run, config, checkpoint, draft), encoding="utf-8")
        if folder.exists():
            folder.rmdir()
        draft.chmod(0o755)
        draft.rename(folder)
    except OSError as error:
        raise RunError(f"{quote(str(folder))} cannot be written: {cut(str(error), 300)}") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return folder


# -- the model card ---------------------------------------------------------------------------------------------------


def card(run: Run, config: RunConfig, checkpoint: Path, folder: Path) -> str:
    """Return a model card: what was trained, how, and what it measured last. Paths of this machine are not in it."""
    adapter = is_adapter(folder)
    base = base_of(checkpoint) if is_adapter(checkpoint) else config.policy.path
    about: dict[str, Any] = {"library_name": "peft" if adapter else "transformers"}
    if _is_public(base):
        about["base_model"] = base
    about["tags"] = ["trl", config.method.name]
    facts = [
        ("base", _public(base)),
        ("task", _public(config.task.name)),
        *((name, value) for name, value in config.method.facts() if name != "rollouts"),
        ("learning rate", f"{config.optimiser.learning_rate:g}"),
        ("seed", str(config.seed)),
    ]
    if (lora := config.policy.lora) is not None:
        facts.insert(1, ("adapter", f"LoRA, r {lora.r}, α {lora.alpha}, on {lora.targets}"))
    if merge := config.policy.merge:
        named = {origin.path: origin.reference for origin in config.origins}
        both = (f"{weight:g} × {_public(named.get(name, name))}" for name, weight in merge.items())
        facts.insert(1, ("merged adapters", ", ".join(both)))
    how = "as an adapter of its base" if adapter else "as a whole model"
    last = {name: (row[name], row["step"]) for row in run.metrics_rows()[0] for name in row if row[name] is not None}
    columns = METHODS[config.method.name].metrics
    measured = [(name, f"{last[name][0]:.4g} at step {last[name][1]}") for name in columns if name in last]
    parts = [
        f"---\n{write_yaml(about)}---",
        f"# {run.name}",
        f"Trained by `{config.method.name}` with the workbench for process-supervised GRPO, saved {how}.",
        _table("setting", "value", facts),
        "## Measured",
        _table("metric", "last value", measured),
    ]
    return redact("\n\n".join(parts)) + "\n"


def _table(first: str, second: str, rows: Sequence[tuple[str, str]]) -> str:
    lines = [f"| {first} | {second} |", "|---|---|"]
    for row in rows:
        cells = (cut(" ".join(text.split()).replace("|", "\\|").replace("<", "&lt;"), 300) for text in row)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _is_public(name: str) -> bool:
    return name not in EMBEDDED and local_path(name) is None and is_hub_id(name)


def _public(name: str) -> str:
    """Return a name as others may see it: of what lies on this machine, the last part alone."""
    return Path(name).name if local_path(name) is not None else name


# -- the Hub ----------------------------------------------------------------------------------------------------------


def check_push(repository: str, reference: str, form: Form | None, workspace: Path | str | None = None) -> None:
    """Raise RunError for what cannot be pushed, or would be of no use to anybody else."""
    if not _REPOSITORY.fullmatch(repository):
        raise RunError(f"--push: {quote(repository)} is no repository's name; write OWNER/NAME")
    checkpoint = find_checkpoint(f"run:{reference}", workspace)
    if form != "merged" and is_adapter(checkpoint) and not _is_public(base := base_of(checkpoint)):
        raise RunError(
            f"--push: the adapter's base is {quote(_public(base))} on this machine, which nobody else has; add "
            "--merged FOLDER, which puts the adapter into it"
        )


def push(folder: Path, repository: str, *, private: bool) -> str:
    """Upload a folder as a model repository, made where there is none, and return its address. Raises RunError."""
    from huggingface_hub import HfApi

    try:
        hub = HfApi()
        hub.create_repo(repository, private=private, exist_ok=True, repo_type="model")
        hub.upload_folder(repo_id=repository, folder_path=str(folder), repo_type="model")
    except Exception as error:  # no token, no right, no network
        reason = redact((str(error).strip().splitlines() or [type(error).__name__])[0])
        raise RunError(
            f"--push: {repository} could not be written ({cut(reason, 300)}); log in with hf auth login, or see "
            "whether the name is yours"
        ) from error
    return f"https://huggingface.co/{repository}"
