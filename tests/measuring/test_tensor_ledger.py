import pytest

torch = pytest.importorskip("torch")

from tokenroom.measuring.in_torch.tensor_ledger import TensorLedger  # noqa: E402


def test_what_is_made_and_freed_is_counted() -> None:
    with TensorLedger() as ledger:
        first = torch.zeros(1000)
        second = first + 1
        assert ledger.alive_bytes == 8000
        del first
        assert ledger.alive_bytes == 4000
        ledger.restart()
        assert ledger.peak_bytes == 4000
        third = second * 2
        assert ledger.peak_bytes == 8000
    assert ledger.knows(third)


def test_views_and_changes_in_place_make_nothing() -> None:
    with TensorLedger() as ledger:
        made = torch.zeros(10, 10)
        made.view(100)[3:7].add_(1)
        made.t().mul_(2)
        assert ledger.alive_bytes == ledger.peak_bytes == 400


def test_a_storage_that_grows_counts_as_it_is() -> None:
    with TensorLedger() as ledger:
        made = torch.zeros(10)
        made.resize_(100)
        assert ledger.alive_bytes == 400


def test_what_was_there_before_does_not_count() -> None:
    before = torch.zeros(1000)
    with TensorLedger() as ledger:
        before.add_(1)
        assert before[3:].numel() == 997
        assert ledger.alive_bytes == 0


def test_literals_count() -> None:
    with TensorLedger() as ledger:
        made = torch.tensor([1, 2, 3])
        assert ledger.alive_bytes == made.nbytes


def test_it_agrees_with_a_walk_over_all_objects() -> None:
    """Another way to the same figure: every tensor that the garbage collector knows of."""
    import gc

    def alive() -> int:
        found = {}
        for item in gc.get_objects():
            if type(item) is torch.Tensor:
                found[item.untyped_storage()._cdata] = item.untyped_storage().nbytes()
        return sum(found.values())

    gc.collect()
    before = alive()
    with TensorLedger() as ledger:
        made = [torch.randn(64, 64)]
        for _ in range(20):
            made.append(made[-1] @ made[-1].t() + made[len(made) // 2])
            if len(made) > 5:
                del made[1]
    assert ledger.alive_bytes == alive() - before
