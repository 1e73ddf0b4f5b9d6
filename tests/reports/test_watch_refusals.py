"""Why a server is down or has no plan is told in Chinese, as it is raised."""

import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from observations import OBSERVATION
from page_server import PageServer, PageText

from tokenroom.errors import TokenroomError, WatchError
from tokenroom.fitting import fit
from tokenroom.hardware.catalogue import find_accelerator
from tokenroom.reports.messages import Language
from tokenroom.reports.refusal_messages import refusal_in
from tokenroom.reports.watch_json import watch_json
from tokenroom.watching.addresses import parse_address
from tokenroom.watching.exposition import read_exposition
from tokenroom.watching.fetching import Fetcher
from tokenroom.watching.observation import Facts
from tokenroom.watching.planned import Hardware, given, told
from tokenroom.watching.probing import recognise


def asked(pages: dict[str, PageText] | None) -> None:
    """Look at a server with these pages; at none where they are None."""
    with PageServer(pages or {}) as server:
        url = server.url
        if pages is not None:
            recognise(Fetcher(parse_address(url), timeout_seconds=5))
    if pages is None:
        Fetcher(parse_address(url), timeout_seconds=5).get("/metrics")


def no_model(name: str) -> None:
    # what models/resolve.py says where the extra hub is missing
    raise WatchError(
        f"{name} is not in the catalogue (near it: a, b); pip install 'tokenroom[hub]' to read it "
        f"from the Hub, or give the path of its config.json"
    )


def planned(facts: Facts) -> None:
    told(lambda: Hardware(gpu=find_accelerator("h100")), no_model)(facts)  # type: ignore[arg-type]


def described(engine: str) -> None:
    given(fit("llama-3.1-8b-instruct", "h100"))(Facts(engine=engine))


@pytest.mark.parametrize(
    ("ask", "values"),
    [
        (lambda: asked(None), ["http://127.0.0.1:", "/metrics"]),
        (lambda: asked({}), ["--enable-metrics"]),
        (lambda: asked({"/metrics": (401, "")}), ["401", "--api-key"]),
        (lambda: asked({"/metrics": (500, "")}), ["500"]),
        (lambda: asked({"/metrics": "up 1\n"}), ["llama-server", "tokenroom_torch"]),
        (lambda: read_exposition(""), []),
        (lambda: read_exposition("{{{"), []),
        (lambda: planned(Facts(engine="torch")), ["torch"]),
        (lambda: planned(Facts(engine="vllm")), ["--as"]),
        (lambda: planned(Facts(engine="vllm", model="org/name")), ["org/name", "a, b"]),
        (lambda: described("sglang"), ["vllm", "sglang"]),
    ],
)
def test_a_reason_has_its_chinese(ask: Callable[[], None], values: list[str]) -> None:
    with pytest.raises(TokenroomError) as caught:
        ask()
    chinese = refusal_in(Language.CHINESE, str(caught.value))
    assert re.search("[一-鿿]", chinese)
    for value in values:
        assert value in chinese


def test_json_tells_both_reasons_in_the_language() -> None:
    english = watch_json(OBSERVATION, Language.ENGLISH)["endpoints"][1]
    chinese = watch_json(OBSERVATION, Language.CHINESE)
    endpoint = chinese["endpoints"][1]
    assert english["error"] == OBSERVATION.endpoints[1].error
    assert "连接被拒绝" in endpoint["error"]
    assert "没有给出模型" in endpoint["no_plan"]
    assert "连接被拒绝" in chinese["alerts"][0]["text"]


def test_a_reason_that_is_not_known_stays() -> None:
    down = replace(OBSERVATION.endpoints[1], error="odd")
    found = watch_json(replace(OBSERVATION, endpoints=(down,)), Language.CHINESE)
    assert found["endpoints"][0]["error"] == "odd"
