"""An OpenAI-compatible endpoint on the loopback interface that answers what a test tells it to."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Endpoint:
    """``answer(body)`` gives a text, or (status, body, headers); ``asked`` are the requests: path, headers and body."""

    def __init__(self, answer: Callable[[dict[str, Any]], Any]) -> None:
        self.answer = answer
        self.asked: list[tuple[str, dict[str, str], dict[str, Any]]] = []
        self.url = ""


def completion(text: str) -> dict[str, Any]:
    return {"choices": [{"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}]}


@contextmanager
def serving(answer: Callable[[dict[str, Any]], Any]) -> Iterator[Endpoint]:
    endpoint = Endpoint(answer)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            endpoint.asked.append((self.path, dict(self.headers), body))
            given = endpoint.answer(body)
            status, content, headers = given if isinstance(given, tuple) else (200, completion(given), {})
            data = content if isinstance(content, bytes) else json.dumps(content).encode()
            self.send_response(status)
            for name, value in {"Content-Length": str(len(data)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        endpoint.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
        try:
            yield endpoint
        finally:
            server.shutdown()
            thread.join()


def steps_answer(*scores: float | None, reason: str = "because", quote: str = "") -> str:
    """A judge's answer with these scores."""
    entries = [{"step": k, "score": score, "reason": reason, "quote": quote} for k, score in enumerate(scores, 1)]
    return json.dumps({"steps": entries})
