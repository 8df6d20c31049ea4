"""The process of one training run: reads the run's directory, trains by its method, records metrics and rollouts.

The package itself imports nothing, so that the process reports a missing library like any other failure.
"""
