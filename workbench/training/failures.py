"""Why a run failed, in one sentence that names the step, the cause and the next thing to do."""

from __future__ import annotations

import errno
from collections.abc import Iterator

import torch

from workbench.config import RunConfig
from workbench.errors import RewardError, WorkbenchError

_NO_MEMORY = ("out of memory", "can't allocate memory", "CUBLAS_STATUS_ALLOC_FAILED", "cannot allocate memory")
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def reason(error: BaseException, config: RunConfig, step: int | None) -> str:
    """``step`` is the one that was under way, None before the first."""
    where = "while loading" if step is None else f"at step {step}"
    if is_out_of_memory(error):
        return f"out of memory {where}; {smaller(config)}"
    text = str(error) if isinstance(error, WorkbenchError) else f"{type(error).__name__}: {error}"
    if is_disk_full(error) and not text.startswith("the disk is full"):
        return f"the disk is full {where}: {text}; free some space and resume the run"
    if isinstance(error, RewardError) and step is not None:
        return f"{where}: {text}"
    return text


def is_out_of_memory(error: BaseException) -> bool:
    return any(
        isinstance(one, (torch.OutOfMemoryError, MemoryError))
        or (isinstance(one, RuntimeError) and any(sign in str(one) for sign in _NO_MEMORY))
        for one in _causes(error)
    )


def is_disk_full(error: BaseException) -> bool:
    return any(
        (isinstance(one, OSError) and one.errno in _NO_SPACE) or "is the disk full?" in str(one)
        for one in _causes(error)
    )


def smaller(config: RunConfig) -> str:
    """What takes less memory, with what it is now."""
    sampling, training = config.sampling, config.training
    batch = training.prompts_per_step * sampling.num_generations // training.ranks
    return (
        f"try smaller G (sampling.num_generations, now {sampling.num_generations}), shorter completions "
        f"(sampling.max_completion_length, now {sampling.max_completion_length}), fewer prompts per step "
        f"(training.prompts_per_step, now {training.prompts_per_step}) or a smaller training.micro_batch_size "
        f"(now {training.micro_batch_size or batch})"
    )


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__
