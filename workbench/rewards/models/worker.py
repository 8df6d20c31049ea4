"""The reward-model worker, a child process that holds models: ``python -m workbench.rewards.models.worker``.

It exists so that the page's process never imports torch. ``client.ModelWorker`` speaks to it.
"""

from __future__ import annotations

from typing import Any

from workbench.config import ModelConfig
from workbench.errors import RewardError
from workbench.rewards.models.local import LocalModels
from workbench.sandbox.child import Emitter, heartbeat, serve
from workbench.weights import give_memory_back, is_out_of_memory


def handle(request: dict[str, Any], emit: Emitter, models: LocalModels) -> dict[str, Any]:
    """``{"config"}`` alone loads it, ``prompts`` with ``steps`` or ``completions`` scores; see ``ModelWorker``."""
    config = ModelConfig.model_validate(request["config"])
    try:
        with heartbeat(emit, lambda seconds: {"busy": config.path, "seconds": seconds}):
            if "steps" in request:
                return {"scores": models.score_steps(config, request["prompts"], request["steps"])}
            if "completions" in request:
                return {"scores": models.score_texts(config, request["prompts"], request["completions"])}
            models.prepare(config)
            return {}
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        give_memory_back(error)
        raise RewardError(f"out of memory with {config.path!r}; use a smaller batch_size than it has") from None


def main() -> None:
    models = LocalModels()
    serve(lambda request, emit: handle(request, emit, models))


if __name__ == "__main__":
    main()
