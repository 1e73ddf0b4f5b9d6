"""Patterns of strangers: what ``re`` says, and an answer in bounded time."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenroom.models.patterns import _Automaton, compile_pattern

NAME = "model.language_model.layers.17.mlp.experts.down_proj"
LONG = "model." + "a" * 200

PUBLISHED = [
    r".*mlp.gate$",
    r".*block_sparse_moe.gate$",
    r".*shared_experts.*",
    r".*mlp\.(gate|up|gate_up|down)_proj.*",
    r"vision_tower.*",
    r".*lm_head",
    r"^(?!.*layers).*",
    r"(?:.*\.)?layers\.\d+\..*",
    r"model\.layers\.(1[0-9]|2[0-3])\.self_attn\.[qkvo]_proj$",
    r"\.layers\.(?:[0-9]|1[0-7])\.mlp\.experts\.",
    r"blk\.(1|3|5)\.ffn_(up|gate)_exps\.=?",
]


def parsed(text: str) -> _Automaton:
    from importlib import import_module

    return _Automaton(import_module("re._parser").parse(text), text)


@pytest.mark.parametrize("text", PUBLISHED)
def test_published_patterns_mean_what_re_says(text: str) -> None:
    pattern = compile_pattern(text)
    for name in (NAME, "lm_head", "model.layers.12.self_attn.q_proj", "model.vision_tower.x", ""):
        assert bool(pattern.match(name)) == bool(re.match(text, name))
        assert bool(pattern.search(name)) == bool(re.search(text, name))


@pytest.mark.parametrize(
    "text",
    [
        "(a|.)*(b|.)*z",
        "(a+)+$",
        "(.*)*z",
        "(a?){60}a{60}z",
        ".*.*.*.*.*.*.*.*.*.*z",
        "([a-z]+[.a]*)+!",
        "((a|aa)+)+$Z",
        "(a{1,20}){1,20}z",
    ],
)
def test_what_would_never_end_ends(text: str) -> None:
    pattern = compile_pattern(text)
    for name in (NAME, LONG):
        assert not pattern.match(name)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("(", "unterminated"),
        ("x" * 3000, "longer than 2,000"),
        ("(" * 900 + ")" * 900, "nested too deeply"),
        (r"(?=(a|.)*)(b|.)*z", "look-around"),
        (r"(a|.)*\1(b|.)*", "references"),
        (r"(?i)(a|.)*(b|.)*z", "inline flags"),
        ("((a{500}){500})*", "too many parts"),
        ("a{99999999999999999999}", "too large"),
    ],
)
def test_what_cannot_be_matched_is_refused(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        compile_pattern(text)


ATOM = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", r"\d", r"\w", r"\.", "^", "$"])
PATTERN = st.recursive(
    ATOM,
    lambda inner: (
        st.lists(inner, min_size=1, max_size=3).map("".join)
        | st.tuples(inner, inner).map(lambda pair: f"(?:{pair[0]}|{pair[1]})")
        | st.tuples(inner, st.sampled_from(["*", "+", "?", "*?", "{2}", "{1,3}", "{2,}"])).map(
            lambda pair: f"(?:{pair[0]}){pair[1]}"
        )
    ),
    max_leaves=6,
)


@given(PATTERN, st.text(alphabet="ab1.", max_size=7))
def test_an_automaton_agrees_with_re(text: str, name: str) -> None:
    automaton = parsed(text)
    assert automaton.match(name) == (re.match(text, name) is not None)
    assert automaton.search(name) == (re.search(text, name) is not None)
