"""A small server of OpenAI's ``/v1/completions`` that computes with transformers, and tells tokens as others do.

It samples with ``model.generate``, one completion a request, and streams a token an event. ``told`` says in which way
tokens are told: ``ids`` as vLLM does with ``return_token_ids``, ``marks`` as vLLM did before, ``content`` as llama.cpp
does, ``texts`` as OpenAI's own API does, or ``nothing``. ``sampled`` are the (ids, log-probabilities) of each answer,
by its seed, and ``asked`` the requests.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import torch

MODEL = "served-tiny"


class CompletionsServer:
    def __init__(self, policy: Any, told: str = "ids") -> None:
        self.policy, self.told, self.owner, self.key = policy, told, "vllm", ""
        self.url, self.asked, self.sampled = "", list[dict[str, Any]](), dict[int, Any]()
        self.waits, self.left = threading.Event(), threading.Event()
        """``waits``: no token comes; ``left`` is set once a caller has gone."""
        self._lock = threading.Lock()

    def answer(self, body: dict[str, Any]) -> tuple[list[int], list[float]]:
        with self._lock, torch.no_grad():
            torch.manual_seed(body["seed"])
            prompt = torch.tensor([body["prompt"]])
            made = self.policy.model.generate(
                prompt,
                attention_mask=torch.ones_like(prompt),
                max_new_tokens=body["max_tokens"],
                do_sample=True,
                temperature=body["temperature"],
                top_k=max(body["top_k"], 0),
                top_p=body["top_p"],
                eos_token_id=body["stop_token_ids"],
                pad_token_id=self.policy.tokenizer.pad_token_id,
            )
            logits = self.policy.model(made).logits[0, len(prompt[0]) - 1 : -1].float()
            ids = made[0, len(prompt[0]) :]
            logprobs = logits.log_softmax(-1).gather(-1, ids[:, None])[:, 0]
        self.sampled[body["seed"]] = (ids.tolist(), logprobs.tolist())
        return self.sampled[body["seed"]]

    def events(self, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
        ids, logprobs = self.answer(body)
        finish = "stop" if ids[-1] in body["stop_token_ids"] else "length"
        for place, (token, logprob) in enumerate(zip(ids, logprobs, strict=True)):
            is_end = token in body["stop_token_ids"]
            text = "" if is_end else self.policy.tokenizer.decode([token])
            texts = {"logprobs": {"tokens": [text], "token_logprobs": [logprob]}}
            said: dict[str, Any] = {
                "ids": texts | {"token_ids": [token]},
                "marks": {"logprobs": {"tokens": [f"token_id:{token}"], "token_logprobs": [logprob]}},
                "content": {"logprobs": {"content": [{"id": token, "token": text, "logprob": logprob}]}},
                "texts": texts,
                "nothing": {},
            }[self.told]
            is_last = place == len(ids) - 1
            yield {"choices": [{"index": 0, "text": text, "finish_reason": finish if is_last else None} | said]}


@contextmanager
def serving(policy: Any, told: str = "ids") -> Iterator[CompletionsServer]:
    served = CompletionsServer(policy, told)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if served.key and self.headers["Authorization"] != f"Bearer {served.key}":
                self._send(401, {"error": {"message": "no key"}})
            else:
                models = [{"id": MODEL, "owned_by": served.owner, "model_name": MODEL}]
                self._send(200, {"data": models, "supported_models": models})  # the second is the Tinker protocol's

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            served.asked.append(body)
            self.send_response(200)
            self.end_headers()
            while served.waits.is_set():
                try:
                    self.wfile.write(b": still here\n\n")
                    self.wfile.flush()
                except OSError:
                    served.left.set()
                    return
                threading.Event().wait(0.02)
            for event in served.events(body):
                self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())
            self.wfile.write(b"data: [DONE]\n\n")

        def _send(self, status: int, body: Any) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        served.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
        try:
            yield served
        finally:
            served.waits.clear()
            server.shutdown()
            thread.join()
