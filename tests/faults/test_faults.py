"""Faults in what a user hands over and in what surrounds a run, one row of the table each.

The rows go through the command line, as a user would. Besides its exit code and its line, which is in `sentences.json`,
every run leaves its inputs as they were, shows no traceback, and puts nothing under the name of the output unless it
succeeds. `python tests/faults/record_sentences.py --write` writes the lines anew.
"""

import pytest
from fault_place import play
from fault_table import FAULTS, SECTIONS
from sentences import golden, is_said, lines_of, sentence_of

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_ends_as_the_table_says(name, place, request):
    fault, sentence = FAULTS[name], golden().get(name)
    states = [lines_of(outcome, fault) for outcome in play(fault, place)]
    assert states
    recorded = getattr(request.config, "recorded_sentences", None)
    if recorded is not None:  # by `record_sentences.py --write`
        recorded[name] = sentence_of(states, sentence)
        return
    assert sentence is not None, "record it"
    for lines in states:
        assert is_said(sentence, lines), f"{lines} has no line {sentence!r}"


def test_no_two_faults_have_one_name():
    assert len(FAULTS) == sum(map(len, SECTIONS.values()))


def test_every_sentence_is_of_a_fault():
    assert golden().keys() == FAULTS.keys()


@pytest.mark.parametrize(
    ("old", "states", "new"),
    [
        ("x: bad (*); mend it", [["x: bad (1); mend it"], ["x: bad (2); mend it"]], "x: bad (*); mend it"),
        ("x: bad (*); mend it", [["x: worse (1); mend it"], ["x: worse (2); mend it"]], "x: worse * mend it"),
        (None, [["http://127.0.0.1:4567/v1 failed"]], "http://127.0.0.1:*/v1 failed"),
        ("b: 7", [["a: 1", "b: 8"]], "b: 8"),
        ("x: bad", [[]], ""),
    ],
)
def test_a_sentence_is_recorded_with_what_varies(old, states, new):
    assert sentence_of(states, old) == new
    assert all(is_said(new, lines) for lines in states)


def test_another_sentence_is_noticed():
    assert not is_said("x: bad (*); mend it", ["x: worse (1); mend it"])
    assert not is_said("", ["x: bad"])
