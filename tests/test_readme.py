"""The README's Python does what it says: on the embedded task, and on rows and a chat model of one's own."""

import json
import re
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

import workbench as wb
from workbench.views.heatmap import Heatmap

README = Path(__file__).parents[1] / "README.md"
BLOCKS = [dedent(block) for block in re.findall(r"^ *```python\n(.*?)^ *```$", README.read_text("utf-8"), re.M | re.S)]


@pytest.mark.parametrize("code", BLOCKS, ids=["embedded", "own rows and chat model"])
def test_the_code_ends_with_a_heatmap(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [{"question": wb.load_task("chain-arithmetic")[n].prompt, "answer": str(n)} for n in range(3)]
    Path("problems.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    policy = wb.load_policy("tiny", device="cpu")
    policy.tokenizer.chat_template = "{% for m in messages %}{{ m.content }}\n{% endfor %}"
    policy.model.save_pretrained("my-chat-model")
    policy.tokenizer.save_pretrained("my-chat-model")
    assert len([line for line in code.splitlines() if line]) < 10
    *lines, shown = [line for line in code.splitlines() if line]
    names: dict[str, Any] = {}
    exec("\n".join(lines), names)
    heatmap = eval(shown, names)
    assert isinstance(heatmap, Heatmap)
    assert repr(heatmap).startswith("<Heatmap: 8 rollouts, ")
    assert "no spread" not in repr(heatmap)
