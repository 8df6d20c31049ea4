"""The benchmarks' command: rows with a ratio, a listing, and what it refuses."""

import json
from pathlib import Path

import pytest

from benchmarks import schemes
from benchmarks.__main__ import main
from benchmarks.trained import Where
from tests.stored_runs import store
from workbench.errors import ConfigError


def test_a_benchmark_prints_its_rows(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("benchmarks.credit.COMPLETIONS", 16)
    monkeypatch.setattr("benchmarks.credit.TOKENS", 64)
    assert main(["credit", "--repeat", "1", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["bench"] == "credit"
    (outcome,) = [row for row in result["rows"] if row["what"] == "outcome"]
    assert (outcome["unit"], outcome["ratio"], outcome["against"]) == ("ms", 1.0, "outcome")


def test_cells_are_chosen_by_name_and_only_what_finished_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schemes, "RESULTS", tmp_path / "none.jsonl")
    where = Where(tmp_path, only=("noise30/process", "prm"), stored=True)
    names = schemes.cells()
    assert where.chosen(names)[-1] == "noise30/process"
    assert {name.partition("/")[0] for name in where.chosen(names)} == {"noise30", "prm"}
    assert "noise30/outcome" not in names  # which reads no labels
    with pytest.raises(ConfigError, match="right/none"):
        Where(only=("right/none",)).chosen(names)
    store(
        tmp_path, "schemes-noise30-process-0", [{"step": n, "accuracy": n / 4, "steps_per_answer": 7} for n in (0, 2)]
    )
    (row,) = schemes.measure(2, Where(tmp_path, only=("noise30/process",), stored=True))
    assert (row.seeds, row.base, row.final, row.steps_per_answer, row.probes) == (1, 0.0, 0.5, 7.0, "")
    assert 0.2 < (row.agreement or 0) < 0.5
