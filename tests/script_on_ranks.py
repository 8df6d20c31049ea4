"""Started once a rank: an exported ``train.py``; what its loss saw and what it logged: ``<folder>/<rank>.json``."""

import json
import os
import runpy
import sys
import warnings
from pathlib import Path
from typing import Any

import torch

from tests.train_on_ranks import seen_by_loss
from workbench.training.trainer import ProcessGRPOTrainer


def main(script: Path, folder: Path) -> None:
    torch.set_num_threads(1)
    rows: list[list[Any]] = []
    original = ProcessGRPOTrainer._compute_loss

    def kept(self: ProcessGRPOTrainer, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        rows.extend(seen_by_loss(inputs))
        return original(self, model, inputs)

    ProcessGRPOTrainer._compute_loss = kept  # type: ignore[method-assign]
    trainer = runpy.run_path(str(script))["main"]()
    seen = {"rows": rows, "logged": trainer.state.log_history[0], "ranks": trainer.accelerator.num_processes}
    (folder / f"{os.environ['RANK']}.json").write_text(json.dumps(seen))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(Path(sys.argv[1]), Path(sys.argv[2]))
