"""SGLang command lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from tokenroom import fit
from tokenroom.engines.registry import command_parser, engine_started_by
from tokenroom.engines.sglang.arguments import parse_command
from tokenroom.engines.sglang.policy import SGLANG
from tokenroom.engines.sglang.taken import LOADING_BYTES
from tokenroom.errors import CommandLineError, DeploymentError
from tokenroom.units import GIB


@pytest.mark.parametrize(
    "command",
    [
        "python3 -m sglang.launch_server --model-path org/model --tp 8 --mem-fraction-static 0.85",
        "python -m sglang.launch_server --model org/model --tp-size=8 --mem-fraction-static=0.85",
        "sglang serve org/model --tensor-parallel-size 8 --mem-fraction-static 0.85",
        "sglang serve --model-path org/model --tp 8 --mem-fraction-static 0.85",
        "docker run --gpus all lmsysorg/sglang:v0.5.23 python3 -m sglang.launch_server "
        "--model-path org/model --tp 8 --mem-fraction-static 0.85",
        "CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7 python3 -m sglang.launch_server \\\n"
        "  --model-path org/model \\\n  --tp 8 --mem-fraction-static 0.85",
    ],
)
def test_the_ways_people_start_it(command: str) -> None:
    assert engine_started_by(command) == "sglang"
    parsed = command_parser("sglang")(command)
    assert parsed.engine == "sglang"
    assert parsed.model == "org/model"
    assert parsed.settings.tp_size == 8
    assert parsed.settings.mem_fraction_static == 0.85


def test_the_image_tells_the_version() -> None:
    parsed = parse_command(
        "docker run --gpus 4 lmsysorg/sglang:v0.4.8.post1 python3 -m sglang.launch_server "
        "--model-path org/model"
    )
    assert parsed.version == "0.4.8.post1"
    assert parsed.gpus == 4


def test_flags_become_settings() -> None:
    parsed = parse_command(
        "sglang serve org/model --dp 2 --enable-dp-attention --kv-cache-dtype fp8_e4m3 "
        "--chunked-prefill-size -1 --max-total-tokens 64K --disable-cuda-graph "
        "--cpu-offload-gb 4 --speculative-algorithm EAGLE --speculative-draft-model-path org/draft "
        "--enable-hierarchical-cache --hicache-ratio 3 --max-running-requests 64 --page-size 16"
    )
    settings = parsed.settings
    assert settings.dp_size == 2
    assert settings.enable_dp_attention is True
    assert settings.kv_cache_dtype == "fp8_e4m3"
    assert settings.chunked_prefill_size == -1
    assert settings.max_total_tokens == 64 * 1024
    assert settings.decode_graphs is False
    assert settings.prefill_graphs is False
    assert settings.cpu_offload_bytes == 4 * GIB
    assert settings.speculative_draft_model_path == "org/draft"
    assert settings.hicache_ratio == 3
    assert settings.page_size == 16


def test_graph_flags_of_all_ages_mean_the_same() -> None:
    older = parse_command(
        "python -m sglang.launch_server --model-path m --cuda-graph-max-bs 16 "
        "--disable-piecewise-cuda-graph",
        version="0.5.12",
    ).settings
    newer = parse_command(
        "sglang serve m --cuda-graph-max-bs-decode 16 --disable-prefill-cuda-graph"
    ).settings
    config = parse_command(
        [
            *("sglang", "serve", "m", "--cuda-graph-config"),
            '{"decode": {"max_bs": 16}, "prefill": {"backend": "disabled"}}',
        ]
    ).settings
    for settings in (older, newer, config):
        assert settings.cuda_graph_max_bs == 16
        assert settings.prefill_graphs is False


def test_unknown_and_idle_flags_are_named() -> None:
    parsed = parse_command("sglang serve org/model --not-a-flag 3 --host 0.0.0.0 --port 30000")
    assert parsed.settings.unknown_flags == ("--not-a-flag",)
    assert set(parsed.settings.ignored_flags) == {"--host", "--port"}
    assert parsed.model == "org/model"


def test_a_deployment_file_is_read() -> None:
    parsed = parse_command(
        "services:\n"
        "  llm:\n"
        "    image: lmsysorg/sglang:v0.5.23\n"
        "    environment:\n"
        "      SGLANG_PP_LAYER_PARTITION: '40,40'\n"
        "    command: python3 -m sglang.launch_server --model-path org/model --pp-size 2 --tp 4\n"
    )
    assert parsed.settings.tp_size == 4
    assert parsed.settings.environment == {"SGLANG_PP_LAYER_PARTITION": "40,40"}


def test_a_configuration_file_is_read_when_allowed(tmp_path: Path) -> None:
    file = tmp_path / "server.yaml"
    file.write_text("model-path: org/model\ntp-size: 4\nmem-fraction-static: 0.8\n")
    command = f"sglang serve --config {file} --tp-size 8"
    with pytest.raises(CommandLineError, match="not read here"):
        parse_command(command)
    parsed = parse_command(command, allow_files=True)
    assert parsed.model == "org/model"
    assert (parsed.settings.tp_size, parsed.settings.mem_fraction_static) == (8, 0.8)


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        ("vllm serve org/model", "not SGLang"),
        ("sglang serve --tp 8", "names no model"),
        ("sglang serve org/model --tp eight", "invalid"),
        ("sglang serve org/model --tp 0", "tp_size is 0"),
        ("sglang serve org/model --mem-fraction-static 1.7", "mem_fraction_static is 1.7"),
        ("sglang serve org/model --mem-fraction-static", "expected one argument"),
        ("sglang serve $MODEL", "not set"),
        ("sglang serve org/model --device cpu", "only SGLang on GPUs"),
        ("sglang serve org/model --cuda-graph-config nonsense", "not valid JSON"),
    ],
)
def test_mistakes_get_one_sentence(command: str, sentence: str) -> None:
    with pytest.raises(CommandLineError, match=sentence) as caught:
        parse_command(command)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value", "field", "held"),
    [
        ("disable_cuda_graph", True, "decode_graphs", False),
        ("disable_cuda_graph", False, "prefill_graphs", None),
        ("disable_piecewise_cuda_graph", True, "prefill_graphs", False),
        ("cpu_offload_gb", 3, "cpu_offload_bytes", 3 * 2**30),
        ("hicache_size", 2, "hicache_size_bytes", 2 * 10**9),
        ("cuda_graph_max_bs_decode", 16, "cuda_graph_max_bs", 16),
        ("attention_context_parallel_size", 2, "attn_cp_size", 2),
        ("tensor_parallel_size", 4, "tp_size", 4),
        ("max_model_len", 4096, "context_length", 4096),
    ],
)
def test_settings_by_any_name(name: str, value: object, field: str, held: object) -> None:
    assert getattr(SGLANG.settings(None, {name: value}), field) == held


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("disable_cuda_graph", "maybe", "it must be true or false"),
        ("cpu_offload_gb", "3", "whole number"),
        ("disable_cuda_graf", True, "did you mean disable_cuda_graph"),
    ],
)
def test_wrong_settings_get_one_sentence(name: str, value: object, said: str) -> None:
    with pytest.raises(DeploymentError, match=said):
        SGLANG.settings(None, {name: value})


@pytest.mark.parametrize(
    ("method", "said"),
    [("foo", r"SGLang's --quantization is 'foo'.*w8a8_int8"), ("quark", "needs a checkpoint")],
)
def test_quantization_is_named_as_sglang_names_it(method: str, said: str) -> None:
    with pytest.raises(DeploymentError, match=said):
        fit("Qwen/Qwen3-8B", "h100", engine="sglang", quantization=method)


def test_quantization_of_a_quantised_checkpoint_changes_nothing() -> None:
    model = "Qwen/Qwen3-235B-A22B-FP8"
    plain = fit(model, "h100", engine="sglang", tp=4)
    named = fit(model, "h100", engine="sglang", tp=4, quantization="fp8")
    assert named.plan.stages == plain.plan.stages


def test_context_parallel_ranks_keep_whole_attention() -> None:
    """Qwen3-32B on four RTX 5090: 15.50 GiB of weights a rank, and 18.25 with two CP ranks."""
    for ranks, logged in ((1, 15.50), (2, 18.25)):
        result = fit(
            "Qwen/Qwen3-32B", "rtx-5090", engine="sglang@0.5.13.post1", tp=4, attn_cp_size=ranks
        )
        loaded = result.plan.stages[0].weights_bytes + LOADING_BYTES
        assert loaded / GIB == pytest.approx(logged, abs=0.005)
    with pytest.raises(DeploymentError, match="attn_cp_size is 3"):
        fit("Qwen/Qwen3-32B", "rtx-5090", engine="sglang", tp=4, attn_cp_size=3)


def test_a_list_that_one_flag_took_as_json() -> None:
    command = "sglang serve m --piecewise-cuda-graph-tokens '[4, 8]'"
    assert parse_command(command, version="0.5.6").settings.prefill_graph_tokens == (4, 8)
    for wrong in ("4", "[4", '["a"]'):
        with pytest.raises(CommandLineError, match="give a list of whole numbers"):
            parse_command(command.replace("[4, 8]", wrong), version="0.5.6")
