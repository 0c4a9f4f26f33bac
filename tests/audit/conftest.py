import pytest
from mistakes import migrate


@pytest.fixture(scope="session")
def good(tmp_path_factory):
    """A migration without a mistake; nobody writes to it."""
    return migrate(tmp_path_factory.mktemp("good"))


@pytest.fixture(scope="session")
def poor(tmp_path_factory):
    """A migration by so few pairs that a tenth of the quality is lost; nobody writes to it."""
    return migrate(tmp_path_factory.mktemp("poor"), n_pairs=50)
