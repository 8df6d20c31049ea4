"""The page: ``handlers`` say what happens (state in, view out), ``tabs`` hold the widgets, ``app`` serves it."""

import os
import sys

# Before anything here imports gradio: no usage statistics, no look-ups of newer versions.
os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
# Where Gradio finds the package mcp, that imports jsonschema, which spends seconds on the grammar of a string format
# that nothing here checks; without the grammar's package it leaves that format alone.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
