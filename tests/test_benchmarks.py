"""The benchmarks' command: rows with a ratio, a listing, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from benchmarks import BENCHES, Measure, schemes
from benchmarks.__main__ import main
from benchmarks.implicit_prm import save_implicit_prm
from benchmarks.trained import Where
from tests.stored_runs import store
from workbench.assets import EMBEDDED
from workbench.config import ModelConfig
from workbench.errors import ConfigError
from workbench.rewards.models.load import load_model
from workbench.rewards.models.model import ProcessModel


def test_a_benchmark_prints_its_rows(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("benchmarks.credit.COMPLETIONS", 16)
    monkeypatch.setattr("benchmarks.credit.TOKENS", 64)
    assert main(["credit", "--repeat", "1", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["bench"] == "credit"
    (outcome,) = [row for row in result["rows"] if row["what"] == "outcome"]
    assert (outcome["unit"], outcome["ratio"], outcome["against"]) == ("ms", 1.0, "outcome")
    monkeypatch.setattr("benchmarks.credit.measure", lambda repeat: [Measure("a", 1.5, "s", None)])
    assert main(["credit"]) == 0
    assert capsys.readouterr().out.splitlines()[1].split() == ["a", "1.500", "s", "–"]


def test_without_a_name_it_lists_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)["benches"]) == set(BENCHES)


def test_cells_are_chosen_by_name_and_only_what_finished_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schemes, "RESULTS", tmp_path / "none.jsonl")
    where = Where(tmp_path, only=("noise30/process", "prm"), stored=True)
    names = schemes.cells()
    assert where.chosen(names)[-1] == "noise30/process"
    assert {name.partition("/")[0] for name in where.chosen(names)} == {"noise30", "prm"}
    assert "noise30/outcome" not in names  # which reads no labels
    with pytest.raises(ConfigError, match="--only right/none: there is no such cell; choose among right/outcome"):
        Where(only=("right/none",)).chosen(names)
    store(
        tmp_path, "schemes-noise30-process-0", [{"step": n, "accuracy": n / 4, "steps_per_answer": 7} for n in (0, 2)]
    )
    (row,) = schemes.measure(2, Where(tmp_path, only=("noise30/process",), stored=True))
    assert (row.seeds, row.base, row.final, row.steps_per_answer, row.probes) == (1, 0.0, 0.5, 7.0, "")
    assert 0.2 < (row.agreement or 0) < 0.5


def test_an_implicit_prm_scores_a_step_by_how_the_likelihood_of_the_answer_moved(tmp_path: Path) -> None:
    """The trained part's embedding of "2" is moved, and the same one of a language model, whose likelihoods tell p."""
    save_implicit_prm(EMBEDDED["tiny"], tmp_path)
    prompt, steps = "Start with 1, add 1.\n", ["Step 1: 1 + 1 = 2", "Answer: 2"]
    judge = load_model(ModelConfig(path=str(tmp_path), format="stepwise", trust_remote_code=True), "cpu")
    assert isinstance(judge, ProcessModel)
    assert judge.score([prompt], [steps]) == [[0.5, 0.5]]
    before, after = (AutoModelForCausalLM.from_pretrained(EMBEDDED["tiny"]) for _ in range(2))
    ids = judge.tokenizer(prompt + "\n".join([*steps, ""]), return_tensors="pt", add_special_tokens=False)["input_ids"]
    (two,) = judge.tokenizer("2", add_special_tokens=False)["input_ids"]
    with torch.no_grad():
        for embeddings in (after.get_input_embeddings(), judge.model.policy.embed_tokens):
            embeddings.weight[two] *= 1.1
        likelihoods = [model(ids).logits[0, :-1].log_softmax(-1) for model in (after, before)]
    moved = (likelihoods[0] - likelihoods[1]).gather(-1, ids[0, 1:, None])[:, 0]  # of token 1 and those after it
    begins, *ends = (ids[0] == ids[0, -1]).nonzero()[:, 0].tolist()  # line breaks: of the prompt, of each step
    expected = [torch.sigmoid(moved[begins:end].sum()).item() for end in ends]
    assert ProcessModel(judge.model, judge.tokenizer, judge.form).score([prompt], [steps]) == [
        pytest.approx(expected, abs=1e-5)
    ]
    assert abs(expected[0] - 0.5) > 0.01
