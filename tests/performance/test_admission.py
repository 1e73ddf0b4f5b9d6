"""How schedulers hold requests back, against event-by-event averages."""

import random
from statistics import fmean

import pytest

from tokenroom import find_accelerator, load_model
from tokenroom.performance.admission import AT_ONCE, Admission, held
from tokenroom.performance.load import Load, Speed, speed
from tokenroom.performance.replica import Replica
from tokenroom.performance.work import Layout

LLAMA = load_model("meta-llama/Llama-3.1-8B")
H100 = find_accelerator("h100-sxm-80gb")


def served(load: Load, admission: Admission = AT_ONCE, copies: int = 1) -> Speed:
    layout = Layout(data_parallel_size=copies)
    return speed(
        Replica(
            spec=LLAMA,
            layout=layout,
            accelerator=H100,
            engine="tensorrt_llm",
            admission=admission,
        ),
        load,
    )


def test_nothing_is_held_where_nothing_is_asked() -> None:
    assert held(AT_ONCE, 0.3, 4) == (0.0, 1.0)


def test_a_look_each_n_steps_finds_requests_half_as_old() -> None:
    assert held(Admission(interval_steps=9), 0.1, 1) == (4.0, 9.0)


@pytest.mark.parametrize("rate", [0.01, 0.1, 1.0])
def test_a_window_that_its_first_request_opens(rate: float) -> None:
    generator, window, waits = random.Random(1), 20.0, []
    for _ in range(20_000):
        waits.append(window)
        later = generator.expovariate(rate)
        while later < window:
            waits.append(window - later)
            later += generator.expovariate(rate)
    found = held(Admission(gather_steps=window), rate, 1)
    assert found.wait_steps == pytest.approx(fmean(waits), rel=0.03)
    assert found.window_steps == window


def test_ranks_wait_for_each_other_up_to_a_limit() -> None:
    asked = Admission(balance_steps=60)
    assert held(asked, 0.1, 1).wait_steps == 0
    assert held(asked, 1.0, 4).window_steps == pytest.approx(1 + 1 / 2 + 1 / 3)
    assert held(asked, 0.001, 8).window_steps == 60
    assert held(asked, 0.0, 8).wait_steps == 60  # nobody else comes


def test_held_requests_start_later_and_decode_as_fast() -> None:
    load = Load(input_tokens=1024, output_tokens=1024, concurrency=64)
    plain, gathered = served(load), served(load, Admission(gather_steps=20))
    steps = (gathered.ttft_seconds - plain.ttft_seconds) / plain.tpot_seconds
    assert 10 < steps < 40
    assert gathered.tpot_seconds == pytest.approx(plain.tpot_seconds, rel=0.1)


def test_trains_of_alike_requests_wait_for_those_before() -> None:
    alike = Load(input_tokens=4096, output_tokens=256, concurrency=32, lengths_vary=False)
    varied = Load(input_tokens=4096, output_tokens=256, concurrency=32)
    assert served(alike).ttft_seconds > served(varied).ttft_seconds
    one = Load(input_tokens=4096, output_tokens=256, concurrency=1, lengths_vary=False)
    assert served(one).ttft_seconds < served(alike).ttft_seconds
