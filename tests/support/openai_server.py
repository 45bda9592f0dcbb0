"""A small server that speaks enough of OpenAI's API to be loaded: streamed chat completions at a known pace.

The first token comes after `ttft_seconds`, each later one `tpot_seconds` after the one before; a token is a byte, as
for `support.byte_tokenizer`. It pauses because its pace is what a load tool is to measure; no test waits for a time.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

ENGINE_VERSION = "0.11.0"


@dataclass
class OpenAIServer:
    """What the server does, and what it was asked. `url` is known once it listens; None as version hides `/version`."""

    model: str = "emulated"
    ttft_seconds: float = 0.02
    tpot_seconds: float = 0.002
    version: str | None = ENGINE_VERSION
    url: str = ""
    requests: list[dict[str, Any]] = field(default_factory=list)


@contextmanager
def serve_openai(behaviour: OpenAIServer) -> Iterator[OpenAIServer]:
    """Serve on a free port of the loopback until the context ends."""
    with _Listener(behaviour) as listener:
        behaviour.url = f"http://127.0.0.1:{listener.server_address[1]}"
        thread = threading.Thread(target=listener.serve_forever, daemon=True)
        thread.start()
        try:
            yield behaviour
        finally:
            listener.shutdown()
            thread.join()


class _Listener(ThreadingHTTPServer):
    def __init__(self, behaviour: OpenAIServer) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.behaviour = behaviour


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Listener

    def log_message(self, *_arguments: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        behaviour = self.server.behaviour
        if self.path == "/version" and behaviour.version is not None:
            self._answer({"version": behaviour.version})
        elif self.path == "/v1/models":
            self._answer({"object": "list", "data": [{"id": behaviour.model, "object": "model"}]})
        else:
            self.send_error(404)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path != "/v1/chat/completions":
            self.send_error(404)
            return
        self.server.behaviour.requests.append(body)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        prompt_bytes = sum(len(str(message["content"]).encode()) for message in body["messages"])
        self._stream(prompt_bytes, int(body.get("max_completion_tokens") or body.get("max_tokens") or 16))

    def _stream(self, prompt_tokens: int, tokens: int) -> None:
        behaviour = self.server.behaviour
        for index in range(tokens):
            time.sleep(behaviour.ttft_seconds if index == 0 else behaviour.tpot_seconds)
            self._event({"choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": None}]})
        self._event({"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]})
        total = prompt_tokens + tokens
        usage = {"prompt_tokens": prompt_tokens, "completion_tokens": tokens, "total_tokens": total}
        self._event({"choices": [], "usage": usage})
        self.wfile.write(b"data: [DONE]\n\n")

    def _event(self, content: dict[str, Any]) -> None:
        event = {"id": "1", "object": "chat.completion.chunk", "created": 0, "model": self.server.behaviour.model}
        self.wfile.write(f"data: {json.dumps(event | content)}\n\n".encode())
        self.wfile.flush()

    def _answer(self, content: dict[str, Any]) -> None:
        payload = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)
