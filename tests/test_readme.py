"""The README's Python does what it says: on the embedded task, and on rows and a chat model of one's own."""

import json
import re
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

import workbench as wb

README = Path(__file__).parents[1] / "README.md"
BLOCKS = [dedent(block) for block in re.findall(r"^ *```python\n(.*?)^ *```$", README.read_text("utf-8"), re.M | re.S)]


@pytest.mark.parametrize("code", BLOCKS, ids=["embedded", "own rows and chat model"])
def test_the_code_ends_with_a_heatmap(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    row = json.dumps({"question": wb.load_task("chain-arithmetic")[0].prompt, "answer": "1"})
    Path("problems.jsonl").write_text(f"{row}\n" * 3, encoding="utf-8")
    policy = wb.load_policy("tiny", device="cpu")
    policy.tokenizer.chat_template = "{% for m in messages %}{{ m.content }}\n{% endfor %}"
    policy.model.save_pretrained("my-chat-model")
    policy.tokenizer.save_pretrained("my-chat-model")
    *lines, shown = [line for line in code.splitlines() if line]
    assert len(lines) < 9
    names: dict[str, Any] = {}
    exec("\n".join(lines), names)
    assert repr(eval(shown, names)).startswith("<Heatmap: 8 rollouts, ")
