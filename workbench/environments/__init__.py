"""Environments: who answers a policy's turns in an episode, built in or of a user's own, and how they are asked."""

from workbench.environments.episodes import ENVIRONMENTS, Environment, Episode, load_environment
from workbench.environments.protocol import Reply, TextEnvironment

__all__ = ["ENVIRONMENTS", "Environment", "Episode", "Reply", "TextEnvironment", "load_environment"]
