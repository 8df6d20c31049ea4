"""Write rows from standard input as the traces of verifiers 0.4.0, by its own types and its own writer.

``.venv-engines/verifiers/bin/python benchmarks/traces.py FOLDER``; it imports nothing of this package.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from verifiers.v1.episode import EnvInfo, GroupInfo, WireEpisode
from verifiers.v1.graph import MessageNode
from verifiers.v1.task import WireTaskData
from verifiers.v1.trace import AgentInfo, TraceTask, WireAgentConfig, WireTrace
from verifiers.v1.types import AssistantMessage, UserMessage
from verifiers.v1.utils.trace_store import write_episode

for line in sys.stdin:
    row = json.loads(line)
    data = WireTaskData(idx=row["group"], prompt=row["prompt"], **row["columns"])
    task = TraceTask[WireTaskData](type="Task", data=data)
    asked = MessageNode(
        message=UserMessage(content=row["prompt"]), token_ids=row["prompt_ids"], mask=[False] * len(row["prompt_ids"])
    )
    answer = MessageNode(
        parent=0,
        message=AssistantMessage(content=row["text"]),
        sampled=True,
        token_ids=row["ids"],
        mask=[True] * len(row["ids"]),
        logprobs=row["logprobs"],
        advantages=row["advantages"],
    )
    trace = WireTrace(task=task, agent=AgentInfo(config=WireAgentConfig()), nodes=[asked, answer], ok=True)
    [branch] = trace.branches
    assert list(branch.advantages)[-len(row["ids"]) :] == row["advantages"]  # what prime-rl's trainer is sent
    group = GroupInfo(id=str(row["group"]))
    write_episode(Path(sys.argv[1]), WireEpisode(env=EnvInfo(id="run"), task=task, group=group, traces=[trace]))
