"""Policies whose weights are on a server, which samples: over the Tinker protocol, or an OpenAI-compatible endpoint.

Prompts are sent as ids, and what is sampled are the server's own ids. Of an endpoint that returns none (vLLM does, with
``return_token_ids``; llama.cpp with its log-probabilities) the text is put into ids by the tokenizer here, and
log-probabilities are kept of completions that both cut alike. Log-probabilities are of use where they are the plain
softmax's: what else a server makes of temperature and top-p before it tells them differs, so that they are left out.

Keys are read from the environment, ``TINKER_API_KEY`` and ``VLLM_API_KEY``, and go into a request's header alone.
Loads no torch; the package ``tinker`` does.

vLLM's fields: https://docs.vllm.ai/en/latest/serving/openai_compatible_server.html
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError, Future, wait
from dataclasses import dataclass, field
from importlib.util import find_spec
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

import httpx
from anyio.from_thread import start_blocking_portal

from workbench.config import EngineSection, SamplingConfig
from workbench.errors import EngineError, cut, did_you_mean
from workbench.models.find import Served
from workbench.schema import say_count
from workbench.steps import token_texts

T = TypeVar("T")
Asked = Sequence[tuple[Sequence[int], int, int]]
"""(A prompt's ids, how many completions, a seed) of each group; a completion's seed is its number higher."""
OnTokens = Callable[[list[tuple[int, int]]], None]
OWN_SERVER_KEY = "tml-none"
"""What a server of one's own is sent where no key is set: the client wants one that begins so."""
HOSTED = "https://tinker.thinkingmachines.dev/services/tinker-prod"
ENDPOINT_KEY = "VLLM_API_KEY"
PATIENCE = 600.0
"""Seconds that an endpoint may take for its next token."""
SHAPED = "log-probabilities are left out, as servers differ in whether temperature, top-p and the like are in them"


@dataclass
class Answer:
    """A completion's ids, their log-probabilities unless the server told none, and what ended it that no id shows."""

    ids: list[int] = field(default_factory=list)
    logprobs: list[float] | None = None
    stop: str | None = None


def connect(there: Served, tokenizer: Any) -> Tinker | Endpoint:
    """Return the client of a policy's server. Raises EngineError where it does not answer or has no such model."""
    if not there.is_tinker:
        return Endpoint(there, tokenizer)
    service = Tinker(EngineSection(kind="tinker", url=there.url))
    service.sampler = service.ask("sample", lambda: service.client.create_sampling_client(base_model=there.model))
    return service


def shaping(sampling: SamplingConfig) -> set[str]:
    """Return the settings by which tokens are drawn from something else than the plain softmax."""
    names = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
    return {name for name in names if getattr(sampling, name) != SamplingConfig.model_fields[name].default}


def _client(of: Any, **more: Any) -> Any:
    """Return a client of httpx that asks this machine's own servers through no proxy."""
    return of(mounts=dict.fromkeys(("all://localhost", "all://127.0.0.1", "all://[::1]")), **more)


def _looking(
    on_tokens: OnTokens | None, cancelled: Callable[[], bool] | None, heard: SimpleQueue[tuple[int, int]]
) -> Callable[[], bool]:
    """Return what is called while a server is waited for: it passes on what was heard, and says whether to give up."""

    def look() -> bool:
        if on_tokens is not None:
            on_tokens([heard.get() for _ in range(heard.qsize())])
        return cancelled is not None and cancelled()

    return look


_V1 = "its address often ends in /v1"


def _ask_models(url: str, headers: Mapping[str, str], named: str, key: str, advice: str) -> list[Mapping[str, Any]]:
    """Return the models that a server lists under a name. Raises EngineError where it does not answer so."""
    try:
        with _client(httpx.Client, headers=headers, timeout=10.0) as client:
            answer = client.get(url)
        if answer.is_error:
            raise _refusal(answer, key, advice)
        return [dict(each) for each in answer.json()[named]]
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise EngineError(f"nothing answers at {url} ({error}); start the server first") from error
    except (ValueError, LookupError, TypeError) as error:
        raise EngineError(f"{url} lists no models as its protocol has it; {advice}") from error


def _refusal(answer: httpx.Response, key: str, advice: str) -> EngineError:
    advice = f"set {key} to its key" if answer.status_code in (401, 403) else advice
    return EngineError(f"{answer.url} answers {answer.status_code}: {cut(answer.text, 300)}; {advice}")


# -- the Tinker protocol -----------------------------------------------------------------------------------------------


def key_of(section: EngineSection) -> str:
    """Return the server's key. Raises EngineError where hosted Tinker's is not set."""
    key = os.environ.get(section.key_env, "").strip()
    if not key and section.url is None:
        raise EngineError(f"engine.key_env: {section.key_env} is not set; put the key of hosted Tinker into it")
    return key or OWN_SERVER_KEY


class Tinker:
    """A client of the Tinker protocol, which samples by ``sampler``.

    Every call raises EngineError, in a sentence, for an answer that is an error or does not come within
    ``engine.patience``. The client itself tries again, with growing pauses, while a server does not answer.
    """

    def __init__(self, section: EngineSection) -> None:
        if find_spec("tinker") is None:
            raise EngineError(
                "a server of the Tinker protocol needs the package tinker: pip install 'workbench[tinker]'"
            )
        import tinker

        self.types, self._patience, self.note = tinker.types, section.patience, ""
        self.sampler: Any = None
        self.where, key = section.where, key_of(section)
        self.client = self.ask("connect", lambda: tinker.ServiceClient(base_url=section.url, api_key=key))

    def ask(self, what: str, call: Callable[[], T], look: Callable[[], bool] = lambda: False) -> T:
        """Return what ``call`` gives. One that hangs, or that ``look`` gives up, is left behind in its thread."""
        answer, deadline = Future[T](), time.monotonic() + self._patience

        def run() -> None:
            try:
                answer.set_result(call())
            except BaseException as error:
                answer.set_exception(error)

        Thread(target=run, daemon=True).start()
        while not wait([answer], 0.1).done:
            if look():
                raise CancelledError
            if time.monotonic() > deadline:
                raise EngineError(
                    f"the engine ({self.where}) did not {what} within engine.patience, {self._patience:g} s; see "
                    "whether it runs"
                )
        try:
            return answer.result()
        except Exception as error:
            raise EngineError(f"the engine ({self.where}) could not {what}: {cut(str(error), 500)}") from error

    def sample(
        self,
        asked: Asked,
        sampling: SamplingConfig,
        ends: Sequence[int],
        on_tokens: OnTokens | None = None,
        cancelled: Callable[[], bool] | None = None,
    ) -> list[list[Answer]]:
        """Return the completions of each group; empty ones once ``cancelled``. ``ends`` are end-of-sequence ids.

        ``on_tokens`` gets (row, id) as they come, and nothing now and then: the protocol tells tokens when all are
        there. Raises EngineError.
        """
        _refuse(shaping(sampling) & {"min_p", "repetition_penalty"}, "the Tinker protocol")
        sampler = self.sampler
        how: dict[str, Any] = {
            "max_tokens": sampling.max_completion_length,
            "stop": sampling.stop or list(ends),
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k or -1,
        }

        def call() -> list[list[Answer]]:
            futures = [
                sampler.sample(
                    prompt=self.types.ModelInput.from_ints(list(ids)),
                    num_samples=count,
                    sampling_params=self.types.SamplingParams(seed=seed, **how),
                )
                for ids, count, seed in asked
            ]
            return [[Answer(list(s.tokens), s.logprobs) for s in future.result().sequences] for future in futures]

        try:
            return self.ask("sample", call, _looking(on_tokens, cancelled, SimpleQueue()))
        except CancelledError:
            return [[Answer() for _ in range(count)] for _, count, _ in asked]


def check_connection(section: EngineSection, model: str) -> str:
    """Ask a server of the Tinker protocol whether it runs and has a model; say so in a sentence.

    Raises EngineError, beginning with the field to put right.
    """
    where, key = section.url or HOSTED, key_of(section)
    url, headers = f"{where}/api/v1/get_server_capabilities", {"X-API-Key": key}
    try:
        listed = _ask_models(url, headers, "supported_models", section.key_env, "is it a Tinker server?")
    except EngineError as error:
        raise EngineError(f"engine.url: {error}") from error
    models = [str(each.get("model_name")) for each in listed]
    if model not in models:
        has = cut(", ".join(models), 300)
        raise EngineError(f"engine.base_model: {where} has no {model!r}{did_you_mean(model, models)}; it has {has}")
    if find_spec("tinker") is None:
        raise EngineError("engine.kind: the server runs; training on it needs pip install 'workbench[tinker]'")
    own = "" if os.environ.get(section.key_env) else "not set, which a server of one's own mostly does without"
    return f"{where} answers and has {model}; {section.key_env} is {own or 'set'}."


# -- OpenAI-compatible endpoints ---------------------------------------------------------------------------------------


class Endpoint:
    """An OpenAI-compatible endpoint's ``/completions``: vLLM's, SGLang's, llama.cpp's and others'."""

    def __init__(self, there: Served, tokenizer: Any) -> None:
        self.where, self._model, self._tokenizer, self.note = str(there.url), there.model, tokenizer, ""
        key = os.environ.get(ENDPOINT_KEY, "").strip()
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        models = _ask_models(f"{self.where}/models", self._headers, "data", ENDPOINT_KEY, _V1)
        listed = {str(each.get("id")): str(each.get("owned_by")) for each in models}
        if there.model not in listed:
            near, has = did_you_mean(there.model, listed), cut(", ".join(listed), 300)
            raise EngineError(f"{self.where} serves no {there.model!r}{near}; it has {has}")
        self._has_all = listed[there.model] in ("vllm", "sglang")  # settings that OpenAI's API does not have

    def sample(
        self,
        asked: Asked,
        sampling: SamplingConfig,
        ends: Sequence[int],
        on_tokens: OnTokens | None = None,
        cancelled: Callable[[], bool] | None = None,
    ) -> list[list[Answer]]:
        """Sample as ``Tinker.sample``; each completion is a request, whose tokens come as they are sampled."""
        if not self._has_all:
            _refuse(shaping(sampling) & {"top_k", "min_p", "repetition_penalty"}, f"the API of {self.where}")
        body = self._body(sampling, ends)
        rows = [{"prompt": list(ids), "seed": seed + i} for ids, count, seed in asked for i in range(count)]
        answers, heard = [Answer() for _ in rows], SimpleQueue[tuple[int, int]]()
        look = _looking(on_tokens, cancelled, heard)

        async def all_rows() -> list[str]:
            timeout, limits = httpx.Timeout(PATIENCE, connect=10.0), httpx.Limits(max_connections=None)
            async with _client(httpx.AsyncClient, headers=self._headers, timeout=timeout, limits=limits) as client:
                works = (self._complete(client, body | row, answers[i], i, heard) for i, row in enumerate(rows))
                return await asyncio.gather(*works)

        with start_blocking_portal() as portal:
            work = portal.start_task_soon(all_rows)
            while not wait([work], 0.1).done:
                if look():
                    work.cancel()
            look()
        try:
            said = work.result()
        except CancelledError:
            said = []
        except (httpx.HTTPError, ValueError, LookupError, TypeError) as error:
            raise EngineError(f"{self.where} broke off: {cut(str(error) or type(error).__name__, 300)}") from error
        of = f"of {say_count(len(said), 'completion')}"
        self.note = "; ".join(f"{note} ({said.count(note)} {of})" for note in sorted({*said} - {""}))
        left = iter(answers)
        return [[next(left) for _ in range(count)] for _, count, _ in asked]

    def _body(self, sampling: SamplingConfig, ends: Sequence[int]) -> dict[str, Any]:
        """Return a request, but for its prompt and seed. What it leaves out, vLLM takes from generation_config.json."""
        return {
            "model": self._model,
            "max_tokens": sampling.max_completion_length,
            "stop": sampling.stop,
            "stop_token_ids": list(ends),
            "logprobs": 1,
            "stream": True,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k or -1,
            "min_p": sampling.min_p or 0.0,
            "repetition_penalty": sampling.repetition_penalty,
            "return_token_ids": True,
            "return_tokens_as_token_ids": True,
            "include_stop_str_in_output": True,
        }

    async def _complete(
        self, client: httpx.AsyncClient, body: Mapping[str, Any], answer: Answer, row: int, heard: SimpleQueue[Any]
    ) -> str:
        """Ask for one completion, into ``answer`` as it comes, and return what the server did not tell of it."""
        text, texts, logprobs, finish = "", list[str](), list[float](), ""
        async with client.stream("POST", f"{self.where}/completions", json=body) as response:
            if response.is_error:
                await response.aread()
                raise _refusal(response, ENDPOINT_KEY, _V1)
            async for line in response.aiter_lines():
                if not line.startswith("data:") or line.endswith("[DONE]"):
                    continue
                chunk = json.loads(line.removeprefix("data:"))
                if "error" in chunk:
                    raise EngineError(f"{self.where} broke off: {cut(str(chunk['error']), 300)}")
                for choice in chunk["choices"]:
                    ids, pieces, values = _read_choice(choice)
                    text += choice.get("text") or ""
                    finish = choice.get("finish_reason") or finish
                    answer.ids += ids
                    texts += pieces
                    logprobs += values
                    for token in ids:
                        heard.put((row, token))
        note = ""
        if text and not answer.ids:
            if not texts:
                raise EngineError(
                    f"{self.where} returns neither token ids nor log-probabilities, so that nothing tells which tokens "
                    "were sampled; take vLLM 0.10.2 or later, SGLang or llama.cpp"
                )
            answer.ids = list(self._tokenizer(text, add_special_tokens=False)["input_ids"])
            if finish == "stop" and not any(stop in text for stop in body["stop"]):
                answer.ids.append(body["stop_token_ids"][0])
            own = token_texts(self._tokenizer, answer.ids)
            note = "the server told texts of tokens and no ids, which are the tokenizer's here"
            if len(own) != len(texts) or own[:-1] != texts[:-1]:
                logprobs, note = [], f"{note}, cut otherwise, so that log-probabilities are left out"
        if len(logprobs) == len(answer.ids):
            answer.logprobs = logprobs
        elif not note:
            note = "the server told no log-probabilities"
        if finish == "stop" and answer.ids and answer.ids[-1] not in body["stop_token_ids"] and not body["stop"]:
            answer.stop = "an end that the server leaves out"
        return note


def _read_choice(choice: Mapping[str, Any]) -> tuple[list[int], list[str], list[float]]:
    """Return the ids, texts and log-probabilities of the tokens in a piece of an answer, each as far as it is told."""
    said = choice.get("logprobs") or {}
    if content := said.get("content"):  # llama.cpp's
        return [t["id"] for t in content if "id" in t], [t["token"] for t in content], [t["logprob"] for t in content]
    texts, mark = list(said.get("tokens") or []), "token_id:"
    ids = list(choice.get("token_ids") or [])
    if texts and not ids and all(text.startswith(mark) for text in texts):  # vLLM's before 0.10.2
        ids = [int(text.removeprefix(mark)) for text in texts]
    return ids, texts, list(said.get("token_logprobs") or [])


def _refuse(names: set[str], who: str) -> None:
    """Raise EngineError for settings of sampling that a server does not know, and would ignore."""
    if names:
        raise EngineError(f"method.sampling.{min(names)}: {who} has no such setting; leave it at its default")


Server = Tinker | Endpoint
"""What samples a policy elsewhere. ``note`` is what was not told of the last answers, "" for nothing."""
