"""Training: ``ProcessGRPOTrainer``, its configuration, and the process of one run. The only package that imports trl.

The package itself imports nothing, so that the child process reports a missing library like any other failure.
"""
