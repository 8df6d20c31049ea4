"""Secrets taken out of what is shown or kept, and everything else left alone."""

import pytest

from workbench.errors import redact, redact_known
from workbench.rundir import RunDir
from workbench.training.methods import RunConfig
from workbench.ui.handlers.scoring import Note

HF = "hf_" + "aB3" * 11
SECRETS = [
    HF,
    "sk-" + "a1B2" * 12,
    "sk-proj-" + "a1B2" * 12,
    "sk-ant-api03-" + "a1B2-" * 12,
    "ghp_" + "a1B2" * 9,
    "github_pat_" + "a1B2" * 9,
    "AKIA" + "ABCD" * 4,
    "xoxb-123456789012-abcdef",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3In0.dBjftJeZ4CVPmB92K27uhb",
]


@pytest.mark.parametrize("secret", SECRETS)
def test_known_formats_are_found_in_any_text(secret: str) -> None:
    for text in ("{}", "token is {}.", 'key="{}"\n', "https://api.example/?k={}&b=1", "[{}]"):
        assert redact_known(text.format(secret), {}) == text.format("[redacted]")


@pytest.mark.parametrize(
    ("text", "redacted"),
    [
        ("https://ada:pass@word.example/x", "https://[redacted]@word.example/x"),
        ("postgres://ada:hunter2@db:5432/a", "postgres://[redacted]@db:5432/a"),
        ("GET /?token=abcd1234 HTTP/1.1", "GET /?token=[redacted] HTTP/1.1"),
        ("WANDB_API_KEY=abcd1234", "WANDB_API_KEY=[redacted]"),
        ("{'password': 'hunter2', 'a': 1}", "{'password': '[redacted]', 'a': 1}"),
        ("Authorization: Bearer abcdefghijkl", "Authorization: Bearer [redacted]"),
        ("-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----", "[redacted]"),
    ],
)
def test_named_secrets_are_found_in_logs(text: str, redacted: str) -> None:
    assert redact(text, {}) == redacted


@pytest.mark.parametrize(
    "text",
    [
        "def sk(token, step):\n    return 1.0 if token == '=' else 0.0",
        "task-completion-rate-over-everything, risk-adjusted-reward-of-a-step",
        "hf_hub_download(repo_id)",
        "max_tokens=128, pad_token: 0",
        "see https://huggingface.co/a/b@main and me@example.org",
        "num_generations=8 secret of success",
        "hf_token: there is no such field",
    ],
)
def test_ordinary_text_is_left_alone(text: str) -> None:
    assert redact(text, {}) == text
    assert redact_known(text, {}) == text


def test_the_environments_own_secrets_are_found_whatever_they_look_like() -> None:
    environment = {"MY_TOKEN": "plain old words", "TOKENIZERS_PARALLELISM": "false false", "PIN_TOKEN": "1234"}
    text = "plain old words, false false, 1234"
    assert redact_known(text, environment) == "[redacted], false false, 1234"


def test_nothing_kept_or_shown_of_a_run_holds_a_secret(tmp_path) -> None:
    run = RunDir.create(tmp_path, RunConfig(name="a"), {"step_correctness": f"KEY = '{HF}'\n"})
    run.set_status("failed", f"401 for https://me:{HF}@hub.example")
    run.log.write_text(f"loading\nHF_TOKEN={HF}\npassword: hunter22\n")
    assert run.log_tail() == ["loading", "HF_TOKEN=[redacted]", "password: [redacted]"]
    kept = [path.read_bytes() for path in run.path.rglob("*") if path.is_file() and path != run.log]
    assert len(kept) >= 5
    assert HF.encode() not in b"".join(kept)
    assert HF not in str(Note(f"cannot read {HF}", detail=HF).to_json())
