"""The workbench's API: five functions for scripts, through ``gradio_client`` or any HTTP client; no other is public.

    from gradio_client import Client
    client = Client("http://127.0.0.1:7860/", headers={"Authorization": "Bearer <token>"})
    prompt = "Start with 7, add 5, multiply by 2, subtract 4, add 9.\n"
    group = client.predict(prompt=prompt, num_generations=4, api_name="/sample")
    scored = client.predict(group, rewards=["step_correctness"], api_name="/score")

The token is the one in the link that the terminal printed, and in the workspace's ``.token``. Plain JSON values in and
out; the same functions as the notebooks', with the workbench's own workers and runs. Types and descriptions are what
``client.view_api()`` and an MCP client are shown. What is wrong with a request is a WorkbenchError, as in a notebook.
"""

from collections.abc import Callable, Sequence
from typing import Any

import gradio as gr

from workbench import credit as credits
from workbench.config import Section
from workbench.data import group_of
from workbench.errors import ConfigError, RewardError, did_you_mean, quote, redact_known
from workbench.rewards import BUILTINS, RewardConfig, score_group
from workbench.runs import list_runs, open_run
from workbench.schema import Example, Group
from workbench.training.methods import RunConfig
from workbench.ui.handlers.example import parse_prompt
from workbench.ui.handlers.session import NO_EVENT, BackgroundWork, Services, progress_text
from workbench.views.export import credit_data

DEFAULT_REGEX = r"(?m)^(?:Step \d+|Answer):"
WORKER = "api"
"""Scripts share one sandbox, apart from every tab's."""
STATUS_SECONDS = 1.0
MOST_TOKENS = 64 * 32_768
"""Of a group that is credited, each completion counted as the longest: as many as the largest group that is sampled."""
LISTED = 200
RUN_COLUMNS = ("state", "reason", "step", "total_steps", "created", "task", "policy", "scheme")
"""What ``list_runs`` answers of a run beside its name; null in one that cannot be read."""


class _CreditRequest(Section):
    """Arguments of ``assign_credit``: a request is JSON, and may hold anything."""

    step_rewards: list[list[float | None]]
    step_ends: list[list[int]]
    lengths: list[int]
    scheme: str
    outcome_rewards: list[float | None] | None
    options: dict[str, Any]


class Api:
    """The functions, over a page's services."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def register(self, *, mcp: bool = False) -> None:
        """Make the endpoints, inside a ``gr.Blocks``.

        With ``mcp``, those that sample or run a reward stay callable by scripts but are no tool of the MCP server,
        which then can read and compute only. Its tools wait in no queue, to which Gradio's server would connect as a
        client without the caller's token.
        """
        acting = "undocumented" if mcp else "public"
        gr.api(self.sample, api_visibility=acting, concurrency_limit=4, concurrency_id="sampling")
        gr.api(self.score, api_visibility=acting, concurrency_limit=2)
        for function in (self.assign_credit, self.list_runs, self.read_metrics):
            gr.api(function, queue=not mcp, concurrency_limit=4)

    def sample(  # type: ignore[misc]  # it yields such; Gradio takes the hint for each
        self,
        prompt: str,
        policy: str = "tiny",
        num_generations: int = 8,
        max_completion_length: int = 128,
        temperature: float = 1.0,
        seed: int = 0,
        columns: dict | None = None,  # type: ignore[type-arg]
    ) -> dict:  # type: ignore[type-arg]
        """Sample a group of answers to one prompt.

        Until the group is there, {"status": "…"} comes each second: what is waited for, or how far it is.

        Args:
            prompt: Plain text, or a JSON list of chat messages.
            policy: The embedded policy's name, a Hub id or a local folder.
            num_generations: G, the rollouts of the group.
            max_completion_length: Tokens after which a completion is truncated.
            temperature: Divides the logits before sampling.
            seed: The same seed gives the same samples.
            columns: Further columns of the row for the reward functions, such as {"answer": "12"}.

        Returns:
            The group: prompt, columns, policy, sampling and rollouts with token ids, texts and log-probs.
        """
        options = {
            "num_generations": num_generations,
            "max_completion_length": max_completion_length,
            "temperature": temperature,
        }
        config = RunConfig.parse({"policy": policy, "seed": seed, "method": {"sampling": options}})
        _check("columns", columns or {}, dict, 'an object, {"answer": "12"} say')
        _check("prompt", prompt, str, "text, or a list of messages as JSON text")
        example = Example(parse_prompt(prompt), columns or {})

        def ask(report: Callable[[dict[str, Any]], None], cancelled: Callable[[], bool]) -> Group | None:
            return self._services.models.sample(
                config.policy.path, example, config.sampling_section.sampling,
                seed=config.seed, on_event=report, cancelled=cancelled,
            )  # fmt: skip

        with BackgroundWork[Group | None](ask, NO_EVENT, pause=STATUS_SECONDS) as work:
            for event in work:
                yield {"status": progress_text(event)}
            group = work.result()
        assert group is not None  # who cancelled, by listening no more, does not get here
        yield group.to_json()

    def score(
        self,
        group: dict,  # type: ignore[type-arg]
        rewards: list[str],
        regex: str = DEFAULT_REGEX,
        kind: str = "starts",
        scheme: str = "process",
        options: dict | None = None,  # type: ignore[type-arg]
    ) -> dict:  # type: ignore[type-arg]
        """Split a group's answers into steps, score each with built-in rewards and credit every token.

        Args:
            group: A group as sample gives it, or your own answers: {"prompt": "…", "rollouts": [{"completion": "…"}]}.
            rewards: Names of built-in reward functions.
            regex: The step pattern, in the syntax of Python's regex package.
            kind: What a match is: it "starts" a step, "ends" one, or "is" one; by "turns" every turn is a step;
                "surprise", "entropy" and "tokens" cut by tokens, and regex is their numbers.
            scheme: The credit scheme's name.
            options: Options of the scheme, such as {"scale": false, "outcome_weight": 0.5}.

        Returns:
            For each rollout its steps with scores, its outcome reward and one advantage a token.
        """
        _check("rewards", rewards, list, "a list of names")
        _check("options", options or {}, dict, 'an object, {"scale": false} say')
        if unknown := [name for name in rewards if not isinstance(name, str) or name not in BUILTINS]:
            guess = did_you_mean(unknown[0], BUILTINS)
            raise RewardError(
                f"there is no built-in reward {quote(unknown[0])}{guess}; take some of {', '.join(BUILTINS)}"
            )
        known = [RewardConfig(name=name, kind=BUILTINS[name].kind) for name in rewards]
        pattern = RunConfig.parse({"method": {"pattern": {"regex": regex, "kind": kind}}}).sampling_section.pattern
        sampled = _group(group)
        _check_size([len(rollout.token_ids) for rollout in sampled.rollouts])
        scored = score_group(sampled, pattern, known, worker=self._services.reward_worker(WORKER))
        return credit_data(credits.credit_group(scored, scheme, **options or {}))

    @staticmethod
    def assign_credit(
        step_rewards: list[list[float | None]],
        step_ends: list[list[int]],
        lengths: list[int],
        scheme: str = "process",
        outcome_rewards: list[float | None] | None = None,
        options: dict | None = None,  # type: ignore[type-arg]
    ) -> list[list[float]]:
        """Turn the step rewards of one group into token advantages.

        Args:
            step_rewards: One list a completion; null is unscored.
            step_ends: The 0-based index of each step's last token.
            lengths: Tokens of each completion.
            scheme: The credit scheme's name.
            outcome_rewards: One a completion, where the scheme needs them.
            options: Options of the scheme, such as {"scale": false, "outcome_weight": 0.5}.

        Returns:
            One list of advantages a completion, one number a token.
        """
        lists = {"step_rewards": step_rewards, "step_ends": step_ends, "lengths": lengths}
        about = {"scheme": scheme, "outcome_rewards": outcome_rewards, "options": options or {}}
        request = _CreditRequest.parse(lists | about)  # a request is JSON, and may hold anything
        _check_size(request.lengths)
        rewards = request.step_rewards, request.step_ends, request.lengths, request.scheme
        table = credits.assign_credit(*rewards, outcome_rewards=request.outcome_rewards, **request.options)
        return [row[:length].tolist() for row, length in zip(table, lengths, strict=True)]

    def list_runs(self) -> dict:  # type: ignore[type-arg]
        """List the workspace's training runs, the newest first.

        Returns:
            "runs", for each its name, state, reason, step, total_steps, task, policy and credit scheme; "more", how
            many older ones are left out.
        """
        found = list_runs(self._services.workspace)
        rows = [
            {"run": summary.name, **summary.row(*RUN_COLUMNS)} for summary in [run.summary() for run in found[:LISTED]]
        ]
        return {"runs": rows, "more": len(found) - len(rows)}

    def read_metrics(self, run: str, cursor: int = 0) -> dict:  # type: ignore[type-arg]
        """Read the metrics of a training run, all of them or what is new since the last call.

        Args:
            run: The run's name.
            cursor: 0, or the cursor that the last call returned.

        Returns:
            The run's state, the rows, and the cursor to ask from next time.
        """
        _check("run", run, str, "a run's name")
        _check("cursor", cursor, int, "0, or what the last call returned")
        opened = open_run(run, self._services.workspace)
        rows, end = opened.metrics_rows(cursor)
        return {"run": opened.name, "state": opened.status().state, "rows": rows, "cursor": end}


def _check_size(lengths: Sequence[int]) -> None:
    """Raises ConfigError for a group too large to be credited while others wait, before a table is made for it."""
    longest = max(lengths, default=0)
    if (tokens := len(lengths) * longest) > MOST_TOKENS:
        raise ConfigError(
            f"lengths: {len(lengths):,} completions of up to {longest:,} tokens make {tokens:,}, and at most "
            f"{MOST_TOKENS:,} are credited in a call; give fewer, or shorter ones"
        )


def _check(name: str, value: Any, kind: type, wanted: str) -> None:
    if not isinstance(value, kind):
        raise ConfigError(f"{name} is {quote(value)}; give {wanted}")


def _group(data: dict[str, Any]) -> Group:
    try:
        _check("rollouts", data["rollouts"], list, "a list")
        if any("token_ids" not in rollout for rollout in data["rollouts"]):
            return group_of(
                data["prompt"],
                [rollout["completion"] for rollout in data["rollouts"]],
                tokenizer="tiny",
                **data.get("columns") or {},
            )
        return Group.from_json(data)
    except ConfigError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        what = f"no {error}" if isinstance(error, KeyError) else redact_known(f"{type(error).__name__}: {error}")[:200]
        raise ConfigError(
            f"that is not a group as sample gives it, nor one of rollouts with a 'completion' each ({what})"
        ) from error
