"""All commands on a store of each kind give what they gave: see `record.py`, which also writes the golden files."""

import pytest
from golden_kinds import KINDS
from record import differences, record

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.filterwarnings("ignore")
def test_commands_give_what_they_gave(kind, tmp_path):
    if (reason := KINDS[kind].entry.lacks()) is not None:
        pytest.skip(reason)
    found = differences(kind, record(kind, tmp_path))
    assert not found, "\n".join([f"{len(found)} facts differ; python tests/golden/record.py {kind}", *found])
