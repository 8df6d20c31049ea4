"""``Resumable``: a mixin for any trainer whose checkpoints are whole or not there, and resume to the identical run.

Saving and resuming are transformers' own (``resume_from_checkpoint``). Added here is what they lack:

* a checkpoint is written aside, hashed and renamed (``rundir.checkpoints``), so that none is ever half there;
* optimiser, scheduler and random generators are kept as safetensors and JSON , not as pickles
  (DeepSpeed and FSDP keep their own formats for sharded states);
* a reference policy that training moves is saved and restored;
* an adapter over merged ones is saved as their sum, an adapter of the base, and resumed from its own part;
* the order of prompts is a function of the epoch, where TRL's sampler forgets on a resume what it has shuffled before.

TRL keeps no generation in a checkpoint: only between two generations does a resumed run do what the first one did.
Saves elsewhere are refused by the configuration; this module does not check. It knows nothing of rewards and credit.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from peft import PeftModel
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer, Trainer
from trl.trainer.utils import RepeatSampler

from workbench.errors import RunError
from workbench.files import no_room
from workbench.places import ADAPTER
from workbench.policies.stacked import A, Lora, save_stacked, trained_alone
from workbench.rundir import checkpoints

_REFERENCE = "reference.safetensors"
_ARGUMENTS = "training_args.bin"  # a pickle; a run's arguments are in its run.yaml
_KEPT_VERSIONS = ("torch", "trl", "transformers", "accelerate", "peft", "safetensors")


class EpochSampler(RepeatSampler):
    """TRL's sampler with the order of epoch ``epoch``: that of TRL's own after as many epochs from the start."""

    epoch = 0

    def __iter__(self) -> Iterator[int]:
        if self.shuffle:
            self.generator.manual_seed(self.seed)
            for _ in range(self.epoch):
                torch.randperm(self.num_samples, generator=self.generator)
        yield from super().__iter__()


class Resumable(Trainer):
    """A mixin over a trainer of transformers or TRL; ``args.save_total_limit`` is how many checkpoints are kept."""

    model: Any
    under: Sequence[Lora] = ()
    """Adapters in the policy's weights, over which this one's is trained."""
    _epoch_sampler: EpochSampler | None = None
    _aside: Path | None = None

    # -- saving ------------------------------------------------------------------------------------------------------

    def _get_output_dir(self, trial: Any) -> str:
        return str(self._aside) if self._aside is not None else super()._get_output_dir(trial)

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        folder, step = Path(self.args.output_dir), self.state.global_step
        name = f"checkpoint-{step}"
        self._aside = folder / checkpoints.SAVING
        try:
            if self.args.should_save:
                shutil.rmtree(self._aside, ignore_errors=True)
            self.accelerator.wait_for_everyone()
            super()._save_checkpoint(model, trial)
            self.accelerator.wait_for_everyone()  # the other ranks' random generators are files of it too
            if self.args.should_save:
                draft = self._aside / name
                (draft / _ARGUMENTS).unlink(missing_ok=True)
                if getattr(self.args, "sync_ref_model", False) and self._reference is not None:
                    weights = self.accelerator.unwrap_model(self._reference).named_parameters()
                    save_file({name: p.detach().cpu().clone() for name, p in weights}, draft / _REFERENCE)
                self.seal(draft, folder / name)
                shutil.rmtree(self._aside)
                if self.args.save_total_limit:
                    checkpoints.prune(folder, self.args.save_total_limit)
        except Exception as error:
            shutil.rmtree(self._aside, ignore_errors=True)
            raise not_saved(name, step, folder, error) from error
        finally:
            self._aside = None
        self.accelerator.wait_for_everyone()

    def seal(self, draft: Path, target: Path) -> None:
        """Make the files in ``draft`` a valid checkpoint at ``target``."""
        about = {
            "step": self.state.global_step,
            "ranks": self.accelerator.num_processes,
            "versions": {name: version(name) for name in _KEPT_VERSIONS},
        }
        if self.under and (draft / ADAPTER).is_file():
            save_stacked(draft, self.under)
        checkpoints.seal(draft, target, about)

    def save_final(self, target: Path) -> None:
        """The weights (or adapter) and tokenizer as they are now, loadable by ``load_policy``; called by all ranks."""
        draft = target.with_name(checkpoints.SAVING)
        try:
            if self.args.should_save:
                shutil.rmtree(draft, ignore_errors=True)
            self.accelerator.wait_for_everyone()
            self.save_model(str(draft))
            if self.args.should_save:
                (draft / _ARGUMENTS).unlink(missing_ok=True)
                self.seal(draft, target)
        except Exception as error:
            shutil.rmtree(draft, ignore_errors=True)
            raise not_saved(target.name, self.state.global_step, target.parent, error) from error

    @property
    def _reference(self) -> Any:
        """The reference policy of a method that has one."""
        return getattr(self, "ref_model", None)

    @property
    def _states_are_ours(self) -> bool:
        return not (self.is_deepspeed_enabled or self.is_fsdp_enabled)

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        if not self._states_are_ours:
            super()._save_optimizer_and_scheduler(output_dir)
        elif self.args.should_save:
            save_state(Path(output_dir), "optimizer", self.optimizer.state_dict())
            save_state(Path(output_dir), "scheduler", self.lr_scheduler.state_dict())

    def _save_rng_state(self, output_dir: str) -> None:
        os.makedirs(output_dir, exist_ok=True)  # this rank may be here before the first one has made it
        states = {"python": random.getstate(), "numpy": np.random.get_state(), "cpu": torch.random.get_rng_state()}
        if torch.cuda.is_available():
            states["cuda"] = torch.cuda.random.get_rng_state()
        if hasattr(self, "_total_train_tokens"):  # TRL's count, which its SFTTrainer begins anew on a resume
            states["tokens"] = self._total_train_tokens
        save_state(Path(output_dir), f"rng-{self.accelerator.process_index}", states)

    # -- resuming ----------------------------------------------------------------------------------------------------

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        checkpoint = Path(resume_from_checkpoint)
        self._refuse_other_words(checkpoint)
        trained = {name: weight.dtype for name, weight in self.model.named_parameters() if weight.requires_grad}
        alone: AbstractContextManager[Path] = nullcontext(checkpoint)
        if self.under and (checkpoint / ADAPTER).is_file():  # without the merged ones that are in it
            end = A.replace(".weight", ".default.weight")
            ours = (name for name in trained if name.endswith(end))
            ranks = {name.removesuffix(end): len(self.model.get_parameter(name)) for name in ours}
            alone = trained_alone(checkpoint, ranks)
        with alone as folder:
            super()._load_from_checkpoint(str(folder), model)
        for name, dtype in trained.items():  # PEFT reads an adapter in float32, which TRL trains in bfloat16 on 4 bits
            weight = self.model.get_parameter(name)
            weight.data = weight.data.to(dtype)
        if (reference := checkpoint / _REFERENCE).is_file() and self._reference is not None:
            self.accelerator.unwrap_model(self._reference).load_state_dict(load_file(reference), strict=False)

    def _refuse_other_words(self, checkpoint: Path) -> None:
        """Raise RunError if the tokenizer is not the one that the checkpoint's weights have learnt with.

        The policy's files may have changed since: another version of what a Hub id or ``tiny`` names.
        """
        if (checkpoint / "tokenizer_config.json").is_file():
            saved = AutoTokenizer.from_pretrained(checkpoint, local_files_only=True)
            ours: Any = getattr(self.processing_class, "tokenizer", self.processing_class)  # a processor has one
            if saved.get_vocab() != ours.get_vocab():
                raise RunError(
                    f"{checkpoint.name} was saved with another tokenizer than its policy has now: the policy's files "
                    f"have changed since; start a new run with policy.path {str(checkpoint)!r}, which holds both"
                )

    def load_weights(self, checkpoint: Path) -> None:
        """Load a checkpoint's weights alone, when nothing is left to train."""
        self._load_from_checkpoint(str(checkpoint))

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)  # what is not ours, TRL's entropy controller among it
        if checkpoint is not None and (Path(checkpoint) / "optimizer.json").is_file():
            self.optimizer.load_state_dict(load_state(Path(checkpoint), "optimizer"))
            self.lr_scheduler.load_state_dict(load_state(Path(checkpoint), "scheduler"))

    def _load_rng_state(self, checkpoint: str | None) -> None:
        name = f"rng-{self.accelerator.process_index}"
        if checkpoint is None or not (Path(checkpoint) / f"{name}.json").is_file():
            super()._load_rng_state(checkpoint)
            return
        states = load_state(Path(checkpoint), name)
        random.setstate(states["python"])
        np.random.set_state(states["numpy"])
        torch.random.set_rng_state(states["cpu"])
        if "tokens" in states:
            self._total_train_tokens = states["tokens"]
        if "cuda" in states and torch.cuda.is_available():
            torch.cuda.random.set_rng_state(states["cuda"])

    # -- the order of prompts ----------------------------------------------------------------------------------------

    def _get_train_sampler(self, dataset: Any = None) -> Any:
        sampler = super()._get_train_sampler(dataset)
        if type(sampler) is not RepeatSampler:
            return sampler
        self._epoch_sampler = EpochSampler(
            data_source=sampler.data_source,
            mini_repeat_count=sampler.mini_repeat_count,
            batch_size=sampler.batch_size,
            repeat_count=sampler.repeat_count,
            shuffle=sampler.shuffle,
            seed=sampler.seed,
        )
        return self._epoch_sampler

    def _run_epoch(self, *args: Any, **kwargs: Any) -> None:
        if self._epoch_sampler is not None:
            self._epoch_sampler.epoch = kwargs["epoch"]
        super()._run_epoch(*args, **kwargs)


class MergedAtTheEnd(Resumable):
    """``Resumable`` for classifiers: an adapter is put into the weights, so that any loader reads what is saved."""

    model: Any  # transformers'
    in_full: Callable[[], Any] | None = None
    """Loads the weights that the adapter is put into, where those that it was trained on are quantised."""

    def save_final(self, target: Path) -> None:
        model = self.accelerator.unwrap_model(self.model)
        if hasattr(model, "merge_and_unload") and self._states_are_ours:
            if self.in_full is not None and self.args.should_save:
                model = on_full_weights(model, self.in_full())
            self.model = model.merge_and_unload()
        super().save_final(target)


def on_full_weights(trained: Any, full: Any) -> Any:
    """Return the adapter of ``trained``, and what it has of whole modules, on ``full``."""
    with TemporaryDirectory() as aside:
        trained.save_pretrained(aside)
        full.config.pad_token_id = trained.config.pad_token_id  # which TRL sets, and a classifier reads by
        return PeftModel.from_pretrained(full, aside)


def not_saved(name: str, step: int, folder: Path, error: Exception) -> RunError:
    """Explain why ``name`` could not be saved after ``step``, and what there is to go on from."""
    good, _ = checkpoints.newest_valid(folder)
    usable = f"{good.name} is whole" if good is not None else "there is no earlier one"
    cause = (no_room(error) or ["saving failed"])[0]
    return RunError(f"{cause} at step {step}: {name} could not be written ({error}); {usable}")


def save_state(folder: Path, name: str, state: Any) -> None:
    """Write a state as tensors and JSON. Raises TypeError for a state that holds anything else."""
    tensors: dict[str, torch.Tensor] = {}
    packed = _pack(state, tensors)
    save_file(tensors, folder / f"{name}.safetensors")
    (folder / f"{name}.json").write_text(json.dumps(packed), encoding="utf-8")


def load_state(folder: Path, name: str) -> Any:
    tensors = load_file(folder / f"{name}.safetensors")
    return _unpack(json.loads((folder / f"{name}.json").read_text(encoding="utf-8")), tensors)


def _pack(value: Any, tensors: dict[str, torch.Tensor]) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (torch.Tensor, np.ndarray)):
        kind = "tensor" if isinstance(value, torch.Tensor) else "array"
        tensor = value if isinstance(value, torch.Tensor) else torch.from_numpy(value)
        name = str(len(tensors))
        tensors[name] = tensor.detach().cpu().contiguous().clone()  # one storage each, as safetensors wants
        return {kind: name}
    if isinstance(value, (list, tuple)):
        return {type(value).__name__: [_pack(item, tensors) for item in value]}
    if isinstance(value, dict):
        return {"dict": [[_pack(key, tensors), _pack(item, tensors)] for key, item in value.items()]}
    raise TypeError(f"a {type(value).__name__} cannot be kept in a checkpoint")


def _unpack(packed: Any, tensors: dict[str, torch.Tensor]) -> Any:
    if not isinstance(packed, dict):
        return packed
    ((kind, content),) = packed.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "array":
        return tensors[content].numpy()
    if kind == "dict":
        return {_unpack(key, tensors): _unpack(item, tensors) for key, item in content}
    items = [_unpack(item, tensors) for item in content]
    return tuple(items) if kind == "tuple" else items
