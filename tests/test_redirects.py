import pytest

from migrate.errors import RemoteError
from migrate.redirects import check_redirect


@pytest.mark.parametrize(
    ("address", "location"),
    [
        ("https://a.example/v1/embeddings", "/v2/embeddings"),
        ("https://a.example/v1", "https://A.example:443/v2"),
        ("http://a.example/v1", "https://a.example/v1"),
        ("http://127.0.0.1:80/x", "http://127.0.0.1/x"),
    ],
)
def test_a_server_may_send_on_to_itself(address, location):
    check_redirect(address, location)


@pytest.mark.parametrize(
    ("address", "location", "named"),
    [
        ("https://a.example/v1", "https://b.example/v1", "https://a.example redirects to https://b.example;"),
        ("https://a.example/v1", "//b.example/v1", "https://a.example redirects to https://b.example;"),
        ("https://a.example/v1", "https://a.example.b.example/", "redirects to https://a.example.b.example;"),
        ("https://a.example/v1", "https://a.example@b.example/", "redirects to https://b.example;"),
        ("https://user:secret@a.example/v1", "http://a.example/v1", "https://a.example redirects to http://a.example;"),
        ("http://localhost:8000/v1", "http://localhost:9000/v1", "redirects to http://localhost:9000;"),
        ("http://a.example/v1", "https://b.example/v1", "redirects to https://b.example;"),
        ("http://a.example/v1", "file:///etc/passwd", "http://a.example redirects to"),
        ("http://a.example/v1", "http://a.example:x/", "a.example redirects to something that is not an address"),
    ],
)
def test_nothing_goes_to_another_server(address, location, named):
    with pytest.raises(RemoteError) as error:
        check_redirect(address, location)
    assert named in str(error.value)
    assert "secret" not in str(error.value)
