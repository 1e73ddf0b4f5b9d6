from tokenroom.fitting import fit
from tokenroom.models.resolve import load_model
from tokenroom.watching.helps import helps
from tokenroom.watching.observation import Alert, Value


def alert(key: str, **values: Value) -> Alert:
    return Alert(key=key, severity="warning", subject="u", since=0.0, values=values)


def test_remedies_of_a_full_pool_are_the_engine_s_own() -> None:
    for engine, flag in (("vllm", "--kv-cache-dtype fp8"), ("sglang", "--kv-cache-dtype fp8_e4m3")):
        found = helps(alert("kv_high"), engine, None, waterline=0.8)
        assert flag in [one.flag for one in found]
        assert "length" not in [one.key for one in found]  # the requests are served already


def test_the_effect_is_predicted_where_the_deployment_is_known() -> None:
    result = fit(load_model("Llama-3.1-8B-Instruct"), "h100", context=8192)
    found = {one.key: one for one in helps(alert("kv_high"), "vllm", result, waterline=0.8)}
    fp8 = found["kv_type"]
    assert fp8.starts is True
    assert fp8.pool_tokens_before == result.plan.kv_pool_tokens
    assert fp8.pool_tokens_after is not None
    assert fp8.pool_tokens_after > 1.9 * result.plan.kv_pool_tokens


def test_a_queue_is_helped_by_a_larger_pool_only_where_the_pool_is_full() -> None:
    assert helps(alert("queue_growing", kv_share=0.2), "vllm", None, waterline=0.8) == ()
    assert helps(alert("queue_growing", kv_share=0.9), "vllm", None, waterline=0.8) != ()
    assert helps(alert("queue_growing", kv_share=None), "vllm", None, waterline=0.8) == ()


def test_fragments_leaks_and_strangers() -> None:
    (one,) = helps(alert("torch_gap"), "torch", None, waterline=0.8)
    assert "expandable_segments" in one.flag
    assert [one.key for one in helps(alert("gpu_leak"), None, None, waterline=0.8)] == [
        "leak_version",
        "leak_limit",
    ]
    assert [one.key for one in helps(alert("above_plan"), None, None, waterline=0.8)] == [
        "stop_others"
    ]


def test_what_has_no_remedy_has_none() -> None:
    for key in ("endpoint_down", "restarted", "process_vanished", "pool_larger"):
        assert helps(alert(key), "vllm", None, waterline=0.8) == ()
