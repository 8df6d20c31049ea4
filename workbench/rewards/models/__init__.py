"""Reward models: classifiers that score whole completions, and process reward models that score every step.

``formats`` says what each public kind of process reward model reads and where its scores stand; ``model`` runs a model
over batches; ``load`` finds, reads and keeps them. The package itself imports no torch.
"""
