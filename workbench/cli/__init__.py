"""The command line: ``python -m workbench …``, the same functions as the page and the notebooks.

A command is a typed function (``cli.arguments``). Results go to standard output, as text or with ``--json`` as one
JSON document; progress and errors go to standard error.
"""

import inspect
import os
import sys
from collections.abc import Callable, Sequence

from workbench.assets import load_example
from workbench.cli import checks, data, groups, page, runs
from workbench.cli.arguments import Result, read_arguments
from workbench.errors import ConfigError, WorkbenchError, did_you_mean, redact
from workbench.files import encode
from workbench.views.cards import visible

__all__ = ["main"]

EXAMPLES = {
    "iterative": "Train policy and reward model in turns (DeepSeekMath, algorithm 1).",
    "phantom": "Train on groups without a right answer, and with a gate that leaves them out.",
    "prm": "Label steps by sampling, train a process reward model, train the policy on it (Math-Shepherd).",
    "rlhf": "Demonstrations, pairs, a reward model, PPO (InstructGPT).",
}
"""Programs of ``examples/`` that are commands."""
COMMANDS: dict[str, Callable[..., Result]] = {
    "app": page.app,
    "sample": groups.sample,
    "score": groups.score,
    "step-values": groups.step_values,
    "preflight": checks.preflight,
    "probe": checks.probe,
    "task": data.task,
    "rollouts": data.rollouts,
    "check-reward": checks.check_reward,
    "check-parity": checks.check_parity,
    "pairs": data.pairs,
    "demonstrations": data.demonstrations,
    "difficulty": data.difficulty,
    "mix": data.mix,
    "train": runs.train,
    "resume": runs.resume,
    "runs": runs.list_runs,
    "runs show": runs.show_run,
    "runs stop": runs.stop_run,
    "compare": runs.compare,
    "export": runs.export,
    "recipes": runs.list_recipes,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    0 is success, 1 a run that failed, 2 bad usage or any error of ``workbench.errors``, 130 an interrupt.
    """
    words = sys.argv[1:] if argv is None else list(argv)
    try:
        if words and words[0] in EXAMPLES:
            return int(load_example(words[0]).main(words[1:]))
        if not words or words[0] in ("-h", "--help"):
            print(usage())
            return 0 if words else 2
        code = run(words)
        sys.stdout.flush()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader, `head` say, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (WorkbenchError, OSError) as error:  # OSError: a file to write that cannot be
        print(f"error: {visible(redact(str(error)))}", file=sys.stderr)
        return 2
    return code


def run(words: Sequence[str]) -> int:
    """Run the command that the first word, or the first two, name, print what it came to and return its exit code."""
    name = next((name for n in (2, 1) if (name := " ".join(words[:n])) in COMMANDS), None)
    if name is None:
        raise ConfigError(f"there is no command {words[0]!r}{did_you_mean(words[0], [*COMMANDS, *EXAMPLES])}")
    arguments = read_arguments(name, COMMANDS[name], words[len(name.split()) :])
    as_json = arguments["as_json"]
    if name != "app":  # which prints its link while it runs
        del arguments["as_json"]
    result = COMMANDS[name](**arguments)
    if result.data is not None:
        print(encode(result.data).decode() if as_json else result.text())
    result.write()
    return result.code


def usage() -> str:
    """Return the list of commands."""
    summaries = {name: (inspect.getdoc(command) or "").partition("\n")[0] for name, command in COMMANDS.items()}
    lines = [f"  {name:15} {summary}" for name, summary in {**summaries, **EXAMPLES}.items()]
    return "\n".join(["usage: python -m workbench COMMAND [--FLAG VALUE ...]; COMMAND --help lists its flags", *lines])
