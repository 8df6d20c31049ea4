"""What is spared while large libraries are imported is back afterwards."""

from __future__ import annotations

import gc
import inspect
from functools import partial

import pytest

from workbench.importing import uncollected, without_interfaces


def test_the_collector_rests_only_meanwhile() -> None:
    with uncollected():
        assert not gc.isenabled()
        with uncollected():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()


def test_classes_of_gradio_have_no_file_while_it_is_imported() -> None:
    component = type("Component", (), {"__module__": "gradio.made_up"})
    with without_interfaces():
        with pytest.raises(OSError, match="no interface"):
            inspect.getfile(component)
        assert inspect.getfile(test_the_collector_rests_only_meanwhile) == __file__
        with pytest.raises(TypeError):
            inspect.getfile(type("Nowhere", (), {"__module__": None}))
    with pytest.raises(TypeError):  # it is in no module that is loaded
        inspect.getfile(component)


def test_what_asked_for_files_inside_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    with without_interfaces():
        own = partial(inspect.getfile)
        monkeypatch.setattr(inspect, "getfile", own)
    assert inspect.getfile is own
    with pytest.raises(TypeError):  # and not that no interface is written
        inspect.getfile(type("Component", (), {"__module__": "gradio.made_up"}))
