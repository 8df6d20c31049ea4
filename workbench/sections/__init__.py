"""The sections a configuration is made of: pydantic models with help texts and ranges, each in a small file.

They use the types of what they describe (``steps.StepPattern``, ``credit``'s schemes and names). Nothing here knows
which training methods there are (``training.methods``) nor how a whole configuration is read (``config``).
"""

from workbench.sections.credit import CreditConfig
from workbench.sections.environment import EnvironmentSection
from workbench.sections.optimiser import OptimiserSection
from workbench.sections.pattern import Pattern
from workbench.sections.policy import LoraConfig, PolicySection
from workbench.sections.prompt import PromptSection
from workbench.sections.rewards import (
    JudgeConfig,
    LabelFormat,
    ModelConfig,
    ModelFormat,
    MonteCarloConfig,
    Reduction,
    RewardConfig,
)
from workbench.sections.run import RunSection
from workbench.sections.sampling import SamplingConfig
from workbench.sections.section import Leaf, Section, leaves
from workbench.sections.shared import RUN_NAME, MethodSection, Origin, SharedConfig, run_name_of
from workbench.sections.task import TaskSection

__all__ = [
    "RUN_NAME",
    "CreditConfig",
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
    "RewardConfig",
    "RunSection",
    "SamplingConfig",
    "Section",
    "SharedConfig",
    "TaskSection",
    "leaves",
    "run_name_of",
]
