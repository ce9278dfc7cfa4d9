"""What is loaded is set aside: the collector is off meanwhile, and on again afterwards, come what may."""

import gc
from collections.abc import Iterator

import pytest

from kdns.runtime.process import gc_paused


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    thresholds = gc.get_threshold()
    gc.unfreeze()  # what other tests of this process set aside
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)


def test_what_is_there_at_the_end_is_not_looked_at_again() -> None:
    with gc_paused():
        assert not gc.isenabled()
        with gc_paused():
            pass
        assert not gc.isenabled(), "the inner one does nothing"
        kept: list[object] = [{} for _ in range(1000)]
    assert gc.isenabled()
    assert gc.get_freeze_count() >= len(kept)


def test_the_collector_comes_back_after_an_error() -> None:
    with pytest.raises(KeyError), gc_paused():
        raise KeyError
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0
