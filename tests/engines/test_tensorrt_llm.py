"""TensorRT-LLM: its pool rule, its settings, and the rows people reported."""

import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenroom import fit, load_model
from tokenroom.cli.main import main
from tokenroom.engines.tensorrt_llm.arguments import parse_command
from tokenroom.engines.tensorrt_llm.built_engine import build_rules, runtime_terms
from tokenroom.engines.tensorrt_llm.policy import TENSORRT_LLM
from tokenroom.engines.tensorrt_llm.resolve import graph_batches
from tokenroom.engines.tensorrt_llm.settings import TensorRTSettings
from tokenroom.errors import CommandLineError, TokenroomError
from tokenroom.fitting import FitResult
from tokenroom.memory.rank_weights import split_layers
from tokenroom.models.quantization.hypothetical import what_if
from tokenroom.units import GIB, KIB, MIB

HEADROOM = 0.001


def trt(model: str, gpu: str, **settings: object) -> FitResult:
    return fit(model, gpu, engine="tensorrt-llm", **settings)  # type: ignore[arg-type]


def printed_buffers(
    model: str, version: str, sequences: int, length: int, weights: str | None, vocabulary: int
) -> tuple[float, float]:
    """MiB of the runtime's buffers and of the decoder's, as two log lines print them."""
    spec = replace(load_model(model), vocab_size=vocabulary)
    if weights is not None:
        spec = what_if(spec, weights)
    terms = dict(runtime_terms(spec, build_rules(version), sequences, length, 1))
    runtime = terms.pop("step_logits") + terms.pop("sequence_tables")
    return runtime / MIB, sum(terms.values()) / MIB


class TestBuiltEngines:
    @pytest.mark.parametrize(
        ("model", "version", "sequences", "length", "weights", "vocabulary", "runtime", "decoder"),
        [  # "Allocated ... GPU memory for runtime buffers", "... for decoder"
            ("llama-2-7b-hf", "0.12", 256, 2048, "fp8", 32000, 43.29, 180.30),  # memory.md
            ("llama-2-7b-hf", "0.12", 4096, 4098, "fp8", 50400, 1.14 * KIB, 4.35 * KIB),  # GPT-J
            ("llama-3-8b-instruct", "0.13", 8, 8000, "awq", 128256, 3.44, 15.05),  # backend 577
            ("glm-4-9b-0414", "0.13", 1, 2048, "int8", 151552, 648.06 / KIB, 2.98),  # backend 625
            ("qwen2.5-0.5b", "0.15", 2048, 32768, "int8", 151936, 2.66 * KIB, 5.76 * KIB),  # 1188
        ],
    )
    def test_buffers_are_what_five_logs_print(
        self,
        model: str,
        version: str,
        sequences: int,
        length: int,
        weights: str,
        vocabulary: int,
        runtime: float,
        decoder: float,
    ) -> None:
        counted = printed_buffers(model, version, sequences, length, weights, vocabulary)
        assert counted[0] == pytest.approx(runtime, rel=0.015)
        assert counted[1] == pytest.approx(decoder, rel=0.002)

    def test_defaults_by_release(self) -> None:
        found = {
            version: fit("llama-3-8b", "h100", engine=f"tensorrt-llm@{version}").deployment.resolved
            for version in ("0.8", "0.9", "0.12", "0.16", "0.20")
        }
        batches = [resolved.max_batch_size for resolved in found.values()]
        assert batches == [1, 1, 256, 2048, 2048]
        blocks = [resolved.tokens_per_block for resolved in found.values()]
        assert blocks == [128, 64, 64, 64, 32]
        assert [resolved.max_seq_len for resolved in found.values()][1:3] == [2048, 8192]

    def test_a_step_is_at_most_the_whole_batch(self) -> None:
        answer = trt("qwen2.5-7b", "l4", backend="tensorrt", max_batch_size=1, context=512)
        assert answer.deployment.resolved.max_num_tokens == 512

    @pytest.mark.parametrize(("version", "starts"), [("0.10", False), ("0.11", True)])
    def test_a_pool_below_one_request(self, version: str, starts: bool) -> None:
        """An error up to 0.10 (tensorrtllm_backend issue 366), a shorter max_seq_len from then."""
        answer = fit(
            "mistral-7b-v0.1",
            "a10g",
            engine=f"tensorrt-llm@{version}",
            max_batch_size=1,
            max_num_tokens=2048,
            max_seq_len=131072,
        )
        refusal = answer.plan.refusal
        if starts:
            assert refusal is None
            assert answer.plan.max_model_len < 131072
        else:
            assert refusal is not None
            assert refusal.cause == "kv_below_one_request"

    def test_tables_are_whole_on_every_rank(self) -> None:
        """TensorRT-LLM issue 2305: 4585 MiB of engine on each of four ranks, Llama-3-8B."""
        answer = fit("llama-3-8b-instruct", "l40s", tp=4, engine="tensorrt-llm@0.13")
        assert answer.plan.stages[0].weights_bytes == pytest.approx(4585 * MIB, rel=0.002)

    def test_calibrated_tables_are_cut(self) -> None:
        """tensorrtllm_backend issue 577: 2723 MiB on each of two ranks, Llama-3-8B in AWQ."""
        answer = fit(
            "llama-3-8b-instruct", "a100-80gb", tp=2, weights="awq", engine="tensorrt-llm@0.13"
        )
        assert answer.plan.stages[0].weights_bytes == pytest.approx(2723 * MIB, rel=0.01)


class TestLengths:
    def test_longer_than_the_model_is_lowered(self) -> None:
        answer = trt("llama-3.1-8b", "h100", context=200_000)
        assert answer.deployment.resolved.max_seq_len == 131072
        assert answer.verdict == "fits_with_less"
        assert "max_seq_len_lowered" in {notice.key for notice in answer.notices}

    def test_a_prompt_is_at_most_a_step(self) -> None:
        keys = {notice.key for notice in trt("llama-3.1-8b", "h100", context=65536).notices}
        assert "prompt_limited" in keys
        chunked = trt("llama-3.1-8b", "h100", context=65536, enable_chunked_prefill=True)
        assert "prompt_limited" not in {notice.key for notice in chunked.notices}

    def test_its_own_names(self, capsys: pytest.CaptureFixture[str]) -> None:
        main(["fit", "llama-3.1-8b", "--gpu", "h100", "--engine", "tensorrt-llm"])
        assert "The longest max_seq_len that fits" in capsys.readouterr().out

    def test_a_request_too_long_is_said_to_be(self, capsys: pytest.CaptureFixture[str]) -> None:
        command = ["fit", "llama-3.1-8b", "--gpu", "h100", "--engine", "tensorrt-llm"]
        assert main([*command, "--context", "200000"]) == 1
        words = " ".join(capsys.readouterr().out.split())
        assert "takes requests of at most 131,072 tokens and refuses one of 200,000" in words


def test_unified_memory_holds_the_page_cache() -> None:
    assert "page_cache_in_use" in {n.key for n in trt("gpt-oss-20b", "gb10").notices}
    assert "page_cache_in_use" not in {n.key for n in trt("gpt-oss-20b", "h100").notices}


class TestPool:
    def test_a_fraction_of_what_is_free_after_the_run(self) -> None:
        stage = trt("llama-3.1-8b", "h100", context=8192).plan.stages[0]
        held = (
            stage.context_bytes
            + stage.weights_bytes
            + stage.activation.num_bytes
            + stage.cuda_graphs.num_bytes
            + stage.non_torch.num_bytes
            + stage.buffers_bytes
        )
        assert stage.available_bytes == round((stage.total_bytes - held) * 0.9)
        assert 0 <= stage.available_bytes - stage.kv_pool_bytes < 32 * 128 * KIB

    @pytest.mark.parametrize("fraction", [0.1, 0.5, 0.85, 1.0])
    def test_tokens_follow_the_fraction(self, fraction: float) -> None:
        whole = trt("llama-3.1-8b", "h100", context=8192, util=1.0).plan.kv_pool_tokens
        part = trt("llama-3.1-8b", "h100", context=8192, util=fraction).plan.kv_pool_tokens
        assert part == pytest.approx(whole * fraction, abs=64)

    def test_from_the_engine_s_own_memory_figure(self) -> None:
        """Bytes over bytes a token, in whole blocks: three logs of issues.

        TensorRT-LLM 2268: 21.89 GiB x 0.9 are 631 blocks of 64; 1400: 69524783104 bytes are 132608
        tokens; tensorrtllm_backend 366: 7767851008 bytes on four GPUs are 237056.
        """
        given = fit(
            "llama-2-7b-hf",
            "a100-40gb",
            engine="tensorrt-llm@0.13",
            kv_cache_memory_bytes=round(21.89 * GIB * 0.9),
            context=4096,
        )
        assert given.plan.kv_blocks == 631
        given = trt("llama-2-7b-hf", "h200", kv_cache_memory_bytes=69524783104, context=4096)
        assert given.plan.kv_pool_tokens == 132608
        given = trt("mistral-7b-v0.1", "a10g", kv_cache_memory_bytes=7767851008, tp=4)
        assert given.plan.kv_pool_tokens == pytest.approx(237056, rel=HEADROOM)
        assert given.plan.pool_is_exact

    def test_from_flags_alone(self) -> None:
        """TensorRT-LLM issue 224: Llama-2-7B on A10, batch 25, output 4096, fraction 0.95."""
        answer = fit(
            "llama-2-7b-hf",
            "a10",
            engine="tensorrt-llm@0.5.0",
            util=0.95,
            dtype="float16",
            max_batch_size=25,
            max_output_len=4096,
            tokens_per_block=16,
        )
        assert answer.plan.kv_pool_tokens == pytest.approx(10718, rel=0.08)
        low, high = answer.kv_pool_tokens_range
        assert low < 10718 < high

    def test_a_context_built_for_too_many_prompts_does_not_load(self) -> None:
        """TensorRT-LLM issue 401: batch 192 of 2048 tokens on an A100-40GB, out of memory."""
        answer = trt(
            "llama-2-7b-hf",
            "a100-40gb",
            max_batch_size=192,
            max_input_len=2048,
            max_output_len=2048,
        )
        assert answer.plan.refusal is not None
        assert answer.plan.refusal.cause == "profile_peak"

    def test_max_tokens_bounds_it(self) -> None:
        answer = trt("llama-3.1-8b", "h100", max_tokens=100_000, context=8192)
        assert answer.plan.kv_pool_tokens == 100_000 // 32 * 32
        assert answer.plan.pool_is_exact

    def test_heads_are_repeated_past_their_number_but_not_in_the_estimate(self) -> None:
        two = trt("qwen2.5-7b", "h100", tp=2)
        four = trt("qwen2.5-7b", "h100", tp=4)
        eight = four.plan.caches[0]
        assert eight.token_bytes == two.plan.caches[0].token_bytes // 2
        wide = trt("llama-3.1-8b", "h100", tp=16, context=8192).plan.caches[0]
        assert wide.token_bytes == 2 * wide.estimated_bytes

    def test_latent_attention_is_whole_on_every_rank(self) -> None:
        answer = trt("deepseek-v3", "h200", tp=8, context=8192)
        assert answer.plan.kv_bytes_of(32) == 32 * 61 * 576 * 2
        apart = trt("deepseek-v3", "h200", tp=8, ep=True, context=8192, enable_attention_dp=True)
        assert apart.plan.kv_bytes_of(32) == answer.plan.kv_bytes_of(32)
        assert apart.plan.requests_of(8192) % 8 == 0
        assert apart.plan.stages[0].weights_bytes > answer.plan.stages[0].weights_bytes

    @pytest.mark.parametrize(("kv", "share"), [("fp8", 2), ("nvfp4", 32 / 9)])
    def test_narrow_caches(self, kv: str, share: float) -> None:
        plain = trt("llama-3.1-8b", "b200", context=8192).plan.caches[0].token_bytes
        narrow = trt("llama-3.1-8b", "b200", context=8192, kv=kv).plan.caches[0].token_bytes
        assert plain / narrow == pytest.approx(share)

    def test_windows_share_the_memory_evenly(self) -> None:
        answer = trt("gpt-oss-20b", "h100", max_attention_window=[128, 131072])
        blocks = answer.plan.pools.blocks
        assert set(blocks) == {128, 131072}
        assert blocks[128] == blocks[131072]  # twelve layers each
        own = trt(
            "gpt-oss-20b",
            "h100",
            max_attention_window=[128, 131072],
            environment={"TRTLLM_WINDOW_SIZE_SHARES": "0.1,0.9"},
        ).plan.pools.blocks
        assert own[131072] == pytest.approx(9 * own[128], rel=0.01)

    def test_recurrent_states_are_laid_out_for_the_batch(self) -> None:
        answer = trt("qwen3-next-80b-a3b-instruct", "h100", tp=4, max_batch_size=64)
        plan = answer.plan
        state = plan.caches[0].state_bytes
        assert plan.pools.slots == 64 + 1 + plan.kv_pool_tokens // 256
        assert plan.kv_bytes_of(32) == 32 * plan.caches[0].token_bytes + state
        plain = trt(
            "qwen3-next-80b-a3b-instruct",
            "h100",
            tp=4,
            max_batch_size=64,
            enable_block_reuse=False,
        )
        assert plain.plan.pools.slots == 65

    def test_stages_hold_their_own_layers(self) -> None:
        plan = trt("llama-3.1-70b", "h100", tp=2, pp=4, context=8192).plan
        layers = [len(split_layers(80, 4, stage)) for stage in range(4)]
        each = [cache.token_bytes for cache in plan.caches]
        assert each == [count * 2 * 128 * 4 * 2 for count in layers]

    def test_a_pool_too_small_for_the_length_shortens_it(self) -> None:
        answer = trt("llama-3.1-8b", "4090")
        assert answer.plan.refusal is None
        assert answer.plan.max_model_len == answer.plan.kv_pool_tokens < 131072
        assert "max_seq_len_reduced" in {notice.key for notice in answer.notices}
        strict = trt("llama-3.1-8b", "4090", fail_fast_on_attention_window_too_large=True)
        assert strict.plan.refusal is not None
        assert strict.plan.refusal.cause == "kv_below_one_request"

    def test_weights_beyond_the_card_are_refused(self) -> None:
        answer = trt("llama-3.1-70b", "h100")
        assert answer.plan.refusal is not None
        assert answer.plan.refusal.cause == "weights_too_big"
        assert any(change.key == "tensor_parallel_size" for change in answer.changes_that_fit)

    def test_the_host_pool_is_explained(self) -> None:
        answer = trt("llama-3.1-8b", "h100", host_cache_size=8 * GIB, context=8192)
        lines = {line.key: line for line in answer.explain}
        assert lines["host_pool"].num_bytes == 8 * GIB
        assert lines["kv_pool"].num_bytes == answer.plan.stages[0].kv_pool_bytes

    @pytest.mark.parametrize("gpus", [1, 2, 4, 8])
    def test_more_ranks_never_hold_more(self, gpus: int) -> None:
        one = trt("llama-3.1-70b", "h200", tp=gpus, context=8192).plan
        two = trt("llama-3.1-70b", "h200", tp=2 * gpus, context=8192).plan
        assert two.stages[0].weights_bytes < one.stages[0].weights_bytes
        assert two.kv_pool_tokens > one.kv_pool_tokens


class TestDefaults:
    def test_graph_batches(self) -> None:
        assert graph_batches(128, padded=False) == (*range(1, 32), 32, 64, 128)
        assert graph_batches(300, padded=False)[-3:] == (128, 256, 300)
        assert graph_batches(256, padded=True)[:5] == (1, 2, 4, 8, 16)
        assert graph_batches(256, padded=True)[-3:] == (128, 192, 256)
        assert graph_batches(1, padded=False) == (1,)

    def test_graphs_cost_memory(self) -> None:
        with_graphs = trt("llama-3.1-8b", "h100", context=8192).plan
        without = trt("llama-3.1-8b", "h100", context=8192, enforce_eager=True).plan
        assert without.stages[0].cuda_graphs.num_bytes == 0
        assert without.kv_pool_tokens > with_graphs.kv_pool_tokens

    def test_versions_before_1_build_an_engine(self) -> None:
        answer = fit("llama-3.1-8b", "h100", engine="tensorrt-llm@0.17", context=8192)
        assert answer.deployment.settings["backend"].value == "tensorrt"
        assert answer.plan.kv_block_size == 64


class TestCommands:
    def test_flags_and_yaml(self, tmp_path: Path) -> None:
        config = tmp_path / "cfg.yaml"
        config.write_text(
            "kv_cache_config:\n  free_gpu_memory_fraction: 0.85\n  dtype: fp8\n"
            "  tokens_per_block: 64\n  enable_block_reuse: false\n  host_cache_size: 1000000\n"
            "  max_tokens: 4096\n  onboard_blocks: true\n  odd_key: 1\n"
            "cuda_graph_config:\n  max_batch_size: 32\n  enable_padding: true\n"
            "speculative_config:\n  decoding_type: MTP\n  num_nextn_predict_layers: 2\n"
            "enable_attention_dp: true\nlora_config: {}\n"
        )
        parsed = parse_command(
            f"trtllm-serve meta-llama/Llama-3.1-8B --tp_size 8 --ep_size 4 --host 0.0.0.0 "
            f"--kv_cache_free_gpu_memory_fraction 0.5 --max_batch_size=64 --max_num_tokens 4096 "
            f"--max_seq_len 16384 --nonsense 3 --extra_llm_api_options {config}",
            allow_files=True,
        )
        asked: TensorRTSettings = parsed.settings
        assert parsed.engine == "tensorrt-llm"
        assert parsed.model == "meta-llama/Llama-3.1-8B"
        assert asked.tensor_parallel_size == 8
        assert asked.moe_expert_parallel_size == 4
        assert asked.free_gpu_memory_fraction == 0.85  # the file wins
        assert asked.kv_cache_dtype == "fp8"
        assert asked.tokens_per_block == 64
        assert asked.enable_block_reuse is False
        assert (asked.max_batch_size, asked.max_num_tokens) == (64, 4096)
        assert asked.cuda_graph_max_batch_size == 32
        assert (asked.speculative_type, asked.speculative_tokens) == ("MTP", 2)
        assert asked.enable_attention_dp is True
        assert asked.unknown_flags == ("--nonsense", "kv_cache_config.odd_key")
        assert "--host" in asked.ignored_flags
        assert any("lora_config" in note for note in parsed.notes)

    def test_keys_of_the_yaml_are_called_keys(self, tmp_path: Path) -> None:
        config = tmp_path / "cfg.yaml"
        config.write_text("odd_key: 1\nkv_cache_config:\n  onboard_blocks: true\n")
        parsed = parse_command(
            f"trtllm-serve m --nonsense 3 --extra_llm_api_options {config}", allow_files=True
        )
        answer = fit("llama-3.1-8b", "h100", engine="tensorrt-llm", settings=parsed.settings)
        found = {(notice.key, *notice.values.values()) for notice in answer.notices}
        assert ("unknown_flag", "--nonsense") in found
        assert ("unknown_key", "odd_key") in found
        assert ("ignored_keys", "kv_cache_config.onboard_blocks") in found
        unread = parse_command("trtllm-serve m --extra_llm_api_options /no.yaml")
        assert unread.notes[0].startswith("--extra_llm_api_options /no.yaml was not read")

    def test_flags_of_built_engines_mean_that_backend(self) -> None:
        parsed = parse_command(
            "trtllm-serve m --dtype float16 --tokens_per_block 16 --max_batch_size 25"
        )
        assert parsed.settings.backend == "tensorrt"
        assert (parsed.settings.dtype, parsed.settings.tokens_per_block) == ("float16", 16)
        answer = fit("mistral-7b-v0.1", "a10g", tp=4, engine="tensorrt-llm@0.8")
        assert "build_may_not_start" in {notice.key for notice in answer.notices}
        answer = fit("mistral-7b-v0.1", "a10g", tp=4, engine="tensorrt-llm@0.12")
        assert "build_not_stated" in {notice.key for notice in answer.notices}

    @pytest.mark.parametrize(
        "text",
        [
            "docker run --gpus all nvcr.io/nvidia/tensorrt-llm/release:1.1.0 "
            "trtllm-serve m --tp_size 2",
            "mpirun -n 2 trtllm-llmapi-launch trtllm-serve serve m --tp_size 2",
            "python3 -m tensorrt_llm.commands.serve m --tp_size=2",
            "trtllm-bench --model m throughput --tp 2 --backend pytorch",
            "services:\n  llm:\n    image: nvcr.io/nvidia/tensorrt-llm/release:1.1.0\n"
            "    command: trtllm-serve m --tp_size 2\n",
        ],
    )
    def test_forms(self, text: str) -> None:
        parsed = parse_command(text)
        assert parsed.model == "m"
        assert parsed.settings.tensor_parallel_size == 2
        assert parsed.version in (None, "1.1.0")

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("vllm serve m", "not TensorRT-LLM"),
            ("trtllm-serve --tp_size 2", "names no model"),
            ("trtllm-serve m --tp_size two", "--tp_size is 'two'"),
            ("trtllm-serve m --tp_size", "--tp_size has no value"),
            ("trtllm-serve m --free_gpu_memory_fraction high", "must be a number"),
            ("trtllm-serve m --free_gpu_memory_fraction 1.5", "at most 1"),
            ("trtllm-serve m --config /nowhere/x.yaml", "cannot be read"),
            ("trtllm-serve m --backend torch", "backend is 'torch'"),
            ("trtllm-serve $MODEL", "is not set"),
        ],
    )
    def test_bad_commands_are_one_sentence(self, text: str, words: str) -> None:
        with pytest.raises(CommandLineError) as caught:
            parse_command(text, allow_files=True)
        assert words in str(caught.value)
        assert "\n" not in str(caught.value)

    def test_a_damaged_yaml(self, tmp_path: Path) -> None:
        config = tmp_path / "cfg.yaml"
        for text in ("- a\n- b\n", "a: [", "kv_cache_config: 3\n"):
            config.write_text(text)
            with pytest.raises(CommandLineError):
                parse_command(f"trtllm-serve m --config {config}", allow_files=True)

    def test_the_command_line(self, capsys: pytest.CaptureFixture[str]) -> None:
        words = ["fit", "--gpu", "h100", "--json", "--", "trtllm-serve", "llama-3.1-8b"]
        assert main([*words, "--max_seq_len", "8192"]) == 0
        data = json.loads(capsys.readouterr().out)
        assert data["engine"]["name"] == "tensorrt-llm"
        assert data["kv_block_size"] == 32
        assert main(["fit", "--gpu", "h100", "--engine", "vllm", "--", *words[5:]]) == 2
        assert "the command starts tensorrt-llm" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"tokens_per_block": 48}, "power of two"),
        ({"kv": "int4"}, "kv_cache_dtype is 'int4'"),
        ({"kv": "nvfp4"}, "needs a Blackwell GPU"),
        ({"util": 0.0}, "free_gpu_memory_fraction is 0.0"),
        ({"dp": 2}, "data_parallel_size"),
        ({"moe_expert_parallel_size": 3, "tp": 4}, "must divide"),
        ({"max_attention_window": []}, "must be a list"),
        ({"max_beam_width": 10, "max_batch_size": 4}, "beyond max_batch_size"),
        ({"frac": 0.5}, "has no setting 'frac'"),
        ({"pp": 64}, "has 32 layers"),
    ],
)
def test_bad_input_is_one_sentence(setting: dict[str, object], words: str) -> None:
    with pytest.raises(TokenroomError) as caught:
        trt("llama-3.1-8b", "h100", **setting)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_activation_is_one_layer_at_the_budget() -> None:
    small = trt("llama-3.1-8b", "h100", max_num_tokens=4096).plan.stages[0].activation
    large = trt("llama-3.1-8b", "h100", max_num_tokens=8192).plan.stages[0].activation
    fixed = 32 * MIB
    assert large.num_bytes - fixed == 2 * (small.num_bytes - fixed)


def test_reservations_are_described() -> None:
    assert {item.what for item in TENSORRT_LLM.reserves} >= {"KV pool", "host pool"}


_WORDS = st.sampled_from(
    [
        *("trtllm-serve", "serve", "m", "--tp_size", "--tp_size=2", "8", "--config", "cfg.yaml"),
        *("--max_batch_size", "0", "-1", "--kv_cache_free_gpu_memory_fraction", "0.5", "nan", "="),
        *("--backend", "trt", "--dtype", "--enable_chunked_prefill", "--", "-", "--host", "$X", ""),
        *("--tokens_per_block", "48", "--unknown", "--unknown=1", "--trust_remote_code"),
    ]
)


@given(words=st.lists(_WORDS, max_size=12))
def test_no_command_is_a_traceback(words: list[str]) -> None:
    with suppress(CommandLineError):
        parsed = parse_command(["trtllm-serve", *words])
        assert isinstance(parsed.settings, TensorRTSettings)


_VALUES = st.sampled_from(
    [None, True, False, 0, 1, -3, 64, 2**70, 0.5, -1.0, 1e300, "", "fp8", "nan", [], [8, 4], ["x"]]
)
_KEYS = st.sampled_from(
    [
        *("kv_cache_config", "cuda_graph_config", "speculative_config", "dtype", "backend"),
        *("tensor_parallel_size", "enable_attention_dp", "max_seq_len", "odd", "quant_config"),
    ]
)
_INNER = st.sampled_from(
    [
        *("free_gpu_memory_fraction", "dtype", "tokens_per_block", "max_attention_window"),
        *("max_tokens", "batch_sizes", "max_batch_size", "enable_padding", "decoding_type"),
        *("max_draft_len", "speculative_model", "host_cache_size"),
    ]
)


@settings(max_examples=60, deadline=None)
@given(
    document=st.dictionaries(
        _KEYS, _VALUES | st.dictionaries(_INNER, _VALUES, max_size=3), max_size=3
    )
)
def test_no_yaml_is_a_traceback(
    tmp_path_factory: pytest.TempPathFactory, document: dict[str, object]
) -> None:
    file = tmp_path_factory.mktemp("yaml") / "cfg.yaml"
    file.write_text(json.dumps(document))
    with suppress(TokenroomError):
        parsed = parse_command(["trtllm-serve", "m", "--config", str(file)], allow_files=True)
        if parsed.settings.speculative_model is None:
            fit("llama-3.2-1b", "h100", engine="tensorrt-llm", settings=parsed.settings)
