"""What is spared while large libraries are imported is back afterwards."""

from __future__ import annotations

import gc
import inspect

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
    with pytest.raises(TypeError):  # it is in no module that is loaded
        inspect.getfile(component)
