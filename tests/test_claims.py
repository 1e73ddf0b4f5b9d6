"""Published figures of two articles: right ones come out, wrong ones come out corrected.

The figures and their corrections are listed in docs/claims.md; each test names its row there.
"""

import pytest

from tokenroom import fit, load_limits, load_model, speed
from tokenroom.memory.kv_cache import attention_bytes_per_token, request_bytes
from tokenroom.memory.weights import checkpoint_weights
from tokenroom.models.hf_config import read_config
from tokenroom.models.quantization import what_if
from tokenroom.models.spec import Attention, DenseFFN, ModelSpec, MoEFFN, Role
from tokenroom.units import GIB, KIB


def only_attention(spec: ModelSpec) -> Attention:
    (mixer,) = spec.layers[0].mixers
    assert isinstance(mixer, Attention)
    return mixer


class TestRight:
    def test_llama_2_7b_kv(self) -> None:
        spec = load_model("meta-llama/Llama-2-7b-hf")
        assert attention_bytes_per_token(only_attention(spec), "float16") == 16 * KIB
        assert request_bytes(spec, 1, "float16") == 512 * KIB
        for tokens, gib in ((4096, 2), (8192, 4), (32768, 16)):
            assert request_bytes(spec, tokens, "float16") == gib * GIB

    @pytest.mark.parametrize(
        ("layout", "bytes_per_weight"),
        [("fp32", 4), ("fp16", 2), ("bf16", 2), ("int8", 1), ("fp8", 1), ("nf4", 0.5)],
    )
    def test_bytes_of_each_type(self, layout: str, bytes_per_weight: float) -> None:
        """Scales and what stays unquantised come on top of the plain ratio."""
        spec = load_model("meta-llama/Llama-2-7b-hf")
        linear = sum(
            count * weight.parameters
            for section, weight, count in spec.all_weights()
            if weight.role is Role.LINEAR
        )
        rest = spec.parameters_total - linear
        total = checkpoint_weights(what_if(spec, layout)).total_bytes
        plain = linear * bytes_per_weight + rest * min(2, max(bytes_per_weight, 2))
        if layout == "fp32":
            plain = spec.parameters_total * 4
        assert plain <= total <= plain * 1.16

    def test_weights_of_70b(self) -> None:
        spec = load_model("meta-llama/Meta-Llama-3-70B")
        assert checkpoint_weights(spec).total_bytes / 1e9 == pytest.approx(141.1, abs=0.05)
        rank = fit(spec, "a100-80gb", tp=8, context=4096).plan.stages[0]
        assert rank.weights_bytes / 1e9 == pytest.approx(17.6, abs=0.1)

    def test_quantised_7b(self) -> None:
        spec = load_model("meta-llama/Llama-2-7b-hf")
        int8 = checkpoint_weights(what_if(spec, "int8")).total_bytes / 1e9
        int4 = checkpoint_weights(what_if(spec, "awq")).total_bytes / 1e9
        assert int8 == pytest.approx(7, abs=0.2)
        assert int4 == pytest.approx(4, abs=0.2)

    def test_tensor_parallel_replicates_kv_heads_past_their_number(self) -> None:
        spec = load_model("meta-llama/Meta-Llama-3.1-70B")
        mixer = only_attention(spec)
        per_rank = [
            attention_bytes_per_token(mixer, "bfloat16", tensor_parallel_size=tp)
            for tp in (1, 2, 4, 8, 16)
        ]
        assert per_rank == [4096, 2048, 1024, 512, 512]

    def test_capacity_at_one_length_says_nothing_about_another(self) -> None:
        spec = load_model("meta-llama/Llama-2-7b-hf")
        result = fit(spec, "a100-80gb", context=4096)
        short, long = result.plan.requests_of(1024), result.plan.requests_of(4096)
        assert short == pytest.approx(4 * long, abs=4)


class TestCorrected:
    def test_llama_3_70b_kv_is_eighth_of_ten_gigabytes(self) -> None:
        spec = load_model("meta-llama/Meta-Llama-3-70B")
        assert request_bytes(spec, 4096) == 2 * 80 * 8 * 128 * 4096 * 2 == round(1.25 * GIB)

    def test_llama_3_8b_kv_is_half_a_gib(self) -> None:
        assert request_bytes(load_model("meta-llama/Meta-Llama-3-8B"), 4096) == GIB // 2

    def test_concurrency_of_the_8xa100_case(self) -> None:
        """The article's 43 requests of 4096 tokens are about eight times as many."""
        result = fit("meta-llama/Meta-Llama-3-70B", "a100-80gb", tp=8, context=4096)
        assert 7 * 43 < result.requests_held < 9.5 * 43

    def test_a_decode_step_reads_the_weights(self) -> None:
        """The article's expression for a TPOT of 56.3 ms is 3.5 microseconds, below any step."""
        asked = speed(
            "meta-llama/Meta-Llama-3-70B",
            "8xa100-80gb",
            context=8192,
            input_tokens=4000,
            output_tokens=96,
            concurrency=43,
        )
        published_seconds = 43 * 80 * 8192 * 2 / 16e12
        assert published_seconds == pytest.approx(3.5e-6, rel=0.01)
        (one,) = load_limits(asked, tpot_seconds=published_seconds).unmet
        assert one.floor.seconds == pytest.approx(141e9 / 8 / 2.04e12, rel=0.02)  # 8.7 ms
        kv_seconds = 43 * request_bytes(asked.fit.deployment.spec, 4048) / 8 / 2.04e12
        assert asked.decode.time.seconds > one.floor.seconds + kv_seconds

    def test_throughput_rises_with_the_batch(self) -> None:
        asked = speed("meta-llama/Meta-Llama-3-70B", "8xa100-80gb", context=8192)
        rates = [asked.at(batch).output_tokens_per_second.value for batch in (1, 8, 64, 256)]
        assert rates == sorted(rates)
        assert rates[2] > 15 * rates[0]
        assert rates[3] < 1.5 * rates[2]  # until prompts and KV reads dominate

    def test_every_expert_is_resident(self) -> None:
        spec = load_model("mistralai/Mixtral-8x7B-v0.1")
        ffn = spec.layers[0].ffn
        assert isinstance(ffn, MoEFFN)
        assert spec.parameters_active < 0.3 * spec.parameters_total
        assert checkpoint_weights(spec).total_bytes == 2 * spec.parameters_total
        rank = fit(spec, "h200", context=4096).plan.stages[0]
        assert rank.weights_bytes > 2 * spec.parameters_total

    @pytest.mark.parametrize("gpus", [4, 8])
    def test_deepseek_v3_is_not_on_80_gb_cards(self, gpus: int) -> None:
        result = fit("deepseek-ai/DeepSeek-V3", "h100", tp=gpus)
        assert result.verdict == "does_not_fit"
        assert checkpoint_weights(result.deployment.spec).total_bytes > 671e9

    def test_405b_in_fp8_is_on_eight_80_gb_cards(self) -> None:
        spec = what_if(load_model("meta-llama/Meta-Llama-3.1-405B"), "fp8")
        result = fit(spec, "h100", tp=8, context=8192)
        stage = result.plan.stages[0]
        assert result.verdict == "fits"
        assert stage.weights_bytes / GIB == pytest.approx(47.5, abs=1)
        assert stage.kv_pool_bytes / GIB > 15

    def test_attention_weights_are_no_bias_matrix(self) -> None:
        spec = load_model("meta-llama/Meta-Llama-3-8B")
        shapes = {weight.name: weight for weight in spec.layers[0].weights}
        assert shapes["self_attn.q_proj"].shape == (32 * 128, 4096)
        assert shapes["self_attn.k_proj"].shape == (8 * 128, 4096)
        assert shapes["self_attn.q_proj"].bias == 0

    def test_feed_forward_width_is_the_configuration_s(self) -> None:
        spec = load_model("meta-llama/Meta-Llama-3-8B")
        ffn = spec.layers[0].ffn
        assert isinstance(ffn, DenseFFN)
        assert ffn.intermediate_size == 14336 != 4 * spec.hidden_size
        assert ffn.gated

    def test_activations_are_one_layer_s_not_all_layers_sum(self) -> None:
        result = fit("meta-llama/Meta-Llama-3-70B", "a100-80gb", tp=8, context=4096)
        assert result.plan.stages[0].activation.num_bytes < 3 * GIB  # the article sums to 53.7 GB

    def test_a_pipeline_stage_keeps_the_cache_of_its_own_layers(self) -> None:
        spec = load_model("meta-llama/Meta-Llama-3.1-8B")
        whole = fit(spec, "a100-80gb", context=8192).plan.stages[0]
        half = fit(spec, "a100-80gb", pp=2, context=8192).plan.stages[0]
        assert half.kv_bytes_per_token == whole.kv_bytes_per_token / 2

    def test_falcon_7b_has_one_kv_head_and_40b_has_eight(self) -> None:
        small = only_attention(load_model("tiiuae/falcon-7b"))
        large = only_attention(load_model("tiiuae/falcon-40b"))
        assert (small.num_kv_heads, large.num_kv_heads) == (1, 8)

    def test_llama_3_8b_on_one_a100_holds_about_twice_fifty(self) -> None:
        result = fit("meta-llama/Meta-Llama-3-8B", "a100-80gb", context=4096)
        assert 95 < result.requests_held < 125

    def test_speculative_decoding_adds_to_the_kv_peak(self) -> None:
        from tokenroom.engines.vllm.settings import SpeculativeSettings

        spec = load_model("deepseek-ai/DeepSeek-V3")
        plain = fit(spec, "h200", tp=8, context=8192)
        drafted = fit(
            spec,
            "h200",
            tp=8,
            context=8192,
            speculative=SpeculativeSettings(method="mtp", num_speculative_tokens=1),
        )
        assert drafted.plan.stages[0].weights_bytes > plain.plan.stages[0].weights_bytes
        assert drafted.plan.kv_pool_tokens < plain.plan.kv_pool_tokens

    def test_vllm_takes_a_share_of_the_total_not_of_what_weights_leave(self) -> None:
        stage = fit("meta-llama/Meta-Llama-3-8B", "h100", util=0.9).plan.stages[0]
        assert stage.budget_bytes == pytest.approx(0.9 * stage.total_bytes, abs=1)

    def test_key_value_heads_always_enter(self) -> None:
        config = {
            "model_type": "llama",
            "architectures": ["LlamaForCausalLM"],
            "hidden_size": 1024,
            "num_attention_heads": 16,
            "num_hidden_layers": 2,
            "intermediate_size": 2048,
            "vocab_size": 1000,
            "torch_dtype": "float16",
        }
        all_heads = read_config(config, "mha")
        grouped = read_config(config | {"num_key_value_heads": 2}, "gqa")
        assert request_bytes(all_heads, 100) == 8 * request_bytes(grouped, 100)
