import pytest

from tokenroom.errors import WatchError
from tokenroom.watching.exposition import read_exposition


def test_samples_by_name_and_labels() -> None:
    page = read_exposition('# TYPE a counter\na_total{x="1"} 2\na_total{x="2"} 3\nb 4\n')
    assert page.value("a_total") == 5
    assert page.value("a_total", where={"x": "2"}) == 3
    assert page.value("none", "b") == 4
    assert page.value("none") is None
    assert page.has("a_")
    assert not page.has("c")


def test_what_is_no_number_is_not_known() -> None:
    page = read_exposition("a NaN\nb 1\n")
    assert page.value("a") is None
    assert page.value("b") == 1


@pytest.mark.parametrize("text", ["<html>no</html>", 'a{x="1" 2', "a b c", "", "# HELP only\n"])
def test_what_is_no_page_is_refused(text: str) -> None:
    with pytest.raises(WatchError, match="page of metrics"):
        read_exposition(text)
