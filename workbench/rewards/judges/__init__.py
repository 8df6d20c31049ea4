"""Judges: language models at OpenAI-compatible endpoints that score steps or whole completions by a rubric.

``asking`` writes what a judge is asked and ``reading`` reads what it says; ``calls`` sends requests and ``store`` keeps
answers and counts. ``judge`` puts these together, in a process of its own (``worker``) that ``client`` speaks to:
neither the page nor a sealed worker opens a connection. ``reward`` makes a reward function of it.

One request scores a whole completion, all its steps included: the judge sees each step in its context, and the prompt
is paid for once. Steps are numbered in the request and matched by number in the answer, so that one left out costs that
step's score alone.
"""
