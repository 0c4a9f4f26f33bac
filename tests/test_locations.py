"""Locations have no secrets once they were seen, and the one who connects still has them."""

import re
from base64 import b64encode
from urllib.parse import quote, unquote

import pytest

from migrate.errors import StoreError
from migrate.locations import Address, hide_secrets, mask_url, scrub, secrets_of
from migrate.stores import open_store


@pytest.mark.parametrize(
    ("typed", "hidden", "secrets"),
    [
        ("pg:postgresql://u:p%40ss@h:5432/db#t", "pg:postgresql://u@h:5432/db#t", {"password": "p@ss"}),
        ("pg:postgresql://u@h0:5432/db#t", "pg:postgresql://u@h0:5432/db#t", {}),
        ("pg:postgresql://h0:5432/db?options=a@b#t", "pg:postgresql://h0:5432/db?options=a@b#t", {}),
        ("pg:postgresql://u:sl/ash@h1/db#t", "pg:postgresql://u@h1/db#t", {"password": "sl/ash"}),
        ("pg:postgresql://h2/db?user=u&password=x&sslmode=require#t", "pg:postgresql://h2/db?user=u&sslmode=require#t",
         {"password": "x"}),
        ("qdrant:https://h3:6333?api_key=k1#c", "qdrant:https://h3:6333#c", {"api_key": "k1"}),
        ("chroma+http://h4:8000?token=k2&tenant=a#c", "chroma+http://h4:8000?tenant=a#c", {"token": "k2"}),
        ("pg:postgresql://u:p@s@s@h6/db#t", "pg:postgresql://u@h6/db#t", {"password": "p@s@s"}),
        ("pg:postgresql://u@h7/db#t?text=a&password=x", "pg:postgresql://u@h7/db#t?text=a", {"password": "x"}),
        ("qdrant:https://h8:6333#c?api_key=k3&text=b", "qdrant:https://h8:6333#c?text=b", {"api_key": "k3"}),
        ("qdrant:https://h9:6333?api-key=k4#c", "qdrant:https://h9:6333#c", {"api_key": "k4"}),
        ("a folder: with @ and ?password=1", "a folder: with @ and ?password=1", {}),
    ],
)  # fmt: skip
def test_secrets_are_taken_out(typed, hidden, secrets):
    assert hide_secrets(typed) == hidden
    assert hide_secrets(hidden) == hidden
    assert secrets_of(hidden) == secrets


def test_all_tables_of_a_server_share_the_password():
    assert hide_secrets("pg:postgresql://ann:long-secret@h5/db#a") == "pg:postgresql://ann@h5/db#a"
    assert secrets_of("pg:postgresql://ann@h5/db#another") == {"password": "long-secret"}
    assert scrub("FATAL: long-secret is wrong") == "FATAL: *** is wrong"


def test_an_address_has_a_place_a_name_and_options():
    assert Address.parse("dir/with#hash/a.db#table") == Address("dir/with#hash/a.db", "table")
    assert Address.parse("http://h?x=1#c?text=t&distance=l2") == Address(
        "http://h?x=1", "c", {"text": "t", "distance": "l2"}
    )
    assert Address.parse("folder") == Address("folder")


def test_a_name_may_have_a_hash_as_a_path_may(tmp_path):
    for place in (tmp_path / "my.db", tmp_path / "my.db#1"):
        place.touch()
        assert Address.parse(f"{place}#x#y?text=t") == Address(str(place), "x#y", {"text": "t"})
    assert Address.parse("not#here/new.db#x#y?text=t") == Address("not#here/new.db", "x#y", {"text": "t"})
    assert Address.parse("http://h/v1#x#y") == Address("http://h/v1", "x#y")


def test_the_url_of_a_server_has_no_secret_and_what_tells_servers_apart():
    for url, masked in (
        ("https://h/v1?deployment=a&api-version=1", "https://h/v1?deployment=a&api-version=1"),
        ("https://sk-0123@h/v1", "https://***@h/v1"),
        ("https://ann:p/w@x@h:8/v1?key=k1k2k3&sig=", "https://***@h:8/v1?key=***&sig="),
        ("ann:12345@h/v1", "***@h/v1"),
    ):
        assert mask_url(url) == masked
    assert scrub("refused sk-0123 and p/w@x and k1k2k3") == "refused *** and *** and ***"
    assert scrub(f"refused Basic {b64encode(b'ann:p/w@x').decode()}") == "refused Basic ***"


AWKWARD = ("s3cr3t", "se@cr", "se#cr", "se/cr", "se?cr", "s@e#c/r?x=y", "12#34", "12/34", "se;cr=et", "se&cr",
           "se=cr==", "se:cr@", "%23se%40", "se cr", "päss")  # fmt: skip
PLACES = (
    "https://ann:{}@h.example/v1",
    "https://{}@h.example/v1",
    "https://ann:{}@h.example:8443/v1?api-version=1",
    "ann:{}@h.example/v1",
    "https://h.example/v1;token={}",
    "https://h.example/v1?api-version=1;token={}",
    "https://h.example/v1?token={}&api-version=1",
    "https://h.example/v1?x=1&Api_Key={}",
    "https://h.example/v1?sig%6Eature={}",
    "https://h.example/v1#{}",
    "https://h.example/v1?api-version=1#{}",
)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("secret", AWKWARD)
def test_no_secret_is_left_in_the_url_of_a_server_however_it_is_typed(secret, place):
    url = place.format(secret)
    masked = mask_url(url)
    assert secret not in masked and "cr" not in masked
    assert "h.example" in masked and "***" in masked
    assert mask_url(masked) == masked
    said = scrub(f"the server at {url} knows no {secret}, {quote(secret, safe='')} or {unquote(secret)}")
    assert not {secret, quote(secret, safe=""), unquote(secret)} & set(said.replace(",", "").split(" "))


@pytest.mark.parametrize("path", ["", "/", "/v1", "/v1?deployment=a&api-version=1", "/v1?email=a@b.example", "/@cf/v1"])
@pytest.mark.parametrize("server", ["https://h.example", "http://127.0.0.1:8000", "http://[::1]:8000"])
def test_what_is_no_secret_stays(server, path):
    assert mask_url(server + path) == server + path


def test_a_semicolon_separates_settings_of_a_location_too():
    assert hide_secrets("qdrant:https://h11:6333;token=k1;a=b#c") == "qdrant:https://h11:6333;a=b#c"
    assert hide_secrets("pg:postgresql://u:p@s#w@h12/db#t") == "pg:postgresql://u@h12/db#t"
    assert secrets_of("pg:postgresql://u@h12/db#t") == {"password": "p@s#w"}
    assert hide_secrets("pg:postgresql://u:p@h13/db#a@b") == "pg:postgresql://u@h13/db#a@b"


def test_options_without_a_sign_before_them_are_shown_their_place(tmp_path):
    for location in (
        "chroma:gone?text=body",
        "lancedb:gone?text=body",
        "sqlite:gone?text=body",
        "parquet:gone?text=body",
    ):
        place = location.partition(":")[2].partition("?")[0]
        with pytest.raises(StoreError, match=re.escape(f"options go after a #: write {tmp_path / place}#?text=body")):
            open_store(location.replace("gone", str(tmp_path / "gone")))
