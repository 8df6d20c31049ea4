"""Why a run failed, in one sentence that names the step, the cause and the next thing to do."""

from __future__ import annotations

from workbench.config import SharedConfig
from workbench.errors import RewardError, WorkbenchError
from workbench.files import no_room
from workbench.weights import is_out_of_memory


def reason(error: BaseException, config: SharedConfig, step: int | None, again: str) -> str:
    """``step`` is the one that was under way, None before the first; ``again`` how the run can be had after all."""
    where = "while loading" if step is None else f"at step {step}"
    said = step is None and isinstance(error, WorkbenchError)  # of weights that do not fit: batches are not to blame
    if is_out_of_memory(error) and not said:
        return f"out of memory {where}; {config.method.less_memory(config)}"
    text = str(error) if isinstance(error, WorkbenchError) else f"{type(error).__name__}: {error}"
    if full := no_room(error):
        text = text if full[0] in text else f"{full[0]} {where}: {text}"
        return f"{text}; {full[1]} and {again}"
    if isinstance(error, RewardError) and step is not None:
        return f"{where}: {text}"
    return text
