"""Policies: loading them, sampling groups from them, and what is measured with them. The package imports no torch."""
