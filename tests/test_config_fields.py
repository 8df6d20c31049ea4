"""Every field of a configuration, set to another value: YAML and flags hold it, and the trainer is told of it."""

import json
from collections.abc import Iterator
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest

import workbench
from tests.configs import merged
from tests.drafts import draft_of
from workbench.cli import runs
from workbench.cli.arguments import read_arguments
from workbench.config import SharedConfig, leaves
from workbench.config.section import Leaf
from workbench.data.rows import value_at
from workbench.steps import StepPattern
from workbench.training.building import trainer_arguments
from workbench.training.config import ProcessGRPOConfig
from workbench.training.methods import METHODS, RunConfig
from workbench.ui.handlers.fields import with_path
from workbench.ui.handlers.sharing import inspect_code

TEXTS: dict[str, Any] = {
    "name": "other", "policy.merge": {"run:taught": 0.5}, "policy.lora.targets": "q_proj",
    "task.name": "chain-arithmetic-tags", "task.columns": {"prompt": "q"}, "task.filter": "level > 3",
    "prompt.template_kwargs": {"n": 3}, "environment.name": "calculator", "run.project": "other",
    "method.credit.scheme": "step", "method.credit.options": {}, "method.trl": {"use_liger_kernel": True},
    "method.pattern.regex": "x", "method.sampling.stop": ["x"], "run.report_to": ["wandb"],
    "policy.lora.modules_to_save": ["lm_head"], "method.epsilon_high": 5.0, "method.label_smoothing": 0.25,
}  # fmt: skip
"""Other values of fields that not any text fits."""
BESIDE: dict[str, dict[str, Any]] = {
    "task.data_columns": {"task": {"data": "rows.jsonl"}, "method": {"name": "dpo"}},
    "task.data": {"method": {"name": "dpo"}},
    "environment.code": {"environment": {"name": "Mine"}},
    "method.sync_ref_model": {"method": {"beta": 0.1}},
    "method.label_smoothing": {"method": {"loss_type": "robust"}},
    "method.epsilon_high": {"method": {"loss_type": "cispo"}},
    "method.target_kl": {"method": {"num_iterations": 2}},
}
"""What must stand beside a field for it to be taken."""


def other(leaf: Leaf) -> Any:
    """Return a value that a field does not have by default."""
    if get_origin(leaf.kind) is Literal:
        return next(choice for choice in get_args(leaf.kind) if choice != leaf.default)
    if get_origin(leaf.kind) is dict:
        return {"a": "b"}
    if leaf.kind is bool:
        return not leaf.default
    if leaf.kind is int:
        return (leaf.default or 1) * 2
    if leaf.kind is float:
        return leaf.default / 2 if leaf.default else 0.5
    return ["x"] if get_origin(leaf.kind) is list else "x"


def changed() -> Iterator[tuple[str, str, Any]]:
    """Yield the method, the path and another value of every field that one value sets."""
    for leaf in leaves(SharedConfig):
        if not leaf.name.startswith("method."):
            yield "grpo", leaf.name, TEXTS.get(leaf.name, other(leaf))
    for name, method in METHODS.items():
        for leaf in leaves(method.section):
            if leaf.name not in ("name", "credit.options"):
                path = f"method.{leaf.name}"
                yield name, path, TEXTS.get(path, other(leaf))


FIELDS = list(changed())


@pytest.mark.parametrize("method", METHODS)
def test_yaml_and_flags_hold_every_field(method: str) -> None:
    """One command has all of them; each is then held against its own configuration."""
    fields = [(path, value) for name, path, value in FIELDS if name == method]
    flags = [flag_of(path, value) for path, value in [("method.name", method), *fields]]
    given = read_arguments("train", runs.train, flags)["settings"].given
    plain = RunConfig.parse({"method": {"name": method}}).to_yaml()
    for path, value in fields:
        beside = merged({"method": {"name": method}}, BESIDE.get(path, {}))
        config = RunConfig.parse(merged(beside, with_path({}, path, value)))
        assert value_at(config.model_dump(mode="json"), path) == value
        text = config.to_yaml()
        assert text != plain, path
        assert RunConfig.from_yaml(text) == config, path
        assert RunConfig.parse(merged(beside, with_path({}, path, value_at(given, path)))) == config, path


def flag_of(path: str, value: Any) -> str:
    if isinstance(value, bool):
        return f"--{path}" if value else f"--no-{path}"
    return f"--{path}={value if isinstance(value, str) else json.dumps(value)}"


TOLD = ("optimiser.", "method.sampling.", "method.pattern.")


def test_the_trainer_is_told_of_the_optimiser_the_sampling_and_the_pattern(tmp_path: Path) -> None:
    run = {"run": {"device": "cpu"}}
    plain = trainer_arguments(RunConfig.parse(run), tmp_path)
    told = [(path, value) for method, path, value in FIELDS if method == "grpo" and path.startswith(TOLD)]
    for path, value in told:
        assert trainer_arguments(RunConfig.parse({**run, **with_path({}, path, value)}), tmp_path) != plain, path


@pytest.mark.parametrize("part", fields(StepPattern), ids=lambda part: part.name)
def test_a_field_of_the_step_pattern_is_one_of_the_configuration_the_trainer_and_notebook_code(
    part: Any, tmp_path: Path
) -> None:
    changed = {"regex": "x", "kind": "ends"}.get(part.name, not part.default)
    pattern = replace(StepPattern(), **{part.name: changed})
    config = RunConfig.parse({"method": {"pattern": asdict(pattern)}, "run": {"device": "cpu"}})
    assert config.grpo.pattern == pattern
    given = ProcessGRPOConfig(**trainer_arguments(config, tmp_path))
    assert given.pattern == pattern
    assert json.loads(given.to_json_string())["step_pattern"] == asdict(pattern)
    # So that another one added before it changes no call.
    assert part.kw_only is (part.name not in ("regex", "kind"))
    draft = draft_of()
    code = inspect_code(draft.but(tree=with_path(draft.tree, "method.pattern", asdict(pattern))), tmp_path)
    found: dict[str, Any] = {"wb": workbench}
    exec(next(line for line in code.splitlines() if line.startswith("pattern = ")), found)
    assert found["pattern"] == pattern
    shown = draft.with_value(f"method.pattern.{part.name}", changed)
    assert shown.pattern() == replace(draft.pattern(), **{part.name: changed})
