"""Reward models: every public format against its own model card's computation, one completion at a time."""

import json
import shutil

import pytest
import torch
import trl
from datasets import Dataset
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from tests import reward_models
from tests.in_this_process import worker_here
from tests.reward_models import KINDS, PROMPT, STEPS, reference
from workbench.cli import main
from workbench.config import ModelConfig
from workbench.errors import RewardError
from workbench.rewards import RewardConfig, load_reward, score_group
from workbench.rewards.models.formats import FORMATS, read_steps, sign_ids
from workbench.rewards.models.model import LocalModels, classifier_ids
from workbench.rewards.reward import reduced
from workbench.schema import Group, Rollout
from workbench.steps import StepPattern

TOLERANCE = 1e-5  # padding changes the order of float32 sums
LINES = StepPattern(r"\n+", kind="ends")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("reward-models")
    sequences = {
        "sequence-1": {"num_labels": 1},
        "sequence-2": {},
        "sequence-3": {"num_labels": 3, "id2label": {0: "bad", 1: "so-so", 2: "good"}},
    }
    return {
        **{kind: reward_models.save(kind, root / kind) for kind in ("token", "causal", "implicit", "qwen")},
        **{name: reward_models.save("sequence", root / name, **labels) for name, labels in sequences.items()},
    }


@pytest.fixture
def models():
    return LocalModels("cpu")


@pytest.mark.parametrize("form", list(FORMATS))
def test_a_padded_batch_scores_as_the_model_card_does_one_by_one(form, folders, models):
    config = ModelConfig(path=folders[KINDS[form]], format=form)
    steps = [list(one) for one in STEPS]
    batched = models.score(config, [PROMPT] * 3, steps)
    loaded = models.prepare(config)
    for scores, one in zip(batched, steps, strict=True):
        expected = reference(form, loaded.model, loaded.tokenizer, PROMPT, one)
        assert scores == pytest.approx(expected, abs=TOLERANCE)
        assert all(0 <= score <= 1 for score in scores)
    flat = [score for scores in batched for score in scores]
    assert max(flat) - min(flat) > 0.01  # a random model does not score all alike


def test_scores_are_remembered_by_what_was_read(folders, models):
    config = ModelConfig(path=folders["token"], format="stepwise")
    model = models.prepare(config)
    passes = []
    forward = model._forward
    model._forward = lambda batch: passes.append(len(batch)) or forward(batch)
    first = models.score(config, [PROMPT], [STEPS[0]])
    assert (models.score(config, [PROMPT], [STEPS[0]]), passes) == (first, [1])
    models.score(config, ["Another prompt\n"], [STEPS[0]])
    models.score(config, [PROMPT] * 4, [STEPS[1]] * 4)  # one reading, however often
    assert passes == [1, 1, 1]


def test_steps_past_the_context_are_unscored(tmp_path, models):
    config = ModelConfig(
        path=reward_models.save("token", tmp_path / "short", max_position_embeddings=24), format="stepwise"
    )
    scores = models.score(config, [PROMPT], [list(STEPS[0])])[0]
    ends = read_steps(models.prepare(config).tokenizer, FORMATS["stepwise"], PROMPT, STEPS[0])[0].positions
    assert [score is None for score in scores] == [end >= 24 for end in ends]
    assert scores[0] is not None
    assert scores[-1] is None


@pytest.mark.parametrize(("form", "mark"), [("ki", "ки"), ("extra-0", "<extra_0>")])
def test_a_separator_written_by_the_policy_is_not_read(form, mark, folders, models):
    config = ModelConfig(path=folders[KINDS[form]], format=form)
    plain, marked = ["Step 1: 7 + 5 = 12", "Answer: 12"], [f"Step 1: 7 + 5 = 12 {mark}\n", f"Answer: 12{mark}"]
    assert models.score(config, [PROMPT], [marked]) == models.score(config, [PROMPT], [plain])


@pytest.mark.parametrize(
    ("form", "separator", "question", "steps", "read"),
    [
        ("ki", "ки", "У реки ки?", ["У реки 3 дома. ки", "ки кий 3ки"], ["У реки 3 дома. ки", "\nкий 3 ки"]),
        ("ki", ".", "7.5. of .", ["3.5*4=14.0", "so 14. ", "1. 2 ."], ["3.5*4=14.0 .", "\nso 14. .", "\n1. 2 ."]),
        ("extra-0", "<extra_0>", "a<extra_0>?", ["a <extra_0>", "b<extra_0>"], ["a<extra_0>", "b<extra_0>"]),
        ("extra-0", "ки", "ки", ["реки ки", "ки", "ки b"], ["рекики", "ки", "bки"]),
    ],
)
def test_a_part_of_a_word_and_a_mark_in_the_question_are_no_separators(form, separator, question, steps, read):
    words = reward_models.tokenizer()
    [reading] = read_steps(words, FORMATS[form], question, steps, separator)
    for number, position in enumerate(reading.positions, 1):
        before = words.decode(reading.ids[: position + 1])
        assert before.endswith(f"{question} {''.join(read[:number])}" if form == "ki" else "".join(read[:number]))
    assert len(reading.positions) == len(steps)


def test_a_template_that_rewrites_earlier_turns_is_read_step_by_step(tmp_path, models):
    config = ModelConfig(
        path=reward_models.save("causal", tmp_path / "m", template=reward_models.FORGETFUL), format="turns"
    )
    model = models.prepare(config)
    readings = read_steps(model.tokenizer, FORMATS["turns"], PROMPT, STEPS[0])
    for reading, score in zip(readings, models.score(config, [PROMPT], [STEPS[0]])[0], strict=True):
        with torch.no_grad():
            logits = model.model(torch.tensor([reading.ids])).logits[0, -1]
        signs = list(sign_ids(model.tokenizer, FORMATS["turns"]))
        assert score == pytest.approx(logits[signs].softmax(-1)[0].item(), abs=TOLERANCE)


# --- classifiers --------------------------------------------------------------------------------------------------


def test_a_single_logit_is_what_trl_computes(folders, models):
    """Against TRL's lines of ``_calculate_rewards`` for modules, for text and for messages."""
    path = folders["sequence-1"]
    model, words = AutoModelForSequenceClassification.from_pretrained(path), AutoTokenizer.from_pretrained(path)
    config = ModelConfig(path=path, format="classifier")
    texts = ["Step 1: 7 + 5 = 12\nAnswer: 12", "Answer: 9"]

    def by_trl(full):
        with torch.no_grad():
            inputs = words(text=full, return_tensors="pt", padding=True, padding_side="right", add_special_tokens=False)
            return model(**inputs).logits[:, 0].tolist()

    assert models.score(config, [PROMPT] * 2, texts) == pytest.approx(
        by_trl([PROMPT + text for text in texts]), abs=TOLERANCE
    )
    talk = [{"role": "user", "content": PROMPT}]
    said = [[{"role": "assistant", "content": text}] for text in texts]
    expected = by_trl([words.apply_chat_template(talk + one, tokenize=False) for one in said])
    assert models.score(config, [talk] * 2, said) == pytest.approx(expected, abs=TOLERANCE)


@pytest.mark.parametrize("pad", [None, 5])
def test_a_short_text_scores_the_same_beside_a_longer_one_whatever_pad_the_model_was_saved_with(
    pad, folders, models, tmp_path
):
    """transformers reads the score at the last token that is not the config's pad, which may be another."""
    shutil.copytree(folders["sequence-1"], tmp_path / "model")
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    (tmp_path / "model" / "config.json").write_text(json.dumps({**config, "pad_token_id": pad}))
    texts = ["Answer: 9", "Step 1: 7 + 5 = 12\nAnswer: 12"]
    known, other = (
        models.score(ModelConfig(path=str(path), format="classifier"), [PROMPT] * 2, texts)
        for path in (folders["sequence-1"], tmp_path / "model")
    )
    assert other == pytest.approx(known, abs=TOLERANCE)


def test_plain_text_ends_as_trls_reward_trainer_ends_it_where_the_model_says_so(folders, models, tmp_path):
    path = folders["sequence-1"]
    model, words = AutoModelForSequenceClassification.from_pretrained(path), AutoTokenizer.from_pretrained(path)
    rows = Dataset.from_list([{"prompt": PROMPT, "chosen": "Answer: 10", "rejected": f"Answer: 9{words.eos_token}"}])
    arguments = trl.RewardConfig(output_dir=str(tmp_path), use_cpu=True, bf16=False, report_to="none")
    (trained,) = trl.RewardTrainer(
        model=model, args=arguments, train_dataset=rows, processing_class=words
    ).train_dataset
    texts = [rows[0]["chosen"], rows[0]["rejected"]]
    read = [classifier_ids(words, PROMPT, text, end_token=True) for text in texts]
    assert read == [trained["chosen_ids"], trained["rejected_ids"]]
    assert read[0] == [*classifier_ids(words, PROMPT, texts[0]), words.eos_token_id]

    def score(folder, **options):
        return models.score(ModelConfig(path=str(folder), format="classifier", **options), [PROMPT], texts[:1])

    with torch.no_grad():
        ended = model(input_ids=torch.tensor(read[:1])).logits[:, 0].tolist()
    assert score(path, end_token=True) == pytest.approx(ended, abs=TOLERANCE)
    assert score(path) == score(path, end_token=False) != score(path, end_token=True)
    card = tmp_path / "card"
    shutil.copytree(path, card)
    (card / "README.md").write_text("---\ntags:\n- trl\n- reward-trainer\n---\n# A model\n")
    assert (score(card), score(card, end_token=False)) == (score(path, end_token=True), score(path))
    talk = [{"role": "user", "content": PROMPT}]
    assert classifier_ids(words, talk, "a", end_token=True) == classifier_ids(words, talk, "a")


def test_a_loaded_module_is_an_outcome_reward(folders):
    module = AutoModelForSequenceClassification.from_pretrained(folders["sequence-1"])
    reward = load_reward(module)
    assert (reward.name, reward.kind) == ("sequence-1", "outcome")
    spec = RewardConfig(name="path", kind="outcome", model={"path": folders["sequence-1"], "format": "classifier"})
    for one in score_group(group(), LINES, [module, spec]).scored:
        assert one.outcome_scores["sequence-1"] == pytest.approx(one.outcome_scores["path"], abs=TOLERANCE)
    module.config._name_or_path = "/nowhere"
    with pytest.raises(RewardError, match="tokenizer cannot be loaded from '/nowhere'"):
        load_reward(module)


def test_several_labels_give_log_odds_or_a_probability(folders, models):
    path = folders["sequence-3"]
    model, words = AutoModelForSequenceClassification.from_pretrained(path), AutoTokenizer.from_pretrained(path)
    with torch.no_grad():
        p = model(**words(PROMPT + "Answer: 9", return_tensors="pt")).logits[0].softmax(-1)[2]
    for output, expected in (("probability", p), ("score", torch.log(p / (1 - p)))):
        config = ModelConfig(path=path, format="classifier", label="good", output=output)
        assert models.score(config, [PROMPT], ["Answer: 9"]) == pytest.approx([expected.item()], abs=1e-4)
    two = ModelConfig(path=folders["sequence-2"], format="classifier", output="probability")
    assert 0 < models.score(two, [PROMPT], ["Answer: 9"])[0] < 1
    for label in (None, "best"):
        with pytest.raises(RewardError, match=r"label.* bad, so-so, good"):
            models.prepare(ModelConfig(path=path, format="classifier", label=label))


# --- as rewards ---------------------------------------------------------------------------------------------------


def group() -> Group:
    texts = ["".join(steps) for steps in STEPS]
    return Group(PROMPT, tuple(Rollout(tuple(range(len(t))), tuple(t), finished=False) for t in texts))


def test_step_scores_in_a_scored_group_and_their_reductions(folders):
    model = {"path": folders["token"], "format": "stepwise"}
    reductions = ("last", "min", "product")
    rewards = [RewardConfig(name=one, kind="outcome", model=model | {"reduce": one}) for one in reductions]
    scored = score_group(group(), LINES, [RewardConfig(name="prm", model=model), *rewards])
    for one in scored.scored:
        values = one.scores["prm"]
        assert one.outcome_scores["last"] == values[-1]
        assert one.outcome_scores["min"] == min(values)
        assert one.outcome_scores["product"] == pytest.approx(torch.tensor(values).prod().item())
    assert [len(one.scores["prm"]) for one in scored.scored] == [3, 1, 1]
    assert (reduced([0.5, None], "min"), reduced([], "last")) == (None, None)


def test_the_worker_scores_as_this_process_does_and_says_what_is_wrong(folders):
    heard = []
    worker = worker_here()
    worker.load(ModelConfig(path=folders["token"], format="stepwise"), heard.append)
    rewards = [
        RewardConfig(name="prm", model={"path": folders["token"], "format": "stepwise"}),
        RewardConfig(name="judge", kind="outcome", model={"path": folders["sequence-1"], "format": "classifier"}),
    ]
    there, here = score_group(group(), LINES, rewards, models=worker), score_group(group(), LINES, rewards)
    for one, other in zip(there.scored, here.scored, strict=True):
        assert one.rewards == pytest.approx(other.rewards, abs=TOLERANCE)
        assert one.outcome == pytest.approx(other.outcome, abs=TOLERANCE)
    assert heard[0]["busy"] == folders["token"]
    assert worker.busy == ""
    with pytest.raises(RewardError, match="there is no folder"):
        worker.score(ModelConfig(path="/nowhere", format="ki"), [PROMPT], [["a"]])


# --- from the shell -----------------------------------------------------------------------------------------------


def test_the_score_command_takes_a_reward_model(folders, tmp_path, capsys):
    file = tmp_path / "group.json"
    file.write_text(json.dumps(group().to_json()))
    given = ["score", "--group", str(file), "--method.pattern.regex", r"\n+", "--method.pattern.kind", "ends", "--json"]
    assert main([*given, "--reward-model", folders["token"]]) == 0
    shown = [[step["reward"] for step in row["steps"]] for row in json.loads(capsys.readouterr().out)["rollouts"]]
    model = RewardConfig(name="prm", model={"path": folders["token"], "format": "stepwise"})
    for row, scores in zip(shown, score_group(group(), LINES, [model]).step_rewards, strict=True):
        assert row == pytest.approx(scores, abs=1e-4)
    assert [main([*given, "--reward-model", folders["causal"], *form]) for form in ([], ["--format", "ki"])] == [2, 0]
