"""Reward models: classifiers that score whole completions, and process reward models that score every step.

``formats`` says what each public kind of process reward model reads and where its scores stand; ``model`` runs a model
over batches; ``load`` finds and reads one; ``reward`` makes a reward of it. ``client`` is for a process that must not
import torch and asks ``worker``, a child. The package itself imports no torch.
"""
