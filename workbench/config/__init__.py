"""The configuration of one run: a tree of typed sections, pydantic models with help texts and ranges.

The sections are here for everybody below the training methods (``SharedConfig`` is a run whose method is not known
more closely); ``RunConfig``, which knows the methods there are, is beside them (``training.methods``).
Importing any of this loads neither torch, TRL nor gradio.
"""

from workbench.config.credit import CreditConfig, Pattern
from workbench.config.engine import EngineSection
from workbench.config.policy import LoraConfig, OptimiserSection, PolicySection, SamplingConfig
from workbench.config.reading import write_yaml
from workbench.config.rewards import (
    BeliefConfig,
    BeliefForm,
    JudgeConfig,
    LabelFormat,
    ModelConfig,
    ModelFormat,
    MonteCarloConfig,
    Reduction,
    RewardSection,
)
from workbench.config.section import OTHER_NAMES, Leaf, Section, leaves
from workbench.config.shared import RUN_NAME, MethodSection, Origin, RunSection, Sharding, SharedConfig, run_name_of
from workbench.config.task import EnvironmentSection, PromptSection, TaskSection

__all__ = [
    "OTHER_NAMES",
    "RUN_NAME",
    "BeliefConfig",
    "BeliefForm",
    "CreditConfig",
    "EngineSection",
    "EnvironmentSection",
    "JudgeConfig",
    "LabelFormat",
    "Leaf",
    "LoraConfig",
    "MethodSection",
    "ModelConfig",
    "ModelFormat",
    "MonteCarloConfig",
    "OptimiserSection",
    "Origin",
    "Pattern",
    "PolicySection",
    "PromptSection",
    "Reduction",
    "RewardSection",
    "RunSection",
    "SamplingConfig",
    "Section",
    "Sharding",
    "SharedConfig",
    "TaskSection",
    "leaves",
    "run_name_of",
    "write_yaml",
]
