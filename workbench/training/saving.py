"""``Resumable``: a mixin for any trainer whose checkpoints are whole or not there, and resume to the identical run.

Saving and resuming are transformers' own (``resume_from_checkpoint``). Added here is what they lack:

* a checkpoint is written aside, hashed and renamed (``rundir.checkpoints``), so that none is ever half there;
* a reference policy that training moves is saved and restored;
* an adapter over merged ones is saved as their sum, an adapter of the base, and resumed from its own part;
* the order of prompts is a function of the epoch, where TRL's sampler forgets on a resume what it has shuffled before.

TRL keeps no generation in a checkpoint: only between two generations does a resumed run do what the first one did.
Saves elsewhere are refused by the configuration; this module does not check. It knows nothing of rewards and credit.
"""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer, Trainer
from trl.trainer.utils import RepeatSampler

from workbench.errors import RunError
from workbench.files import no_room, read_json
from workbench.places import ADAPTER
from workbench.policies.load import A, Lora, save_stacked, trained_alone
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


@contextmanager
def sealed(trainer: Any, target: Path) -> Iterator[Path]:
    """A folder to write into, which ``trainer.seal`` makes ``target`` once all ranks are through; on an error nothing
    does.
    """
    aside, writes = target.parent / checkpoints.SAVING, trainer.args.should_save
    try:
        if writes:
            shutil.rmtree(aside, ignore_errors=True)
        trainer.accelerator.wait_for_everyone()
        yield aside / target.name
        trainer.accelerator.wait_for_everyone()  # the other ranks' random generators are files of it too
        if writes:
            (aside / target.name / _ARGUMENTS).unlink(missing_ok=True)
            trainer.seal(aside / target.name, target)
            shutil.rmtree(aside)
    except Exception as error:
        cause = (no_room(error, target.parent) or ["saving failed"])[0]
        shutil.rmtree(aside, ignore_errors=True)
        good, _ = checkpoints.newest_valid(target.parent)
        usable = f"{good.name} is whole" if good is not None else "there is no earlier one"
        raise RunError(
            f"{cause} at step {trainer.state.global_step}: {target.name} could not be written ({error}); {usable}"
        ) from error


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
        folder = Path(self.args.output_dir)
        with sealed(self, folder / f"checkpoint-{self.state.global_step}") as draft:
            self._aside = draft.parent
            try:
                super()._save_checkpoint(model, trial)
            finally:
                self._aside = None
            if self.args.should_save and getattr(self.args, "sync_ref_model", False) and self._reference is not None:
                weights = self.accelerator.unwrap_model(self._reference).named_parameters()
                save_file({name: p.detach().cpu().clone() for name, p in weights}, draft / _REFERENCE)
        if self.args.should_save and self.args.save_total_limit:
            checkpoints.prune(folder, self.args.save_total_limit)
        self.accelerator.wait_for_everyone()

    def seal(self, draft: Path, target: Path) -> None:
        """Make the files in ``draft`` a valid checkpoint at ``target``."""
        about = {
            "step": self.state.global_step,
            "ranks": self.accelerator.num_processes,
            "versions": {name: version(name) for name in _KEPT_VERSIONS},
            "tokens": getattr(self, "_total_train_tokens", None),
        }
        if self.under and (draft / ADAPTER).is_file():
            save_stacked(draft, self.under)
        checkpoints.seal(draft, target, about)

    def save_final(self, target: Path) -> None:
        """The weights (or adapter) and tokenizer as they are now, loadable by ``load_policy``; called by all ranks."""
        with sealed(self, target) as draft:
            self.save_model(str(draft))

    @property
    def _reference(self) -> Any:
        """The reference policy of a method that has one."""
        return getattr(self, "ref_model", None)

    # -- resuming ----------------------------------------------------------------------------------------------------

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        checkpoint = Path(resume_from_checkpoint)
        if (checkpoint / "optimizer.json").is_file():
            raise RunError(
                f"{checkpoint.name} is of an earlier version of the workbench, which kept the optimiser in another "
                f"form; start a new run with policy.path {str(checkpoint)!r}"
            )
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

    def _load_rng_state(self, checkpoint: str | None) -> None:
        super()._load_rng_state(checkpoint)
        if checkpoint is not None and hasattr(self, "_total_train_tokens"):  # which TRL's SFTTrainer begins anew
            self._total_train_tokens = read_json(Path(checkpoint) / checkpoints.MANIFEST)["tokens"]

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

    def save_final(self, target: Path) -> None:
        model = self.accelerator.unwrap_model(self.model)
        if hasattr(model, "merge_and_unload") and not (self.is_deepspeed_enabled or self.is_fsdp_enabled):
            self.model = model.merge_and_unload()
        super().save_final(target)
