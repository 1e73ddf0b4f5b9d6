import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from tiny_models import LLAMA, MAMBA, VOCABULARY, built, saved_writer  # noqa: E402

from tokenroom.errors import MeasurementError  # noqa: E402
from tokenroom.measuring.in_torch.scoring import Scorer, tokens_of  # noqa: E402
from tokenroom.measuring.kv_coding import parse_scheme  # noqa: E402
from tokenroom.measuring.quality import SchemeResult, results_of, windows_of  # noqa: E402


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("writer")
    yield folder, saved_writer(folder)
    torch.set_num_threads(threads)


def outliers(model: Any, factor: float, heads: tuple[int, ...]) -> Any:
    """The same function with keys that have some channels far larger than the others.

    Rows of the key projection grow and those of the query projection that meet them shrink, in both
    halves that the rotation mixes, so that no score changes.
    """
    width = model.config.head_dim
    group = model.config.num_attention_heads // model.config.num_key_value_heads
    for layer in model.model.layers:
        projections = layer.self_attn
        for head in heads:
            for channel in (3, 3 + width // 2):
                projections.k_proj.weight.data[head * width + channel] *= factor
                for query in range(head * group, (head + 1) * group):
                    projections.q_proj.weight.data[query * width + channel] /= factor
    return model


def results(model: Any, names: list[str], *, context: int = 96) -> dict[str, SchemeResult]:
    ids = torch.randint(1, 255, (400,), generator=torch.Generator().manual_seed(1))
    scorer = Scorer(model, ids)
    schemes = [parse_scheme(name) for name in names]
    scores = [
        score
        for window in scorer.scores(windows_of(400, context, most=4), schemes)
        for score in window
    ]
    assert scorer.identical
    return {result.scheme: result for result in results_of(scores, 0.95)}


def test_channels_of_their_own_scale_keep_keys_with_outliers() -> None:
    """One scale for all keys loses the small channels to the large; one a channel does not."""
    model = outliers(built(LLAMA | {"initializer_range": 0.25}).float(), 60.0, (0, 1))
    found = results(model, ["int8/tensor+full", "int8/head+full", "int8/channel+full"])
    lost = {name: result.divergence.value for name, result in found.items()}
    assert lost["int8/channel+full"] < 0.02 * lost["int8/tensor+full"]
    assert lost["int8/channel+full"] < 0.02 * lost["int8/head+full"]
    assert found["int8/channel+full"].agreement > found["int8/tensor+full"].agreement


def test_heads_of_their_own_scale_keep_the_heads_without_outliers() -> None:
    """Half of the model's heads have none; one scale for all spoils these too."""
    model = outliers(built(LLAMA | {"initializer_range": 0.25}).float(), 60.0, (0,))
    found = results(model, ["int8/tensor+full", "int8/head+full"])
    assert (
        found["int8/head+full"].divergence.value < 0.9 * found["int8/tensor+full"].divergence.value
    )


def test_without_outliers_one_scale_is_nearly_as_good() -> None:
    """The test above would also pass if one scale were always that bad."""
    model = built(LLAMA | {"initializer_range": 0.25}).float()
    found = results(model, ["int8/tensor+full", "int8/channel+full"])
    lost = {name: result.divergence.value for name, result in found.items()}
    assert lost["int8/channel+full"] > 0.1 * lost["int8/tensor+full"]


def test_more_bits_lose_less(written: tuple[Path, str]) -> None:
    folder, text = written
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    ids = tokens_of(text, folder, VOCABULARY)
    names = [f"int{bits}/{rest}" for bits in (8, 4, 2) for rest in ("tensor", "channel", "token")]
    scorer = Scorer(model, ids)
    windows = windows_of(len(ids), 128)
    schemes = [parse_scheme(name) for name in names]
    scores = [score for window in scorer.scores(windows, schemes) for score in window]
    found = {result.scheme: result for result in results_of(scores, 0.95)}
    for rest in ("tensor", "channel", "token"):
        lost = [found[f"int{bits}/{rest}"].divergence.value for bits in (8, 4, 2)]
        assert lost[0] * 20 < lost[1] < lost[2] / 3
        agreed = [found[f"int{bits}/{rest}"].agreement for bits in (8, 4, 2)]
        assert agreed == sorted(agreed, reverse=True)
        taken = [found[f"int{bits}/{rest}"].bytes_per_token for bits in (8, 4, 2)]
        assert taken == sorted(taken, reverse=True)
    assert found["int8/tensor"].full_bytes_per_token == 2 * 2 * 2 * 16 * 4
    assert found["int2/token"].change > 0.2


def test_losses_are_those_of_the_model_itself(written: tuple[Path, str]) -> None:
    folder, text = written
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    ids = tokens_of(text, folder, VOCABULARY)
    (window, *_) = windows_of(len(ids), 100, stride=99)
    ((full, other),) = Scorer(model, ids).scores([window], [parse_scheme("int4/head")])
    with torch.no_grad():
        loss = float(model(ids[None, :100], labels=ids[None, :100]).loss)
    assert full.loss == pytest.approx(loss, rel=1e-5)
    assert (full.divergence, full.agreement) == (0.0, 1.0)
    assert 0 < other.divergence < math.inf
    assert other.agreement < 1


def test_the_same_again_is_the_same(written: tuple[Path, str]) -> None:
    folder, text = written
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    ids = tokens_of(text, folder, VOCABULARY)
    windows = windows_of(len(ids), 64, most=2, seed=5)
    runs = [list(Scorer(model, ids).scores(windows, [parse_scheme("fp8/head")])) for _ in range(2)]
    assert runs[0] == runs[1]


def test_progress_is_told_window_by_window() -> None:
    told: list[tuple[int, int]] = []
    ids = torch.arange(1, 101)
    windows = windows_of(100, 40, stride=30)
    list(Scorer(built(LLAMA), ids).scores(windows, [], lambda *done: told.append(done)))
    assert told == [(1, 3), (2, 3), (3, 3)]


def test_states_are_left_out_and_said_to_be() -> None:
    scorer = Scorer(built(MAMBA, "eager"), torch.arange(1, 101))
    with pytest.raises(MeasurementError, match="keeps no keys and values"):
        list(scorer.scores(windows_of(100, 40), []))
    mixed = {
        "model_type": "qwen3_next",
        "hidden_size": 64,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "intermediate_size": 128,
        "moe_intermediate_size": 32,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "shared_expert_intermediate_size": 32,
        "vocab_size": 256,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 16,
        "linear_value_head_dim": 16,
        "pad_token_id": 0,
    }
    scorer = Scorer(built(mixed), torch.arange(1, 101))
    list(scorer.scores(windows_of(100, 40, most=1), [parse_scheme("int8/head")]))
    assert scorer.unquantised


def test_a_tokenizer_is_needed_and_has_to_be_the_models_own(
    written: tuple[Path, str], tmp_path: Path
) -> None:
    with pytest.raises(MeasurementError, match="no tokenizer that transformers reads"):
        tokens_of("text", tmp_path, 10)
    with pytest.raises(MeasurementError, match="no tokenizer"):
        tokens_of("text", None, 10)
    with pytest.raises(MeasurementError, match="gives token 9 and the model knows 9"):
        tokens_of("w9", written[0], 9)
