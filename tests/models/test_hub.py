"""Reading from the Hub, with a stand-in for it on this machine."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import gguf
import numpy as np
import pytest
from safetensors.numpy import save_file

from tokenroom.errors import HubError, ModelError
from tokenroom.models import hub
from tokenroom.models.hub import HubOptions, is_repository_id, load_from_hub

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 2,
    "vocab_size": 256,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
    "torch_dtype": "float16",
}


COMMIT = "c" * 40


class Hub(ThreadingHTTPServer):
    """Serves ``files`` of one repository as the Hub does: a redirect, then byte ranges."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.requests: list[tuple[str, str | None, str | None]] = []
        self.answer: tuple[int, dict[str, str]] | None = None
        self.wait_seconds = 0.0
        self.serves_ranges = True
        self.drips = False

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        range_ = self.headers.get("range")
        self.server.requests.append((self.path, range_, self.headers.get("authorization")))
        time.sleep(self.server.wait_seconds)
        if self.server.answer is not None:
            status, headers = self.server.answer
            self.send(status, headers)
        elif self.path.startswith("/cdn/"):
            self.send_file(self.server.files[self.path.removeprefix("/cdn/")], range_)
        elif match := re.fullmatch(r"/org/model/resolve/([^/]+)/(.+)", self.path):
            self.resolve(*match.groups())
        else:
            self.send(404, {"x-error-code": "RepoNotFound"})

    def resolve(self, revision: str, file: str) -> None:
        if revision not in ("main", "v1%2Fa", COMMIT):
            self.send(404, {"x-error-code": "RevisionNotFound"})
        elif file not in self.server.files:
            self.send(404, {"x-error-code": "EntryNotFound"})
        else:
            self.send(302, {"location": f"/cdn/{file}"})

    def send_file(self, data: bytes, range_: str | None) -> None:
        if range_ is None or not self.server.serves_ranges:
            self.send(200, {}, data)
            return
        first, last = map(int, range_.removeprefix("bytes=").split("-"))
        last = min(last, len(data) - 1)
        if first >= len(data):
            self.send(416, {"content-range": f"bytes */{len(data)}"})
            return
        headers = {"content-range": f"bytes {first}-{last}/{len(data)}"}
        self.send(206, headers, data[first : last + 1])

    def send(self, status: int, headers: dict[str, str], body: bytes = b"") -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        try:
            for start in range(0, len(body), 10 if self.server.drips else max(len(body), 1)):
                self.wfile.write(body[start : start + 10] if self.server.drips else body)
                time.sleep(0.02 if self.server.drips else 0)
        except OSError:
            self.close_connection = True  # the reader had enough


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    for name in ("HF_TOKEN", "HF_ENDPOINT", "HF_HUB_OFFLINE", "HTTP_PROXY", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    server = Hub()
    server.files["config.json"] = json.dumps(CONFIG).encode()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def options(server: Hub, tmp_path: Path) -> HubOptions:
    return HubOptions(
        endpoint=server.address,
        cache_dir=str(tmp_path / "cache"),
        timeout_seconds=5,
        token="secret",
    )


def shard(path: Path, shapes: dict[str, tuple[int, ...]]) -> bytes:
    save_file({name: np.zeros(shape, np.float16) for name, shape in shapes.items()}, path)
    return path.read_bytes()


def test_configuration(server: Hub, options: HubOptions) -> None:
    spec = load_from_hub("org/model", options)
    assert spec.name == "org/model"
    assert spec.num_layers == 2
    assert spec.source == "config.json of org/model at revision main"
    paths = [path for path, _, _ in server.requests]
    assert paths == [
        "/org/model/resolve/main/config.json",
        "/cdn/config.json",
        "/org/model/resolve/main/hf_quant_config.json",
    ]
    assert server.requests[0][2] == "Bearer secret"


def test_environment(server: Hub, options: HubOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", server.address + "/")
    monkeypatch.setenv("HF_TOKEN", "from-environment")
    load_from_hub("org/model", replace(options, endpoint=None, token=None))
    assert server.requests[0][2] == "Bearer from-environment"
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(HubError, match="offline"):
        load_from_hub("org/model", options)


def test_revision(server: Hub, options: HubOptions) -> None:
    load_from_hub("org/model", replace(options, revision="v1/a"))
    with pytest.raises(HubError, match="no revision 'gone'"):
        load_from_hub("org/model", replace(options, revision="gone"))


def test_quantisation_beside_the_configuration(server: Hub, options: HubOptions) -> None:
    server.files["hf_quant_config.json"] = json.dumps(
        {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8"}}
    ).encode()
    assert load_from_hub("org/model", options).quantization is not None


def test_headers_of_shards(server: Hub, options: HubOptions, tmp_path: Path) -> None:
    one = {"model.embed_tokens.weight": (256, 64), "model.norm.weight": (64,)}
    two = {"lm_head.weight": (256, 64), "surprise": (10**6,)}
    server.files["a.safetensors"] = shard(tmp_path / "a", one)
    server.files["b.safetensors"] = shard(tmp_path / "b", two)
    weight_map = dict.fromkeys(one, "a.safetensors") | dict.fromkeys(two, "b.safetensors")
    index = {"metadata": {}, "weight_map": weight_map}
    server.files["model.safetensors.index.json"] = json.dumps(index).encode()
    spec = load_from_hub("org/model", replace(options, read_headers=True))
    stored = {weight.name: weight.stored_bytes for _, weight, _ in spec.all_weights()}
    assert stored["model.embed_tokens"] == stored["lm_head"] == 2 * 256 * 64
    assert stored["unmatched"] == 2 * 10**6
    assert any("surprise" in sentence for sentence in spec.assumptions)
    ranges = [range_ for path, range_, _ in server.requests if path.startswith("/cdn/b.")]
    assert ranges == [f"bytes=0-{2**18 - 1}"]  # never the weights


def test_long_headers_take_a_second_request(
    server: Hub, options: HubOptions, tmp_path: Path
) -> None:
    shapes = {f"model.layers.0.extra.{index}.weight": (1,) for index in range(4000)}
    data = shard(tmp_path / "m", shapes)
    assert len(data) > 2**18
    server.files["model.safetensors"] = data
    spec = load_from_hub("org/model", replace(options, read_headers=True))
    assert spec.output_weights[-1].stored_bytes == 8000
    assert len([1 for path, _, _ in server.requests if path == "/cdn/model.safetensors"]) == 2


def test_server_without_ranges(server: Hub, options: HubOptions, tmp_path: Path) -> None:
    server.files["model.safetensors"] = shard(tmp_path / "m", {"a": (4,)})
    server.serves_ranges = False
    with pytest.raises(HubError, match="does not serve byte ranges"):
        load_from_hub("org/model", replace(options, read_headers=True))


def test_gguf_file(server: Hub, options: HubOptions, tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    writer.add_block_count(1)
    writer.add_context_length(512)
    writer.add_embedding_length(64)
    writer.add_head_count(4)
    for name in ("token_embd.weight", "blk.0.attn_q.weight"):
        writer.add_tensor(name, np.zeros((64, 64), np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    server.files["q/m-Q8_0.gguf"] = (tmp_path / "m.gguf").read_bytes()
    spec = load_from_hub("org/model/q/m-Q8_0.gguf", options)
    assert spec.name == "org/model/q/m-Q8_0.gguf"
    assert spec.num_layers == 1
    with pytest.raises(HubError, match=r"no file gone\.gguf"):
        load_from_hub("org/model/gone.gguf", options)
    server.files["empty.gguf"] = b""
    with pytest.raises(ModelError, match="no GGUF file"):
        load_from_hub("org/model/empty.gguf", options)


@pytest.mark.parametrize(
    ("status", "headers", "message"),
    [
        (401, {}, "no public model"),
        (401, {"x-error-code": "RepoNotFound"}, "no public model"),
        (401, {"x-error-code": "GatedRepo"}, "is gated"),
        (403, {"x-error-code": "GatedRepo"}, "is gated"),
        (403, {}, "is gated"),
        (404, {"x-error-code": "RepoNotFound"}, "no public model"),
        (404, {}, r"no config\.json"),
        (429, {}, "try again later"),
        (429, {"retry-after": "17"}, "in 17 seconds"),
        (500, {}, "HTTP status 500"),
        (503, {}, "HTTP status 503"),
        (302, {"location": "/org/model/resolve/main/config.json"}, "in circles"),
        (302, {"location": "http://[::bad"}, "cannot be reached"),
        (204, {}, "HTTP status 204"),
    ],
)
def test_refusals(
    server: Hub, options: HubOptions, status: int, headers: dict[str, str], message: str
) -> None:
    server.answer = (status, headers)
    with pytest.raises(HubError, match=message) as caught:
        load_from_hub("org/model", options)
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)


def test_unknown_repository(server: Hub, options: HubOptions) -> None:
    with pytest.raises(HubError, match="no public model 'org/other'"):
        load_from_hub("org/other", options)


def test_slow_server(server: Hub, options: HubOptions) -> None:
    server.wait_seconds = 0.5
    with pytest.raises(HubError, match=r"within 0\.05 seconds"):
        load_from_hub("org/model", replace(options, timeout_seconds=0.05))


def test_dripping_server(server: Hub, options: HubOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    server.drips = True
    monkeypatch.setattr(hub, "_SLOWEST", 0.01)
    with pytest.raises(HubError, match="too slowly"):
        load_from_hub("org/model", options)


def test_no_server(options: HubOptions) -> None:
    with pytest.raises(HubError, match="cannot be reached"):
        load_from_hub("org/model", replace(options, endpoint="http://127.0.0.1:9"))
    with pytest.raises(HubError, match="cannot be reached"):
        load_from_hub("org/model", replace(options, endpoint="no address"))


def cached(options: HubOptions, files: dict[str, bytes], commit: str = COMMIT) -> None:
    """A repository as the Hub's client caches it."""
    root = Path(options.cache_dir or "") / "models--org--model"
    (root / "snapshots" / commit).mkdir(parents=True)
    (root / "refs").mkdir()
    (root / "refs" / "main").write_text(commit)
    for name, data in files.items():
        (root / "snapshots" / commit / name).write_bytes(data)


def test_cache(server: Hub, options: HubOptions, tmp_path: Path) -> None:
    weights = shard(tmp_path / "m", {"lm_head.weight": (256, 64)})
    cached(options, {"config.json": server.files["config.json"], "model.safetensors": weights})
    offline = replace(options, offline=True, read_headers=True)
    spec = load_from_hub("org/model", offline)
    assert spec.output_weights[-1].stored_bytes == len(weights) - 8 - int.from_bytes(
        weights[:8], "little"
    )
    assert not server.requests
    with pytest.raises(HubError, match="not in the Hub's cache"):
        load_from_hub("org/model", replace(offline, revision="v2"))
    # A commit never changes: its cached copy spares the request.
    load_from_hub("org/model", replace(options, revision=COMMIT))
    paths = [path for path, _, _ in server.requests]
    assert paths == [f"/org/model/resolve/{COMMIT}/hf_quant_config.json"]
    unreachable = replace(options, endpoint="http://127.0.0.1:9")
    spec = load_from_hub("org/model", unreachable)
    assert "the cached copy was read" in spec.assumptions[-1]


def test_broken_files(server: Hub, options: HubOptions) -> None:
    for data in (b"{", b"[]", b"\xff", b"[" * 100_000):
        server.files["config.json"] = data
        with pytest.raises(ModelError, match=r"config\.json of org/model"):
            load_from_hub("org/model", options)
    server.files["config.json"] = b" " * (9 * 2**20)
    with pytest.raises(HubError, match="more than"):
        load_from_hub("org/model", options)
    del server.files["config.json"]
    with pytest.raises(HubError, match="name one as"):
        load_from_hub("org/model", options)


@pytest.mark.parametrize(
    "name", ["model", "a/b/c", "../x", "a/..", "a//b", "", "a/b\n", "-a/b", "a/b/../c.gguf"]
)
def test_names_that_are_no_id(name: str, options: HubOptions) -> None:
    assert not is_repository_id(name)
    with pytest.raises(HubError, match="no Hub id"):
        load_from_hub(name, options)


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch, options: HubOptions) -> None:
    monkeypatch.setattr(hub, "is_installed", lambda: False)
    with pytest.raises(HubError, match=r"pip install 'tokenroom\[hub\]'"):
        load_from_hub("org/model", options)
