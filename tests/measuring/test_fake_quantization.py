import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from tiny_models import CONFIGS, LLAMA, built  # noqa: E402

from tokenroom.errors import MeasurementError  # noqa: E402
from tokenroom.measuring.in_torch.fake_quantization import (  # noqa: E402
    QuantisedCache,
    quantise_and_back,
    vllm_scale,
)
from tokenroom.measuring.kv_coding import (  # noqa: E402
    FULL,
    TYPES,
    Fp8Scale,
    parse_coding,
    parse_scheme,
)


def states(tokens: int = 24) -> object:
    return torch.randn(2, 3, tokens, 16, generator=torch.Generator().manual_seed(0))


def levels(row: object) -> int:
    return len(torch.unique(row))


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("rest", ["tensor", "head", "channel", "token", "channel/8", "token/4"])
def test_what_comes_back_is_near_and_again_the_same(kind: str, rest: str) -> None:
    coding = parse_coding(f"{kind}/{rest}")
    given = states()
    back = quantise_and_back(given, coding)
    assert back.shape == given.shape
    assert not torch.equal(back, given)
    step = {8: 0.04, 4: 0.6, 3: 1.4, 2: 4.2}[coding.type.bits]
    share = 0.13 * given.abs() if "e4m3" not in kind else 0.07 * given.abs()
    bound = share if coding.type.largest else torch.full_like(given, step)
    assert bool(((back - given).abs() <= bound + 1e-3).all())
    again = quantise_and_back(back, coding)
    assert torch.allclose(again, back, atol=1e-5)


def test_integers_have_so_many_levels_where_one_scale_is_shared() -> None:
    given = torch.randn(1, 2, 4000, 8, generator=torch.Generator().manual_seed(0))
    assert levels(quantise_and_back(given, parse_coding("int4/tensor"))) == 15
    assert levels(quantise_and_back(given, parse_coding("int4-asym/tensor"))) == 16
    by_head = quantise_and_back(given, parse_coding("int4/head"))
    own = [levels(by_head[0, head]) for head in range(2)]
    assert max(own) <= 15
    assert levels(by_head) == sum(own) - 1  # zero is both's
    by_channel = quantise_and_back(given, parse_coding("int2-asym/channel"))
    assert {levels(by_channel[0, 1, :, channel]) for channel in range(8)} == {4}
    by_group = quantise_and_back(given, parse_coding("int2-asym/token/4"))
    assert max(levels(by_group[0, 0, token, :4]) for token in range(50)) <= 4


def test_scales_are_of_the_rows_they_should_be_of() -> None:
    """A huge value spoils what shares its scale, and nothing else."""
    given = states()
    given[0, 1, 5, 7] = 1e6
    lost = {
        "tensor": torch.ones(2, 3, 24, 16, dtype=torch.bool),
        "head": torch.zeros(2, 3, 24, 16, dtype=torch.bool),
        "channel": torch.zeros(2, 3, 24, 16, dtype=torch.bool),
        "channel/8": torch.zeros(2, 3, 24, 16, dtype=torch.bool),
        "token": torch.zeros(2, 3, 24, 16, dtype=torch.bool),
        "token/4": torch.zeros(2, 3, 24, 16, dtype=torch.bool),
    }
    lost["head"][:, 1] = True  # of every sequence: a head's scale is the layer's
    lost["channel"][0, 1, :, 7] = True
    lost["channel/8"][0, 1, 0:8, 7] = True
    lost["token"][0, 1, 5] = True
    lost["token/4"][0, 1, 5, 4:8] = True
    for rest, where in lost.items():
        where[0, 1, 5, 7] = False
        back = quantise_and_back(given, parse_coding(f"int8/{rest}"))
        assert bool((back[where] == 0).all()), rest
        kept = ~where
        kept[0, 1, 5, 7] = False
        assert bool(((back[kept] - given[kept]).abs() < 0.04).all()), rest


def test_a_last_group_may_be_shorter() -> None:
    given = states(tokens=21)
    coding = parse_coding("int4/channel/8")
    back = quantise_and_back(given, coding)
    assert torch.equal(back[:, :, 16:], quantise_and_back(given[:, :, 16:], coding))


def test_a_group_that_does_not_divide_a_head_is_refused() -> None:
    with pytest.raises(MeasurementError, match="does not divide the 16 channels"):
        quantise_and_back(states(), parse_coding("int4/token/5"))


def test_fp8_saturates_and_rounds_as_the_type_does() -> None:
    given = torch.tensor([0.0, 1.0, 17.1, 448.0, 500.0, -1e6]).reshape(1, 1, 1, 6)
    back = quantise_and_back(given, parse_coding("fp8/tensor", Fp8Scale.UNIT)).flatten()
    assert back.tolist() == [0.0, 1.0, 18.0, 448.0, 448.0, -448.0]
    wide = quantise_and_back(given, parse_coding("fp8_e5m2/tensor", Fp8Scale.UNIT)).flatten()
    assert wide.tolist() == [0.0, 1.0, 16.0, 448.0, 512.0, -57344.0]


def test_vllms_scale_is_over_a_constant() -> None:
    given = torch.full((1, 1, 4, 4), 50.0)
    assert float(vllm_scale(given, "keys")) == 0.25
    assert float(vllm_scale(given, "values")) == 0.5
    cache = QuantisedCache(built(LLAMA).config, parse_scheme("fp8/tensor", Fp8Scale.VLLM))
    small = torch.full((1, 2, 1, 16), 2.0)
    cache.update(small, small, 0)
    keys, values = cache.update(small * 1000, small * 1000, 0)  # the first pass's scale stays
    assert float(keys.max()) == pytest.approx(448 * 2 / 200)
    assert float(values.max()) == pytest.approx(448 * 2 / 100)


def test_zeros_stay_zeros() -> None:
    for kind in TYPES:
        back = quantise_and_back(torch.zeros(1, 1, 4, 4), parse_coding(f"{kind}/head"))
        assert torch.equal(back, torch.zeros(1, 1, 4, 4))


@pytest.mark.parametrize("name", ["llama", "gemma3", "phi3", "mixtral"])
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_the_full_cache_changes_no_bit(name: str, attention: str) -> None:
    model = built(CONFIGS[name], attention)
    ids = torch.arange(1, 129).reshape(2, 64)
    cache = QuantisedCache(model.config, FULL)
    with torch.no_grad():
        assert torch.equal(
            model(ids, use_cache=False).logits, model(ids, cache=cache, use_cache=True).logits
        )
    assert cache.full_bytes == cache.stored_bytes > 0


def test_a_step_sees_what_the_steps_before_left() -> None:
    """Token by token the same values are kept as at once where a scale is a token's own."""
    model = built(LLAMA).float()
    ids = torch.arange(1, 21).reshape(1, 20)
    whole, steps = (QuantisedCache(model.config, parse_scheme("int8/token")) for _ in range(2))
    with torch.no_grad():
        at_once = model(ids, cache=whole, use_cache=True).logits
        one_by_one = [model(ids[:, i : i + 1], cache=steps, use_cache=True) for i in range(20)]
    assert torch.allclose(at_once[0, -1], one_by_one[-1].logits[0, -1], atol=1e-4)
    assert whole.stored_bytes == steps.stored_bytes
    assert whole.stored_bytes == 3 * 2 * parse_coding("int8/token").stored_bytes(2, 20, 16)
