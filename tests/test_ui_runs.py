"""The Runs tab without a browser: numbers worked out by hand, and everything that a name could be made to do."""

import base64
import csv
import io
import struct
import zipfile

import numpy as np
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from tests.credits import worked_credit
from tests.stored_runs import alive, learning, store
from workbench.config import LoraConfig
from workbench.rundir.metrics import resumed
from workbench.runs import index, list_runs, trashed
from workbench.training.methods import RunConfig
from workbench.ui.door import Door
from workbench.ui.downloads import add_downloads, write_zip
from workbench.ui.handlers import run_follow, runs
from workbench.views.curves import Seeds, band, overlay_charts, run_charts
from workbench.views.estimate import Pace, estimate, measured_pace
from workbench.views.export import chart_csv

# ── the table ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_row_says_what_was_best_and_what_was_last(tmp_path):
    rows = [
        {"step": 0, "accuracy": 0.3, "seconds": 0.0},
        {"step": 1, "reward": 0.5, "step_reward": 0.9, "seconds": 2.0},
        {"step": 2, "reward": 0.75, "accuracy": 0.8, "seconds": 4.0},
        {"step": 3, "reward": 0.25, "accuracy": 0.6, "seconds": 6.5},
    ]
    store(tmp_path, "a", rows, seed=7, method={"credit": {"scheme": "position"}})
    (row,) = runs.table(tmp_path)["runs"]
    shown = {
        "reward": 0.75, "reward_metric": "reward", "accuracy_best": 0.8, "accuracy_last": 0.6, "seconds": 6.5,
        "scheme": "position", "seed": 7, "state": "finished", "step": 3, "final": True,
    }  # fmt: skip
    assert {name: row[name] for name in shown} == shown


def test_a_run_without_outcome_rewards_shows_its_step_reward_and_an_empty_one_nothing(tmp_path):
    store(tmp_path, "steps", [{"step": 1, "step_reward": 0.4}], made=2e9)
    store(tmp_path, "empty", [], made=1e9)
    steps, empty = runs.table(tmp_path)["runs"]
    assert (steps["reward"], steps["reward_metric"]) == (0.4, "step_reward")
    assert [empty[name] for name in ("reward", "accuracy_best", "seconds")] == [None] * 3


@pytest.mark.parametrize(
    ("file", "content", "reason"),
    [
        ("status.json", '{"state": "fini', "JSON"),
        ("run.yaml", "steps: [", "is not YAML"),
        ("run.yaml", "", "empty run.yaml"),
    ],
)
def test_invariant_one_damaged_run_is_shown_as_such_and_hides_no_other(tmp_path, file, content, reason):
    good, bad = store(tmp_path, "good", []), store(tmp_path, "bad", [])
    (bad.path / file).write_text(content)
    for rows in (runs.table(tmp_path)["runs"], run_follow.runs_table(tmp_path)):
        shown = {row["name"]: row for row in rows}
        assert shown[good.name]["state"] == "finished"
        assert shown[bad.name]["state"] == "unreadable"
    for told in (runs.table(tmp_path)["runs"][0]["reason"], run_follow.poll(tmp_path, "bad", 0, -1)["error"]):
        assert reason in told


# ── mean and band over seeds ─────────────────────────────────────────────────────────────────────────────────────


def test_mean_and_band_by_hand():
    found = band([([1, 2, 3], [0.0, 1.0, 4.0]), ([1, 2], [1.0, 3.0]), ([2], [5.0])])
    # step 1: 0, 1; step 2: 1, 3, 5; step 3: 4 alone
    assert found.index.tolist() == [1, 2, 3]
    assert found.to_dict("list") == {"mean": [0.5, 3.0, 4.0], "low": [0.0, 1.0, 4.0], "high": [1.0, 5.0, 4.0]}


def test_long_runs_are_drawn_in_bins_of_equally_many_steps():
    found = band([(range(1, 9), [1, 1, 2, 4, 0, 2, 5, 9]), ([4, 8], [7, 8])], points=4)
    # bins 1-2, 3-4, 5-6, 7-8; a run's value in a bin is the mean of its rows there
    assert found.index.tolist() == [2, 4, 6, 8]
    assert found.to_dict("list") == {"mean": [1, 5, 1, 7.5], "low": [1, 3, 1, 7], "high": [1, 7, 1, 8]}


def test_a_payload_of_ten_thousand_steps_is_small_and_keeps_peaks():
    values = [0.123456789] * 10_000
    values[4_321], values[8_765] = 5.0, -5.0
    columns = {"reward": (range(10_000), values)}
    (mean,) = overlay_charts([Seeds("one", [("a", columns), ("b", columns)])])[0].payload()["traces"]
    assert len(decoded(mean["x"])) == len(decoded(mean["low"])) == 1_000
    (chart,) = run_charts(columns)
    (trace,) = chart.payload()["traces"]
    assert len(decoded(trace["x"])) == len(decoded(trace["y"])) <= 1_000
    assert decoded(trace["y"])[0] == np.float32(0.123456789)
    assert {5.0, -5.0} < set(decoded(trace["y"]))
    assert len(chart_csv(chart).splitlines()) == 10_001


def test_seeds_are_a_mean_with_a_band_and_one_switched_off_leaves_the_others_as_they_are():
    one, two, other = {"reward": ([1, 2], [0.5, 1.0])}, {"reward": ([2], [0.0])}, {"reward": ([1], [5.0])}
    seeds = [Seeds("process", [("p0", one), ("p1", two)]), Seeds("outcome", [("o", other)])]

    def drawn(**shown):
        (chart,) = overlay_charts(seeds, **shown)
        return [(line.label, list(line.y), line.low, line.style, line.faint) for line in chart.lines]

    mean = ("process, outcome, mean", [0.5, 0.5], [0.5, 0.0], 0, False)
    alone = ("outcome, outcome", [5.0], None, 1, False)
    assert drawn() == [mean, alone]
    faint = [("p0", [0.5, 1.0], None, 0, True), ("p1", [0.0], None, 0, True)]
    assert drawn(each=True) == [*faint, mean, alone]
    assert drawn(off={"p1"}) == [("p0", [0.5, 1.0], None, 0, False), alone]
    assert drawn(off={"p0", "p1"}) == [alone]


def test_runs_are_grouped_by_everything_but_the_seed(tmp_path):
    for seed in (0, 1):
        store(tmp_path, f"p{seed}", [{"step": 1, "reward": seed / 2}], seed=seed)
    store(tmp_path, "o", [{"step": 1, "reward": 1.0}], method={"credit": {"scheme": "outcome"}})
    seen = runs.overlay(tmp_path, ["p0", "o", "p1", "p0", "gone", "../../etc"])
    assert [(one["label"], [run["name"] for run in one["runs"]]) for one in seen["configurations"]] == [
        ("scheme process", ["p0", "p1"]),
        ("scheme outcome", ["o"]),
    ]
    (alone,) = runs.overlay(tmp_path, ["o"])["configurations"]
    assert alone["key"] == seen["configurations"][1]["key"]  # also among others
    (panel,) = seen["panels"]
    first, second = panel["traces"]
    assert [decoded(first[name]) for name in ("y", "low", "high")] == [[0.25], [0.0], [0.5]]
    assert (decoded(second["y"]), "low" in second) == ([1.0], False)
    told = runs.curve(tmp_path, "reward", ["p0", "o", "p1"])
    assert told.splitlines()[1].split(",")[1:] == ["0", "0.5", "0.25", "0", "0.5", "1"]
    assert [one["run"] for one in seen["missing"]] == ["gone", "../../etc"]


BOTH = {"rewards": [{"name": "step_correctness", "weight": 2.0}, {"name": "tag_format", "kind": "outcome"}]}
FOUR, EIGHT = {"steps": 4}, {"steps": 8}
OTHER = {"sampling": {"num_generations": 4, "temperature": 0.5}, "beta": 0.1}


@pytest.mark.parametrize(
    ("configs", "labels"),
    [
        ([{"method": BOTH}], ["process"]),
        ([{"method": BOTH}] * 2, ["process", "process"]),
        (
            [{"method": BOTH, "run": FOUR}, {"method": {"rewards": [{"name": "step_correctness"}]}, "run": EIGHT}],
            [
                "4 steps · step_correctness weight 2.0 · with tag_format",
                "8 steps · step_correctness weight 1.0 · without tag_format",
            ],
        ),
        ([{"method": "sft", "run": FOUR}, {"run": EIGHT}], ["SFT · 4 steps", "GRPO · 8 steps"]),
        # What differs comes in the order of the configuration: four fields, and more while two would be called alike.
        (
            [{}, {"method": {"beta": 0.1}}, {"task": "gsm8k", "policy": "mine", "method": OTHER}],
            [
                "policy tiny · task chain-arithmetic · num_generations 8 · temperature 1.0 · beta 0.0",
                "policy tiny · task chain-arithmetic · num_generations 8 · temperature 1.0 · beta 0.1",
                "policy mine · task gsm8k · num_generations 4 · temperature 0.5 · beta 0.1",
            ],
        ),
    ],
)
def test_configurations_are_called_by_what_differs(configs, labels):
    assert runs.configuration_labels([RunConfig.parse(config) for config in configs]) == labels


def test_differences_name_only_what_differs(tmp_path):
    code = "def mine(prompt, step, **columns):\n    return 1.0\n"
    own = [{"name": "mine", "kind": "step", "code": code}]
    configs = {
        "a": RunConfig.parse({"name": "a", "method": {"rewards": own}}),
        "b": RunConfig.parse({"name": "b", "seed": 3, "method": {"rewards": [own[0] | {"weight": 2.0}]}}),
        "c": RunConfig.parse({"name": "c", "method": {"rewards": [*own, own[0] | {"name": "length"}]}}),
    }
    rows = {row["field"]: row["values"] for row in runs.differences(configs)}
    assert rows == rows | {
        "seed": ["0", "3", "0"],
        "method.rewards.mine.weight": ["1.0", "2.0", "1.0"],
        "method.rewards.length.weight": ["–", "–", "1.0"],
    }
    assert rows["method.rewards.length.code"][2].startswith("3 lines, sha256 ")
    assert not {"name", "method.rewards.mine.code"} & rows.keys()


# ── deleting, and taking it back ─────────────────────────────────────────────────────────────────────────────────


def test_a_deleted_run_comes_back_as_it_was(tmp_path):
    run = store(tmp_path, "a", learning(4))
    run.dir.rollouts.write(1, [worked_credit()])

    def files():
        return {path.relative_to(run.path): path.read_bytes() for path in run.path.rglob("*") if path.is_file()}

    before = files()
    answer = runs.remove(tmp_path, ["a", "gone"])
    (moved,) = answer["moved"]
    assert "'gone'" in answer["problems"][0]
    assert ([one["name"] for one in runs.table(tmp_path)["trash"]], list_runs(tmp_path)) == (["a"], [])
    assert runs.undelete(tmp_path, [moved["entry"]]) == {"moved": ["a"], "problems": []}
    assert (files(), trashed(tmp_path)) == (before, [])
    assert len(runs.undelete(tmp_path, [moved["entry"]])["problems"]) == 1


# ── downloads ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def run(tmp_path):
    secret = "hf_" + "a1B2" * 8
    run = store(tmp_path, "a", [{"step": 1, "loss": float("nan")}, {"step": 2, "loss": 0.5, "kl/k3": 0.25}])
    run.dir.rollouts.write(1, [worked_credit()])
    run.dir.log.write_text(f"token {secret}\nstep 1\n")
    (run.path / "checkpoints" / "checkpoint-2").mkdir()
    (run.path / "checkpoints" / "checkpoint-2" / "weights").write_text("big")
    (run.path / "rewards" / "escape.py").symlink_to("/etc/passwd")
    return run


def test_a_zip_holds_the_run_without_checkpoints_links_and_secrets(run):
    file = io.BytesIO()
    write_zip(run, file)
    with zipfile.ZipFile(file) as archive:
        names = set(archive.namelist())
        log = archive.read("a/log.txt").decode()
        config = archive.read("a/run.yaml")
    assert {"a/run.yaml", "a/status.json", "a/metrics.jsonl", "a/log.txt", "a/rollouts/step-000001.parquet"} <= names
    assert not [name for name in names if "checkpoint" in name or "escape" in name or "/." in name]
    assert (log, config) == ("token [redacted]\nstep 1\n", (run.path / "run.yaml").read_bytes())


def test_downloads_are_behind_the_token_and_know_no_paths(run, services):
    app = FastAPI()
    add_downloads(app, services)
    app.add_middleware(Door, token="the-token")
    with TestClient(app, base_url="http://127.0.0.1") as client:
        assert client.get("/workbench-runs/a.zip").status_code == 401
        client.headers["Authorization"] = "Bearer the-token"
        answer = client.get("/workbench-runs/a.zip")
        assert answer.headers["content-disposition"] == 'attachment; filename="a.zip"'
        assert zipfile.ZipFile(io.BytesIO(answer.content)).testzip() is None
        rows = list(csv.DictReader(io.StringIO(client.get("/workbench-runs/a.csv").text)))
        assert rows == [{"step": "1", "loss": "nan", "kl/k3": ""}, {"step": "2", "loss": "0.5", "kl/k3": "0.25"}]
        for path in ("gone.csv", "a/picture.zip", "..%2F..%2Fetc%2Fpasswd.csv", "%2e%2e.csv"):
            assert client.get(f"/workbench-runs/{path}").status_code == 404


# ── what the Train tab is told ───────────────────────────────────────────────────────────────────────────────────


def decoded(text: str) -> list[float]:
    data = base64.b64decode(text)
    return list(struct.unpack(f"<{len(data) // 4}f", data))


def test_curves_are_given_once_and_then_rows_until_they_are_many_or_bring_a_new_line(tmp_path):
    run = store(tmp_path, "long", [{"step": i, "reward": i / 4, "other": 1} for i in range(1, 1_201)], state="stopped")
    news = run_follow.poll(tmp_path, "long", 0, -1)
    assert [panel["key"] for panel in news["panels"]] == ["reward"]
    run.dir.append_metrics({"step": 1_201, "reward": 1.0})
    later = run_follow.poll(tmp_path, "long", news["cursor"], -1)
    assert (later["rows"], later["panels"]) == ([{"step": 1_201, "reward": 1.0}], None)
    run.dir.append_metrics({"step": 1_202, "loss": 1.0})
    new = run_follow.poll(tmp_path, "long", later["cursor"], -1)
    assert (new["rows"], {panel["key"] for panel in new["panels"]}) == ([], {"loss", "reward"})
    for step in range(1_203, 1_260):
        run.dir.append_metrics({"step": step, "reward": 1.0})
    assert run_follow.poll(tmp_path, "long", new["cursor"], -1)["panels"] is not None  # 1,250 is among them
    run.dir.append_metrics(resumed(2))
    again = run_follow.poll(tmp_path, "long", new["cursor"], -1)
    assert (again["restarted"], decoded(again["panels"][0]["traces"][0]["x"])) == (True, [1, 2])


def test_a_smoothed_run_is_drawn_anew_with_every_row(tmp_path):
    """Its line is corrected for its start: 0.5 / 0.5; 5.25 / 0.75."""
    run = store(tmp_path, "a", [{"step": 1, "loss": 1.0}], state="running")
    news = run_follow.poll(tmp_path, "a", 0, -1, smoothing=0.5)
    assert run_follow.poll(tmp_path, "a", news["cursor"], -1, smoothing=0.5)["panels"] is None
    run.dir.append_metrics({"step": 2, "loss": 10.0})
    (panel,) = run_follow.poll(tmp_path, "a", news["cursor"], -1, smoothing=0.5)["panels"]
    assert [decoded(trace["y"]) for trace in panel["traces"]] == [[1, 10], [1, 7]]
    assert run_follow.curve(tmp_path, "a", "loss") == "step,loss\n1,1\n2,10\n"


def test_a_run_that_ended_in_nan_is_marked_and_its_last_number_is_not_called_current(tmp_path):
    rows = [{"step": 1, "loss": 0.5, "entropy": 0.3}, {"step": 2, "loss": float("nan"), "entropy": 0.2}]
    store(tmp_path, "a", rows, state="finished")
    news = run_follow.poll(tmp_path, "a", 0, -1)
    assert (news["lost"], [alarm["name"] for alarm in news["alarms"]]) == (["loss"], ["not a number"])
    (row,) = runs.table(tmp_path)["runs"]
    assert (row["state"], ["step 2" in alarm for alarm in row["alarms"]]) == ("finished", [True])


def test_alarms_and_corrupt_rows_are_told_at_every_poll(tmp_path):
    rows = [{"step": i, "entropy": 1.0 if i < 30 else 0.01} for i in range(1, 61)]
    run = store(tmp_path, "a", rows, state="stopped")
    with open(run.path / "metrics.jsonl", "a") as file:
        file.write("{torn\n")
    news = run_follow.poll(tmp_path, "a", 0, -1)
    later = run_follow.poll(tmp_path, "a", news["cursor"], -1)
    for one in (news, later):
        (alarm,), (warning,) = one["alarms"], one["warnings"]
        assert (alarm["where"], alarm["change"]) == (("entropy",), "half the learning rate")
        assert abs(alarm["since"] - 30) <= 1
        assert "line 62" in warning
    assert runs.table(tmp_path)["runs"][0]["corrupt"] == 1


def test_pace_and_place_in_the_queue_are_told(tmp_path):
    """Eleven rows of 2 s, and before them one of 100 s that no longer counts; 28 of 40 steps are left: 56 s."""
    rows = [{"step": 1, "seconds": 100.0}] + [{"step": n, "seconds": 98.0 + 2 * n} for n in range(2, 13)]
    running = store(tmp_path, "running", rows, run={"steps": 40}, state="running")
    second, third = (store(tmp_path, name, state="queued") for name in ("second", "third"))
    for run, behind in ((running, None), (second, "running"), (third, "second")):
        alive(run).dir.note(behind=behind)
    news = [run_follow.poll(tmp_path, run.name, 0, -1) for run in (running, second, third)]
    assert [(of["pace"], of["ahead"], of["wait"]) for of in news] == [(2.0, 0, None), (None, 1, 56.0), (None, 2, None)]


def test_every_rollout_of_a_run_is_in_one_list_sorted_searched_and_paged(tmp_path):
    """Two steps of the worked group: three answers each, with step rewards and outcomes worked by hand."""
    run = store(tmp_path, "a", [])
    credit = worked_credit(outcomes=[1.0, 0.0, None])
    for step in (1, 2):
        run.dir.rollouts.write(step, [credit] * 2)
    page = run_follow.all_rollouts(tmp_path, "a", "", "step", 0)
    assert (page["found"], page["total"], page["read"], page["files"]) == (12, 12, 2, 2)
    places = [(row["step"], row["group"], row["rollout"]) for row in page["rows"]]
    assert places[:4] == [(2, 0, 0), (2, 0, 1), (2, 0, 2), (2, 1, 0)]
    for i, row in enumerate(page["rows"][:3]):
        rewards = [reward for reward in credit.scored.step_rewards[i] if reward is not None]
        assert row["reward"] == pytest.approx(sum(rewards) / len(rewards))
        assert row["advantage"] == pytest.approx(float(credit.of(i).mean()), abs=1e-6)
        assert (row["tokens"], row["outcome"]) == (len(credit.of(i)), [1.0, 0.0, None][i])
        assert credit.scored.group.rollouts[i].text.startswith(row["text"])
    for order in ("advantage", "-advantage", "tokens"):
        values = [row[order.strip("-")] for row in run_follow.all_rollouts(tmp_path, "a", "", order, 0)["rows"]]
        assert values == sorted(values, reverse=order[0] != "-")
    apart = run_follow.all_rollouts(tmp_path, "a", "", "disagreement", 0)["rows"][-4:]
    assert [row["outcome"] for row in apart] == [None] * 4  # what has no outcome cannot disagree
    words = max((rollout.text for rollout in credit.scored.group.rollouts), key=len).strip()
    found = run_follow.all_rollouts(tmp_path, "a", words.upper(), "step", 0)
    assert found["found"] == 4 * sum(words in rollout.text for rollout in credit.scored.group.rollouts) < 12


def test_reading_many_steps_goes_on_with_the_next_question(tmp_path, monkeypatch):
    run = store(tmp_path, "a", [])
    for step in range(1, 5):
        run.dir.rollouts.write(step, [worked_credit()])
    with monkeypatch.context() as patch:
        patch.setattr(index, "READING", -1)
        assert run_follow.all_rollouts(tmp_path, "a", "", "step", 0)["read"] == 0
    monkeypatch.setattr(index, "PAGE", 5)
    pages = [run_follow.all_rollouts(tmp_path, "a", "", "step", offset) for offset in (0, 5, 99)]
    assert [(page["offset"], len(page["rows"])) for page in pages] == [(0, 5), (5, 5), (10, 2)]


def test_an_estimate_says_what_it_is_made_of():
    config = RunConfig.parse(
        {"run": {"steps": 60}, "method": {"prompts_per_step": 6, "sampling": {"num_generations": 8}}}
    )
    assert "GRPO" in dict(estimate(config, None, None))["time"]
    # 24 completions took 1.5 s a step, so 48 take 3 s, 60 times: 180 s. 16 bytes × 1 M parameters.
    known = dict(estimate(config, Pace("before", 1.5, 24), 1_000_000))
    assert known["time"] == "about 3 min: 60 steps of 3 s, the pace of before, scaled from 24 to 48 completions"
    assert known["memory"].startswith("≥ 16 MB ")
    # Of pairs: 1.5 s for 24, 2 s for 32. The reference takes 4 bytes a parameter; of an adapter the weights are known.
    pairs = RunConfig.parse({"method": {"name": "dpo", "batch_size": 32}, "run": {"steps": 30}})
    known = dict(estimate(pairs, Pace("before", 1.5, 24), 1_000_000))
    assert known["time"] == "about 1 min: 30 steps of 2 s, the pace of before, scaled from 24 to 32 pairs"
    assert known["memory"].startswith("≥ 20 MB ")
    pairs.policy.lora = LoraConfig()
    assert dict(estimate(pairs, None, 1_000_000))["memory"].startswith("≥ 4 MB ")


@pytest.mark.parametrize(
    ("rate", "parameters", "times"),
    [
        # The form's 3.5e-4 for a small policy, or one that is not loaded yet; TRL's 1e-6 for a pretrained one.
        (0.5, None, "1,400"),
        (1.0, 1_000_000, "2,900"),
        (0.01, 1_000_000, None),
        (3.5e-4, 500_000_000, "350"),
        (1e-5, 500_000_000, None),
    ],
)
def test_a_rate_that_is_far_off_is_told_before_the_start(rate, parameters, times):
    told = dict(estimate(RunConfig.parse({"optimiser": {"learning_rate": rate}}), None, parameters)).get("rate")
    assert (times is None) == (told is None)
    assert told is None or f" {times} times " in told


def test_the_pace_is_the_newest_run_of_the_same_policy(tmp_path):
    rows = [{"step": i, "seconds": 2.0 * i} for i in range(1, 5)]
    store(tmp_path, "old", rows, made=1e9)
    store(tmp_path, "short", rows[:2], made=2e9)
    store(tmp_path, "other", rows, made=3e9, policy="another/policy")
    assert measured_pace(tmp_path, "grpo", "tiny") == Pace("old", 2.0, 48)
    assert measured_pace(tmp_path, "sft", "tiny") is measured_pace(tmp_path / "nowhere", "grpo", "tiny") is None
