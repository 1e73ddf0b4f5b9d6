"""Refusals that people meet most are told in Chinese, with the values they hold."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tokenroom import TokenroomError, fit
from tokenroom.reports.messages import Language
from tokenroom.reports.refusal_messages import refusal_in
from tokenroom.serving.workloads.grammar import parse_workload
from tokenroom.units import parse_seconds, parse_tokens
from tokenroom.web.answers import ModelFinder


def refused(ask: Any, *words: Any, **options: Any) -> str:
    with pytest.raises(TokenroomError) as caught:
        ask(*words, **options)
    return str(caught.value)


LLAMA = ("Llama-3.1-8B-Instruct", "h100")


@pytest.mark.parametrize(
    ("said", "values"),
    [
        (lambda: refused(ModelFinder(), "zzzz"), ["'zzzz'"]),
        (lambda: refused(ModelFinder(), "llama-3.1-9b"), ["llama-3.1-9b", "Llama-3.2-1B"]),
        (lambda: refused(fit, LLAMA[0], "h1000"), ["'h1000'", "h100-sxm-80gb"]),
        (lambda: refused(fit, LLAMA[0], "3"), ["'3'"]),
        (lambda: refused(fit, *LLAMA, engine="vllm@abc"), ["vLLM", "'abc'"]),
        (lambda: refused(fit, *LLAMA, max_seqs=3), ["'max_seqs'", "max_num_seqs"]),
        (lambda: refused(fit, *LLAMA, max_num_seqs="many"), ["max_num_seqs", "'many'"]),
        (lambda: refused(fit, *LLAMA, gpus=3), ["3", "32"]),
        (lambda: refused(fit, *LLAMA, context=10**6), ["1000000", "131072"]),
        (lambda: refused(fit, *LLAMA, gpus=10**5), ["100000", "65,536"]),
        (lambda: refused(parse_seconds, "fast", "tpot"), ["tpot", "'fast'"]),
        (lambda: refused(parse_tokens, "many", "input"), ["input", "'many'"]),
        (lambda: refused(parse_workload, "zz"), ["'zz'", "poisson", "chat"]),
        (lambda: refused(parse_workload, "poisson:rate=x,input=1,output=1"), ["rate", "'x'"]),
        (lambda: refused(parse_workload, "poisson:input=1,output=1"), ["poisson", "rate=5"]),
        (lambda: refused(parse_workload, "poisson:rate=5,bla=1"), ["'bla'", "priority"]),
    ],
)
def test_a_known_refusal_has_its_chinese(said: Any, values: list[str]) -> None:
    english = said()
    chinese = refusal_in(Language.CHINESE, english)
    assert refusal_in(Language.ENGLISH, english) == english
    assert re.search("[一-鿿]", chinese)
    for value in values:
        assert value in chinese


def test_an_unknown_one_stays_as_it_is() -> None:
    assert refusal_in(Language.CHINESE, "nothing is known of this") == "nothing is known of this"
