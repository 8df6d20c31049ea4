"""Loading weights without progress bars and warnings that nobody can act on."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from logging import LogRecord, getLogger
from pathlib import Path

RENAMED = "`(is_)?gradient_checkpointing"
"""How the warning begins that transformers 5 gives TRL 1.16 and PEFT, for names that it is renaming."""


@contextmanager
def quiet_loading(where: str | Path) -> Iterator[None]:
    """No progress bar while a folder's weights are read, no warning that is meant for TRL and PEFT, and no table of
    tensors that are missing or left over: whoever loads compares them with what it needs.

    A download, which is what anything but a folder is, still says how far it is.
    """
    from transformers.utils import logging

    shown = Path(where).is_dir() and logging.is_progress_bar_enabled()
    if shown:
        logging.disable_progress_bar()
    logger = getLogger("transformers.modeling_utils")
    logger.addFilter(_is_no_load_report)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", RENAMED, FutureWarning)
            yield
    finally:
        logger.removeFilter(_is_no_load_report)
        if shown:
            logging.enable_progress_bar()


def _is_no_load_report(record: LogRecord) -> bool:
    return "LOAD REPORT" not in record.getMessage()
