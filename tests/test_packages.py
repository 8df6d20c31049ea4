"""Packages that only some settings need: each is named, with how it is installed, before a run is queued."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import pytest

from workbench import packages
from workbench.config import ModelConfig
from workbench.config.policy import Attention, Optimiser
from workbench.config.run import RunConfig
from workbench.config.shared import RunSection
from workbench.errors import WorkbenchError
from workbench.packages import OPTIONAL
from workbench.policies.load import load_policy
from workbench.runs.check import TRACKERS, checked
from workbench.training.script import write_script

OF_TORCH = {"adamw_torch_fused", "adamw_torch", "adafactor", "sgd", "adagrad", "rmsprop"}
IN_A_RUN = [
    (field, value)
    for field, optional in OPTIONAL.items()
    if field.partition(".")[0] in ("policy", "optimiser", "method", "run", "model")
    for value in optional.values
]


@pytest.fixture(autouse=True)
def none_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "find_spec", lambda name: None)


def configured(field: str, value: str, folder: Path) -> RunConfig:
    """A configuration in which the field at a dotted path has a value; ``model.…`` is a reward model's."""
    *sections, last = field.split(".")
    name: Any = {"report_to": [value], "deepspeed": "zero2.json"}.get(last, value or True)
    data: dict[str, Any] = {last: name}
    if sections == ["model"]:
        model = {"path": str(folder), "format": "classifier", **data}
        rewards = [{"name": "judge", "kind": "outcome", "model": model}]
        return RunConfig.parse({"method": {"credit": {"scheme": "outcome"}, "rewards": rewards}})
    for section in reversed(sections):
        data = {section: data}
    return RunConfig.parse(data)


@pytest.mark.parametrize(("field", "value"), IN_A_RUN)
def test_each_is_named_before_a_run_is_queued(field: str, value: str, tmp_path: Path) -> None:
    (needed,) = OPTIONAL[field].values[value]
    (tmp_path / "config.json").write_text('{"architectures": ["LlamaForSequenceClassification"]}')
    with pytest.raises(WorkbenchError) as caught:
        checked(configured(field, value, tmp_path))
    said = next(line for line in str(caught.value).splitlines() if needed.name in line)
    assert f"needs the package {needed.name}, which is not installed; {needed.how or 'pip install'}" in said
    assert said.endswith(f", or {OPTIONAL[field].instead}")


@pytest.mark.parametrize(
    ("setting", "value"), [(name, value) for name in ("quant_method", "tokenizer") for value in OPTIONAL[name].values]
)
def test_saved_files_name_what_reads_them(setting: str, value: str, tmp_path: Path) -> None:
    config: dict[str, Any] = {"architectures": ["LlamaForCausalLM"]}
    if setting == "quant_method":
        config["quantization_config"] = {"quant_method": value}
    else:
        (tmp_path / "tokenizer.model").write_bytes(
            {"SentencePiece": b"\n\x0e\n\x05<unk>", "tiktoken": b"IQ== 0\n"}[value]
        )
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors").touch()
    names = [needed.name for needed in OPTIONAL[setting].values[value]]
    said = f"of '{tmp_path}': '{value}' needs the package{'s' * (len(names) > 1)} {' and '.join(names)}, which "
    for load in (
        lambda: load_policy(str(tmp_path)),
        lambda: checked(RunConfig.parse({"policy": {"path": str(tmp_path), "lora": {}}})),
    ):
        with pytest.raises(WorkbenchError) as caught:
            load()
        assert said in str(caught.value)
        assert f"pip install {' '.join(names)}, or {OPTIONAL[setting].instead}" in str(caught.value)


def test_a_script_says_what_it_needs_where_it_runs(tmp_path: Path) -> None:
    data = {"method": {"prompts_per_step": 2}, "run": {"ranks": 2}}
    (note, *_) = write_script(RunConfig.parse(data), tmp_path / "script", "zero2").notes
    assert "'zero2' needs the package deepspeed, which is not installed; pip install deepspeed, or take fsdp" in note


def test_every_choice_beyond_torch_is_known() -> None:
    assert set(OPTIONAL["optimiser.optim"].values) == set(get_args(Optimiser)) - OF_TORCH
    assert set(OPTIONAL["policy.attention"].values) == {name for name in get_args(Attention) if "flash" in name}
    for section, field in ((ModelConfig, "model.quantisation"), (RunSection, "run.report_to")):
        annotation = section.model_fields[field.partition(".")[2]].annotation
        (part,) = get_args(annotation) if field == "run.report_to" else (annotation,)
        assert set(OPTIONAL[field].values) == set(get_args(part)) - {"none"}
    assert set(TRACKERS) == set(OPTIONAL["run.report_to"].values)
