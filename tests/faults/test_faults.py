"""Faults in what a user hands over and in what surrounds a run, one row of the table each.

The rows go through the command line, as a user would. Besides its exit code and its line every run leaves its inputs as
they were, shows no traceback, and puts nothing under the name of the output unless it succeeds.
"""

import pytest
from fault_place import play
from fault_table import FAULTS, SECTIONS

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_ends_as_the_table_says(name, place):
    assert play(FAULTS[name], place) >= 1


def test_no_two_faults_have_one_name():
    assert len(FAULTS) == sum(map(len, SECTIONS.values()))
