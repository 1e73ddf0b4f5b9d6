"""A real HTTP server on this machine that serves pages which a test sets, and can go away."""

from __future__ import annotations

import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType

PageText = str | tuple[int, str]


class PageServer:
    """Serves ``pages`` by path; a page may be a status with a body."""

    def __init__(self, pages: dict[str, PageText], *, port: int = 0) -> None:
        self.pages = dict(pages)
        self.asked: list[str] = []
        self.keys: list[str | None] = []
        self.headers: dict[str, str] = {}
        self.delay_seconds = 0.0
        self.at_once = 0
        self.most_at_once = 0
        self._lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.answer(self)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.port = self._server.server_port
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.01}
        )
        self._thread.start()

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        with self._lock:
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
            self.asked.append(handler.path)
            self.keys.append(handler.headers.get("authorization"))
        try:
            time.sleep(self.delay_seconds)
            page = self.pages.get(handler.path, (404, "no such page"))
            status, text = page if isinstance(page, tuple) else (200, page)
            body = text.encode()
            handler.send_response(status)
            kind = "application/json" if text[:1] in ("{", "[") else "text/plain"
            handler.send_header("content-type", kind)
            handler.send_header("content-length", str(len(body)))
            for name, value in self.headers.items():
                handler.send_header(name, value)
            handler.end_headers()
            handler.wfile.write(body)
        except OSError:
            pass  # who asked has gone
        finally:
            with self._lock:
                self.at_once -= 1

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> PageServer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def vllm_page(
    *,
    running: int = 0,
    waiting: int = 0,
    share: float = 0.0,
    prompt: int = 0,
    output: int = 0,
    requests: int = 0,
    preemptions: int = 0,
    started: float = 1000.0,
    engine: str = "0",
) -> str:
    """A page as vLLM writes it, with a few of its figures."""
    labels = f'engine="{engine}",model_name="m"'
    return "\n".join(
        [
            f"process_start_time_seconds {started}",
            f"vllm:num_requests_running{{{labels}}} {running}",
            f"vllm:num_requests_waiting{{{labels}}} {waiting}",
            f"vllm:kv_cache_usage_perc{{{labels}}} {share}",
            f"vllm:prompt_tokens_total{{{labels}}} {prompt}",
            f"vllm:generation_tokens_total{{{labels}}} {output}",
            f"vllm:num_preemptions_total{{{labels}}} {preemptions}",
            f'vllm:request_success_total{{{labels},finished_reason="length"}} {requests}',
            f'vllm:cache_config_info{{block_size="16",engine="{engine}",num_gpu_blocks="100"}} 1',
            "",
        ]
    )


VLLM_PAGES: dict[str, PageText] = {
    "/metrics": vllm_page(),
    "/version": '{"version": "0.32.0"}',
    "/v1/models": '{"data": [{"id": "m", "root": "org/model", "max_model_len": 1024}]}',
}
