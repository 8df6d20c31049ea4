"""The benchmarks' command: rows with a ratio, a listing, and what it refuses."""

from __future__ import annotations

import json

import pytest

from benchmarks import BENCHES, Measure
from benchmarks.__main__ import main


def test_a_benchmark_prints_its_rows(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
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


def test_what_cannot_be_measured_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["magic"])
    assert "invalid choice: 'magic'" in capsys.readouterr().err
    assert main(["credit", "--repeat", "0"]) == 2
    assert main(["credit", "--full"]) == 2
    assert "no --full version" in capsys.readouterr().err
