"""Runs whose weights are somebody else's: on a server that speaks the Tinker protocol."""
