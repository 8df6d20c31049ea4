"""Pipelines: runs and data commands in sequence, each made of what earlier ones came to.

``plan`` parses the YAML, ``check`` sees whether all of it can work, ``pipeline`` starts, opens, stops and resumes one,
``drive`` is the process that goes through its stages, ``make`` that of a stage that makes rows. A pipeline is a
directory of the workspace; its runs are ordinary runs::

    <workspace>/pipelines/<id>/
    ├── pipeline.yaml    the stages as they are carried out, with absolute paths
    ├── status.json      RunStatus: ``step`` stages of ``total_steps`` are done
    ├── stages/          a small JSON file a stage: state, reason, times
    ├── data/            the rows that stages made, each file with its provenance
    └── log.txt          what the pipeline's own processes printed
"""

from workbench.runs.pipelines.pipeline import Pipeline, list_pipelines, open_pipeline, run_pipeline
from workbench.runs.pipelines.plan import Plan, Stage, read_plan, shipped
from workbench.runs.pipelines.progress import StageProgress

__all__ = [
    "Pipeline",
    "Plan",
    "Stage",
    "StageProgress",
    "list_pipelines",
    "open_pipeline",
    "read_plan",
    "run_pipeline",
    "shipped",
]
