"""Bad input at every place where a person's file, name or value enters: refused in a sentence, or read as it is.

One table of files, one of names and one of values, each tried at every place that takes such a thing. Held means that
nothing but a WorkbenchError came out, with a message of bounded length; what was accepted is written and read back.
"""

import io
import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from workbench.cli.groups import read_group
from workbench.config import SharedConfig, leaves
from workbench.config.reading import decoded, read_text
from workbench.credit import assign_credit
from workbench.data import load_task
from workbench.data.labelled import HandLabels
from workbench.data.read import read_rows
from workbench.data.rollouts import Builder, read_drafts
from workbench.data.tokens import load_tokeniser
from workbench.errors import WorkbenchError
from workbench.models.weights import WeightsError
from workbench.rewards.source import reward_functions
from workbench.rundir import RunDir, checkpoints
from workbench.runs import Run, list_runs
from workbench.runs.run import About, about
from workbench.schema import Group
from workbench.training.methods import METHODS, RunConfig
from workbench.ui import api
from workbench.ui.downloads import write_zip
from workbench.ui.handlers.example import first_group
from workbench.views import page_link

LONGEST = 3_000  # characters of a message

ROW = b'{"prompt":"a","completion":"b"'
FILES: dict[str, bytes] = {
    "empty": b"",
    "blank": b"   \n\n  ",
    "UTF-16": '{"prompt":"a"}'.encode("utf-16"),
    "UTF-16 big end first": b"\xfe\xff\0{",
    "UTF-32": '{"a":1}'.encode("utf-32"),
    "byte order mark": b"\xef\xbb\xbf" + ROW + b"}",
    "CRLF": ROW + b"}\r\n" + ROW + b"}\r\n",
    "CR": b'{"prompt":"a"}\r{"prompt":"b"}',
    "Latin-1": '{"prompt":"é"}'.encode("latin1"),
    "NUL in a text": b'{"prompt":"a\\u0000b","completion":"c"}',
    "NULs": b"\0" * 100,
    "lone surrogates": b'{"prompt":"\\ud800","completion":"\\udfff"}',
    "lone surrogate as a key": b'{"\\ud800":1,"prompt":"a","completion":"b"}',
    "U+2028": '{"prompt":"a\u2028b","completion":"c"}'.encode(),
    "long line": b'{"prompt":"' + b"x" * 1_200_000 + b'","completion":"y"}',
    "deep list": b"[" * 100_000,
    "deep object": b'{"a":' * 100_000,
    "deep column": ROW + b',"c":' + b"[" * 500 + b"]" * 500 + b"}",
    "NaN": ROW + b',"reward":NaN}',
    "Infinity": ROW + b',"reward":Infinity}',
    "1e999": ROW + b',"reward":1e999}',
    "400 digits": ROW + b',"reward":' + b"9" * 400 + b"}",
    "5000 digits": ROW + b',"reward":' + b"9" * 5000 + b"}",
    "answer of 4000 digits": b'{"prompt":"a","answer":' + b"9" * 4000 + b"}",
    "torn": b'{"prompt":"a","compl',
    "numbers": b"[1,2,3]",
    "no rows": b"[]",
    "no columns": b"{}",
    "null": b"null",
    "text": b'"x"',
    "number": b"5",
    "key twice": b'{"prompt":"a","prompt":"b"}',
    "comma": b'{"prompt":"a",}',
    "two objects in a line": ROW + b"}" + ROW + b"}",
    "second row without completion": ROW + b'}\n{"prompt":"a"}',
    "second row of another type": ROW + b'}\n{"prompt":"a","completion":5}',
    "second row a list": ROW + b"}\n[1]",
    "2,000 columns": b'{"prompt":"a",' + b",".join(b'"c%d":1' % i for i in range(2_000)) + b"}",
    "Parquet, four bytes": b"PAR1",
    "Parquet, no footer": b"PAR1" + b"\0" * 100 + b"PAR1",
    "gzip": b"\x1f\x8b\x08\0\0",
    "zip": b"PK\x03\x04",
    "XML": b"<a/>",
    "CSV": b"prompt,completion\na,b\n",
    "prompt a number": b'{"prompt":5,"completion":"b"}',
    "prompt null": b'{"prompt":null,"completion":"b"}',
    "prompt empty": b'{"prompt":"","completion":""}',
    "prompt no messages": b'{"prompt":[],"completion":"b"}',
    "prompt bad messages": b'{"prompt":[{"role":1}],"completion":"b"}',
    "token id -1": b'{"prompt":"a","completion":"b","token_ids":[-1]}',
    "token id 99999999": b'{"prompt":"a","completion":"b","token_ids":[99999999]}',
    "token id 1e24": b'{"prompt":"a","completion":"b","token_ids":[1' + b"0" * 24 + b"]}",
    "token ids text": b'{"prompt":"a","token_ids":"abc"}',
    "token ids empty": b'{"prompt":"a","token_ids":[]}',
    "log-prob NaN": b'{"prompt":"a","token_ids":[1],"logprobs":[NaN]}',
    "log-prob of 400 digits": b'{"prompt":"a","token_ids":[1],"logprobs":[1' + b"0" * 400 + b"]}",
    "group of numbers": b'{"prompt":"a","rollouts":[1]}',
    "group without rollouts": b'{"prompt":"a","rollouts":[]}',
    "group, columns a list": b'{"prompt":"a","columns":[1],"rollouts":[{"token_ids":[1],"texts":["a"]}]}',
    "group, rollout's columns a list": b'{"prompt":"a","rollouts":[{"token_ids":[1],"texts":["a"],"columns":[1]}]}',
    "group, a text too many": b'{"prompt":"a","rollouts":[{"token_ids":[1],"texts":["a","b"],"finished":true}]}',
    "group, mask a text": b'{"prompt":"a","rollouts":[{"token_ids":[1],"texts":["a"],"finished":1,"mask":"x"}]}',
    "6 labels of 2 steps": b'{"prompt":"a","completions":["x","y"],"labels":[1,1,1,1,1,1]}',
    "labels words": b'{"prompt":"a","completions":["x"],"labels":["yes"]}',
    "no steps": b'{"prompt":"a","completions":[],"labels":[]}',
    "steps a text": b'{"prompt":"a","completions":"x","labels":5}',
    "labels of other steps": ROW + b',"labelled_steps":["x"],"labels":[1,1,1,1,1,1]}',
    "label 7": ROW + b',"labelled_steps":["x"],"labels":[7]}',
    "labels a text": ROW + b',"labelled_steps":["x","y"],"labels":"10"}',
    "resumed from nowhere": b'{"event":"resumed"}',
    "first wrong step 7 of 1": b'{"problem":"a","steps":["x"],"label":7}',
    "first wrong step true": b'{"problem":"a","steps":["x"],"label":true}',
    "solution a number": b'{"question":"a","m":{"solution":5}}',
    "verdict a text": b'{"question":"a","m":{"solution":"x","is_correct":"y"}}',
    "logged null": b'{"step":null,"prompt":"a","completion":null,"advantage":1}',
    "logged step a list": b'{"step":[1],"prompt":"a","completion":"b","advantage":1,"r":1' + b"0" * 400 + b"}",
    "messages a number": b'{"messages":5}',
    "messages of the user alone": b'{"messages":[{"role":"user","content":"x"}]}',
    "pair of numbers": b'{"chosen":1,"rejected":2,"prompt":"a"}',
    "pair of nothing": b'{"chosen":[],"rejected":[],"prompt":"a"}',
    "YAML aliases": b"a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n",
    "YAML key twice": b"seed: 1\nseed: 2\n",
    "YAML tag": b"!!python/object/apply:os.system [echo]",
}
VALUES: dict[str, Any] = {
    "NaN": math.nan,
    "infinity": math.inf,
    "-1": -1,
    "1e400": 10**400,
    "1e-300": 1e-300,
    "no text": "",
    "NUL": "a\0b",
    "surrogate": "\ud800",
    "4,000 letters": "x" * 4_000,
    "5000 digits": "9" * 5_000,
    "1:30": "1:30",
    "None": None,
    "True": True,
    "list": [],
    "list of None": [None, math.nan],
    "object": {},
    "object in objects": {"a": {"b": [1]}},
}


def held(action: Callable[[], object]) -> bool:
    """Whether the action was accepted; False where it was refused in a sentence. All else is raised."""
    message = None
    try:
        action()
    except (WorkbenchError, WeightsError) as error:
        message = str(error)
    assert message is None or 0 < len(message) < LONGEST, f"a message of {len(message):,} characters"
    return message is None


# -- files ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FILES)
def test_a_bad_data_file_is_refused_in_a_sentence(name: str, tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    path.write_bytes(FILES[name])

    def rollouts(tokenizer: str | None) -> None:
        drafts, facts = read_drafts(read_rows(path), path.name)
        builder = Builder(load_tokeniser(tokenizer), facts, path.name)
        for draft in drafts:
            group = builder.build(draft)
            assert Group.from_json(json.loads(json.dumps(group.to_json()))) == group
        builder.facts()

    held(lambda: rollouts(None))
    held(lambda: rollouts("tiny"))
    if held(lambda: load_task(str(path))):
        task = load_task(str(path))
        for kind in ("prompts", "demonstrations", "pairs", "labelled_steps"):
            held(lambda kind=kind: [*task.rows(kind), *task.rows(kind, held_out=True)])
        for method in METHODS:
            config = RunConfig.parse({"method": method, "task": str(path)})
            held(lambda config=config: config.method.check_rows(config))


@pytest.mark.parametrize("name", FILES)
def test_a_bad_configuration_group_or_code_file_is_refused_in_a_sentence(name: str, tmp_path: Path) -> None:
    path = tmp_path / "file.py"
    path.write_bytes(FILES[name])
    held(lambda: RunConfig.from_yaml(decoded(FILES[name], name)))
    held(lambda: read_group(path))
    held(lambda: reward_functions(read_text(path, "--reward-file")))


def test_invariant_one_damaged_file_hides_nothing_else(tmp_path: Path) -> None:
    """Each file of a run in turn, then all of them; a saved function, a group, a page and a hand label are damaged."""
    run = Run(RunDir.create(tmp_path, RunConfig(name="damaged")).path)
    RunDir.create(tmp_path, RunConfig(name="whole"))
    for file in (
        *("rewards/manifest.json", "answers/step-000000.json", "rollouts/step-000000.parquet", "about.json"),
        *("checkpoints/checkpoint-2/manifest.json", "environment.json", "metrics.jsonl", "status.json", "run.yaml"),
    ):
        (run.path / file).parent.mkdir(parents=True, exist_ok=True)
        (run.path / file).write_bytes(b'{"torn\xff\n')
        for read in (run.metrics_rows, run.config, lambda: run.rollouts(0)):
            held(read)
        assert (about(run), checkpoints.newest_valid(run.dir.checkpoints)[0]) == (About(), None)
        assert {listed.name: listed.summary().readable for listed in list_runs(tmp_path)}["whole"]
    write_zip(run, io.BytesIO())
    assert not run.summary().readable
    for place in ("groups/a.json", ".pages/1-a.json", "labels/a.json"):
        (tmp_path / place).parent.mkdir(exist_ok=True)
        (tmp_path / place).write_bytes(b"{")
    assert (page_link.read_group(tmp_path / "groups", "a"), page_link.page_link(tmp_path)) == (None, None)
    assert list(HandLabels(tmp_path).completions()) == []


# -- values -----------------------------------------------------------------------------------------------------------


def _configurations(value: Any) -> Iterator[tuple[str, Any]]:
    """The value at every field of every section, and in place of every section."""
    sections = ("policy", "task", "method", "run", "policy.lora", "training", "rewards", "credit")
    paths = [
        *(("", leaf.name) for leaf in leaves(SharedConfig)),
        *((name, f"method.{leaf.name}") for name, method in METHODS.items() for leaf in leaves(method.section)),
        *(("", name) for name in sections),
    ]
    for method, path in paths:
        first, *rest = path.split(".")
        inner = value
        for part in reversed(rest):
            inner = {part: inner}
        yield path, {first: {"name": method, **inner} if method and isinstance(inner, dict) else inner}
    for name in ("name", "kind", "weight", "code", "options", "model", "monte_carlo", "no_such_field"):
        yield f"rewards.{name}", {"method": {"rewards": [{"name": "mine", "code": "x", name: value}]}}
    for name in ("path", "format", "reduce", "output", "label", "separator", "batch_size"):
        model = {"path": "p", "format": "ki", name: value}
        yield f"model.{name}", {"method": {"rewards": [{"name": "mine", "kind": "step", "model": model}]}}
    yield "all", value


@pytest.mark.parametrize("name", VALUES)
def test_a_bad_value_of_a_configuration_is_refused_in_a_sentence(name: str) -> None:
    for path, data in _configurations(VALUES[name]):

        def parse(data: Any = data, path: str = path) -> None:
            config = RunConfig.parse(data)
            assert RunConfig.parse(json.loads(json.dumps(config.model_dump(mode="json")))) == config, path

        held(parse)


@pytest.mark.parametrize("name", VALUES)
def test_a_bad_value_of_the_api_is_refused_in_a_sentence(name: str) -> None:
    value = VALUES[name]
    credit: dict[str, Any] = {
        "step_rewards": [[1.0, 0.0], [0.0]],
        "step_ends": [[1, 2], [1]],
        "lengths": [3, 2],
        "scheme": "process",
        "outcome_rewards": None,
        "options": {},
    }
    for argument, rows in (
        *((argument, value) for argument in credit),
        ("step_rewards", [[value, 1.0], [0.0]]),
        ("step_rewards", [value, [0.0]]),
        ("step_ends", [[value, 2], [1]]),
        ("lengths", [value, 2]),
        ("options", {"outcome_weight": value}),
        ("options", {"gamma": value}),
        ("options", {"no_such_option": value}),
    ):
        held(lambda argument=argument, rows=rows: api.Api.assign_credit(**{**credit, argument: rows}))
    held(lambda: assign_credit([[1.0]], [[0]], [1], "outcome", outcome_rewards=[value]))
    group = first_group().to_json()
    rollout = group["rollouts"][0]
    for field in group:
        held(lambda field=field: api._group({**group, field: value}))
    for field in rollout:
        held(lambda field=field: api._group({**group, "rollouts": [{**rollout, field: value}]}))
