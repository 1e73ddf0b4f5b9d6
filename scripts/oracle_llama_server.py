"""Record which slot of a real llama-server takes which request, and what of it is computed.

Needs a ``llama-server`` of llama.cpp b11312 (0c1e57098) and a Python with gguf and numpy::

    PYTHON scripts/oracle_llama_server.py LLAMA_SERVER tests/fixtures/serving/llama_server.jsonl

Each line is a scenario of ``tests/serving/llama_server_scenarios.py``: settings, requests, events,
and what the server answered. The model is tiny and random, so answers hold any tokens; lengths are
given, and prompts are made of blocks of 16 tokens that two requests share or do not.
"""

from __future__ import annotations

import json
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "serving"))
from llama_server_scenarios import BLOCK, Scenario, scenarios

WIDTH, LAYERS, HEADS, FFN, VOCAB = 64, 2, 4, 128, 1024
FIRST_TOKEN = 300  # above the byte tokens


def write_model(path: Path) -> None:
    """A random llama of two layers with a vocabulary of made-up words."""
    import numpy as np
    from gguf import GGUFWriter, TokenType

    noise = np.random.default_rng(0)
    out = GGUFWriter(path, "llama")
    out.add_context_length(8192)
    out.add_embedding_length(WIDTH)
    out.add_block_count(LAYERS)
    out.add_feed_forward_length(FFN)
    out.add_head_count(HEADS)
    out.add_head_count_kv(HEADS)
    out.add_layer_norm_rms_eps(1e-5)
    out.add_rope_dimension_count(WIDTH // HEADS)
    out.add_vocab_size(VOCAB)
    words = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    kinds = [TokenType.UNKNOWN, TokenType.CONTROL, TokenType.CONTROL, *[TokenType.BYTE] * 256]
    kinds += [TokenType.NORMAL] * (VOCAB - len(words))
    words += [f"\u2581w{number}" for number in range(VOCAB - len(words))]
    out.add_tokenizer_model("llama")
    out.add_token_list(words)
    out.add_token_scores([0.0] * VOCAB)
    out.add_token_types(kinds)
    out.add_bos_token_id(1)
    out.add_eos_token_id(2)
    out.add_unk_token_id(0)

    def add(name: str, *shape: int) -> None:
        data = noise.normal(0, 0.1, shape) if len(shape) > 1 else np.ones(shape)
        out.add_tensor(name, data.astype(np.float32))

    add("token_embd.weight", VOCAB, WIDTH)
    add("output_norm.weight", WIDTH)
    add("output.weight", VOCAB, WIDTH)
    for layer in range(LAYERS):
        for name in ("attn_norm", "ffn_norm"):
            add(f"blk.{layer}.{name}.weight", WIDTH)
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            add(f"blk.{layer}.{name}.weight", WIDTH, WIDTH)
        add(f"blk.{layer}.ffn_gate.weight", FFN, WIDTH)
        add(f"blk.{layer}.ffn_up.weight", FFN, WIDTH)
        add(f"blk.{layer}.ffn_down.weight", WIDTH, FFN)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


def prompts(scenario: Scenario) -> Iterator[list[int]]:
    """The prompts of a scenario in turn, as tokens."""
    blocks: dict[int, list[int]] = {}
    for index, (length, _, hashes) in enumerate(scenario["requests"]):
        own = random.Random(f"{scenario['name']} {index}")
        tokens: list[int] = []
        for name in hashes:
            if name not in blocks:
                blocks[name] = [
                    random.Random(f"block {name} {place}").randrange(FIRST_TOKEN, VOCAB)
                    for place in range(BLOCK)
                ]
            tokens += blocks[name]
        tokens = tokens[:length]
        tokens += [own.randrange(FIRST_TOKEN, VOCAB) for _ in range(length - len(tokens))]
        yield tokens


class Answer(threading.Thread):
    """A request that is being answered."""

    def __init__(self, port: int, prompt: list[int], output: int) -> None:
        super().__init__(daemon=True)
        self.url = f"http://127.0.0.1:{port}/completion"
        self.body = {"prompt": prompt, "n_predict": output, "ignore_eos": True, "stream": True}
        self.began = threading.Event()
        self.last: dict[str, Any] = {}

    def run(self) -> None:
        request = urllib.request.Request(
            self.url,
            json.dumps(self.body).encode(),
            {"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=120) as lines:
                for line in lines:
                    if line.startswith(b"data: {"):
                        self.last = json.loads(line[6:])
                        self.began.set()
        except OSError as error:
            self.last = {"error": str(error)}
        self.began.set()


def played(scenario: Scenario, server: str, model: Path) -> list[list[int]]:
    """Slot and cached tokens of each request, as the server answers them."""
    config = scenario["config"]
    port = _free_port()
    words = [server, "-m", str(model), "--port", str(port), "--host", "127.0.0.1", "-fit", "off"]
    words += ["-c", str(config["n_ctx"]), "-np", str(config["n_parallel"]), "-t", "1", "--no-ui"]
    words += ["--kv-unified" if config["kv_unified"] else "--no-kv-unified", "--no-warmup"]
    words += ["--slot-prompt-similarity", str(config["slot_prompt_similarity"])]
    words += ["--cache-ram", str(config["cache_ram_mib"])]
    words += ["--cache-idle-slots" if config["cache_idle_slots"] else "--no-cache-idle-slots"]
    words += ["--cache-prompt" if config["cache_prompt"] else "--no-cache-prompt"]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(words, stdout=log, stderr=log)
        try:
            _wait_for(process, port)
            texts = prompts(scenario)
            answers = [
                Answer(port, text, output)
                for text, (_, output, _) in zip(texts, scenario["requests"], strict=True)
            ]
            for what, index in scenario["events"]:
                if what == "start":
                    answers[index].start()
                    # a deferred request begins later; its place in the queue is what counts
                    answers[index].began.wait(timeout=0.15)
                else:
                    answers[index].join()
            for answer in answers:
                answer.join()
        finally:
            process.terminate()
            process.wait()
    return [[answer.last["id_slot"], answer.last["timings"]["cache_n"]] for answer in answers]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_for(process: subprocess.Popen[bytes], port: int) -> None:
    for _ in range(600):
        if process.poll() is not None:
            raise SystemExit(f"llama-server ended with {process.returncode}")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=1) as answer:
                if answer.status == 200:
                    return
        except OSError:
            time.sleep(0.05)
    raise SystemExit("llama-server did not start")


def main(server: str, target: Path) -> None:
    """Play every scenario and write what came of it."""
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "tiny.gguf"
        write_model(model)
        for scenario in scenarios():
            scenario["answers"] = played(scenario, server, model)
            lines.append(json.dumps(scenario, separators=(",", ":")) + "\n")
            print(scenario["name"], scenario["answers"])
    target.write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
