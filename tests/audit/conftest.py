import pytest
from mistakes import migrate


@pytest.fixture(scope="session")
def good(tmp_path_factory):
    """A migration without a mistake; nobody writes to it."""
    return migrate(tmp_path_factory.mktemp("good"))
