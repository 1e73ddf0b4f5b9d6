from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from tiny_models import CONFIGS, LLAMA, MAMBA, built  # noqa: E402

from tokenroom.measuring.in_torch.storages import StorageSet, count_cache, tensors_in  # noqa: E402

TOKEN_BYTES = 2 * 2 * 16 * 2  # of a layer of LLAMA: keys and values, two heads of 16, two bytes


def filled(fields: dict[str, object], cache: object, tokens: int = 40, batch: int = 2) -> object:
    model = built(fields)
    with torch.no_grad():
        return model(torch.ones((batch, tokens), dtype=torch.long), cache=cache).cache


def test_a_growing_cache_is_its_tokens() -> None:
    model = built(LLAMA)
    count = count_cache(filled(LLAMA, transformers.DynamicCache(config=model.config)))
    assert count.allocated_bytes == 3 * 2 * 40 * TOKEN_BYTES
    assert count.allocated_bytes == count.viewed_bytes == count.filled_bytes
    assert [layer.index for layer in count.layers] == [0, 1, 2]
    assert {layer.tokens for layer in count.layers} == {40}
    assert count.tokens == 40
    assert count.by_device == {"cpu": count.allocated_bytes}


def test_a_static_cache_is_laid_out_and_partly_filled() -> None:
    model = built(LLAMA)
    cache = transformers.StaticCache(config=model.config, max_cache_len=160)
    count = count_cache(filled(LLAMA, cache))
    assert count.allocated_bytes == 3 * 2 * 160 * TOKEN_BYTES
    assert count.filled_bytes == 3 * 2 * 40 * TOKEN_BYTES
    assert count.counter_bytes == 3 * 8
    assert count.layers[0].traits == {"max_cache_len": 160}


def test_a_window_is_a_view_of_more() -> None:
    fields = CONFIGS["gemma3"]
    model = built(fields)
    count = count_cache(filled(fields, transformers.DynamicCache(config=model.config), 96))
    sliding = count.layers[0]
    token = 2 * 2 * 32 * 2
    assert sliding.class_name == "DynamicSlidingWindowLayer"
    assert sliding.allocated_bytes == 2 * 96 * token
    assert sliding.viewed_bytes == 2 * 47 * token
    assert sliding.tokens == 96


def test_a_quantised_cache_is_its_payload() -> None:
    model = built(LLAMA)
    cache = transformers.QuantizedCache(backend="fp8", config=model.config)
    count = count_cache(filled(LLAMA, cache))
    assert count.allocated_bytes == 3 * (2 * 40 * TOKEN_BYTES // 2 + 2 * 4)
    assert set(count.layers[0].dtypes) == {"float8_e4m3fn", "float32"}
    assert count.layers[0].tokens == 40


def test_states_are_told_from_keys_and_values() -> None:
    with torch.no_grad():
        output = built(MAMBA, "eager")(torch.ones((2, 8), dtype=torch.long), use_cache=True)
    count = count_cache(output.cache)
    convolution, recurrent = 128 * 4 * 2, 128 * 8 * 4
    assert count.state_bytes == count.allocated_bytes == 2 * 2 * (convolution + recurrent)
    assert count.tokens is None


def test_an_encoders_keys_are_another_part() -> None:
    fields = {
        "model_type": "t5",
        "d_model": 64,
        "num_layers": 2,
        "num_heads": 4,
        "d_kv": 16,
        "d_ff": 128,
        "vocab_size": 256,
        "pad_token_id": 0,
        "decoder_start_token_id": 0,
    }
    ids = torch.ones((1, 24), dtype=torch.long)
    with torch.no_grad():
        output = built(fields, "eager")(input_ids=ids, decoder_input_ids=ids[:, :5])
    count = count_cache(output.cache if hasattr(output, "cache") else output.past_key_values)
    parts = {layer.part: layer for layer in count.layers}
    assert len(count.layers) == 4
    assert parts["self"].allocated_bytes == 5 * 2 * 64 * 2
    assert parts["cross"].allocated_bytes == 24 * 2 * 64 * 2
    assert count.tokens == 5


def test_tuples_of_tensors_are_a_cache() -> None:
    pair = (torch.zeros(2, 4, 10, 8), torch.zeros(2, 4, 10, 8))
    count = count_cache((pair, pair))
    assert count.class_name == "tuple"
    assert count.tokens == 10
    assert [layer.allocated_bytes for layer in count.layers] == [5120, 5120]
    assert count.allocated_bytes == 5120  # both layers share their storage


def test_repeated_elements_are_addressed_once() -> None:
    kept = StorageSet()
    kept.add(torch.zeros(4, 1, 8).expand(4, 100, 8))
    assert (kept.allocated_bytes, kept.viewed_bytes) == (128, 128)


def test_two_views_of_one_storage_count_once() -> None:
    whole, kept = torch.zeros(100), StorageSet()
    assert kept.add(whole[:10])
    assert not kept.add(whole[50:60])
    assert (kept.allocated_bytes, kept.viewed_bytes) == (400, 80)


def test_subclasses_of_tensors_are_taken_apart() -> None:
    from torch.testing._internal.two_tensor import TwoTensor

    made = TwoTensor(torch.zeros(10), torch.zeros(10))
    assert sum(found.tensor.nbytes for found in tensors_in([made])) == 80


def test_rings_end_and_modules_are_not_entered() -> None:
    ring = SimpleNamespace(keys=torch.zeros(3), module=torch.nn.Linear(4, 4))
    ring.itself = ring
    found = list(tensors_in(ring))
    assert [item.path for item in found] == [("keys",)]
    assert found[0].owner is ring
