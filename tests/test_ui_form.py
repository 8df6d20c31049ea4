"""A form's notes: which fields a message is about."""

import json

import pytest

from tests.drafts import draft_of, with_values
from workbench.errors import ConfigError
from workbench.ui.handlers.scoring import Note
from workbench.ui.tabs.form import form_note_value


def test_a_refused_start_marks_the_fields_that_its_message_names() -> None:
    draft = with_values(draft_of(), {"run.steps": None, "method.sampling.num_generations": 1})
    with pytest.raises(ConfigError) as refused:
        draft.config()
    assert json.loads(form_note_value(Note(str(refused.value))))["fields"] == ["steps", "generations"]
    assert json.loads(form_note_value(Note("the disk is full: free some")))["fields"] == []
    assert form_note_value(None) == ""
