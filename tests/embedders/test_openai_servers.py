"""Servers with habits of their own: what they refuse, fail on or answer, and how they are reached."""

import datetime
import ipaddress
import json
import logging
from collections import Counter

import numpy as np
import openai_server as fake
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from migrate.cli.main import run
from migrate.embedders.cache import CachedEmbedder
from migrate.embedders.openai import OpenAIEmbedder
from migrate.embedders.openai_requests import PROBE, _certificates
from migrate.errors import AuthenticationError, InputError, OutputError, RemoteError

BAD = "text 7"


@pytest.fixture(autouse=True)
def waits(monkeypatch):
    return fake.do_not_wait(monkeypatch)


@pytest.fixture
def texts(documents):
    return documents(*(f"text {number}" for number in range(16)))


def expected(texts):
    return np.stack([fake.vector_of(text.text) for text in texts])


def without(texts, name):
    return [text for text in texts if text.text != name]


def test_a_server_that_refuses_base64_is_asked_for_numbers_from_then_on(server, texts):
    server.takes_base64 = False
    embedder = OpenAIEmbedder("tiny", base_url=server.url, batch_size=4)
    for _ in range(2):
        np.testing.assert_array_equal(embedder.embed_documents(texts), expected(texts))
    assert [request.encoding_format for request in server.requests] == ["base64"] + ["float"] * 8
    assert sorted(server.billed) == sorted(2 * [text.text for text in texts])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("most", "sizes"),
    [(1, [16, 1, 8, 1, 4, 1, 2] + [1] * 29), (5, [16, 1, 8, 1, 4, 3, 4, 3] + [4] * 4)],
)
def test_a_server_of_few_texts_a_request_gets_as_few_from_then_on(most, sizes, server, texts, waits):
    server.most_texts = most
    embedder = OpenAIEmbedder("tiny", base_url=server.url, concurrency=1)
    for _ in range(2):
        np.testing.assert_array_equal(embedder.embed_documents(texts), expected(texts))
    assert [len(request.inputs) for request in server.requests] == sizes and waits == []
    assert sorted(server.billed) == sorted(2 * [text.text for text in texts])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("said", "code", "concurrency"),
    [("batch too large", 400, 8), ("trop de textes", 413, 1), ("bad request", 422, 8), ("", 400, 1), ("", 413, 8)],
)
def test_a_server_may_say_as_it_likes_that_texts_are_too_many(said, code, concurrency, server, texts):
    server.refuses = lambda inputs: fake.status(code, said) if len(inputs) > 5 else None
    embedder = OpenAIEmbedder("tiny", base_url=server.url, concurrency=concurrency)
    np.testing.assert_array_equal(embedder.embed_documents(texts), expected(texts))
    assert sorted(server.billed) == sorted(text.text for text in texts)


@pytest.mark.parametrize("code", [400, 422])
def test_a_server_that_refuses_whatever_it_is_sent_is_asked_three_times(code, server, documents):
    server.refuses = lambda _inputs: fake.status(code, "no such option")
    many = documents(*(f"text {number}" for number in range(2_000)))
    with pytest.raises(RemoteError, match=rf"refused the request for 'tiny' \(HTTP {code}\): no such option; check"):
        OpenAIEmbedder("tiny", base_url=server.url).embed_documents(many)
    assert [request.inputs for request in server.requests][1:] == [["text 0"], [PROBE]]


@pytest.mark.slow
def test_a_server_that_begins_to_refuse_is_asked_no_more_than_what_was_in_flight(server, documents):
    embedder = OpenAIEmbedder("tiny", base_url=server.url, concurrency=4)
    many = documents(*(f"text {number}" for number in range(2_000)))
    embedder.embed_documents(many)
    before = len(server.requests)
    server.refuses = lambda _inputs: fake.status(400, "out of order")
    with pytest.raises(RemoteError, match="out of order"):
        embedder.embed_documents(many)
    assert len(server.requests) - before <= 4 + 2


@pytest.mark.parametrize(
    ("code", "error"), [(401, AuthenticationError), (403, AuthenticationError), (404, RemoteError)]
)
def test_a_wrong_key_or_model_is_no_matter_of_how_many_texts(code, error, server, texts):
    server.refuses = lambda _inputs: fake.status(code, "too many inputs")
    with pytest.raises(error):
        OpenAIEmbedder("tiny", base_url=server.url).embed_documents(texts)
    assert len(server.requests) == 1


@pytest.mark.slow
def test_a_text_that_the_server_refuses_is_named_and_the_others_are_paid_for_once(server, texts, tmp_path):
    server.refuses = lambda inputs: fake.status(400, "invalid input") if BAD in inputs else None
    cached = CachedEmbedder(OpenAIEmbedder("tiny", base_url=server.url, concurrency=1), tmp_path / "cache")
    with pytest.raises(InputError, match=r"^'d7': .* \(HTTP 400 \(invalid input\)\)"):
        cached.embed_documents(texts)
    assert len(server.requests) <= 10
    cached.embed_documents(without(texts, BAD))
    billed = [text for text in server.billed if text != PROBE]
    assert sorted(billed) == sorted(text.text for text in without(texts, BAD))


def test_a_request_of_one_text_that_is_too_many_is_refused(server, documents):
    server.most_texts = 0
    with pytest.raises(RemoteError, match=r"'tiny' \(HTTP 400\): Too many inputs"):
        OpenAIEmbedder("tiny", base_url=server.url).embed_documents(documents("one"))
    assert [request.inputs for request in server.requests] == [["one"], [PROBE]]


@pytest.mark.slow
def test_a_text_on_which_the_server_fails_is_named_and_the_others_are_paid_for_once(server, texts, tmp_path):
    server.fails_on = lambda text: text == BAD
    embedder = OpenAIEmbedder("tiny", base_url=server.url, attempts=4, concurrency=2)
    cached = CachedEmbedder(embedder, tmp_path / "cache")
    with pytest.raises(InputError) as error:
        cached.embed_documents(texts)
    assert str(error.value).startswith(f"'d7': {server.url} ")
    assert "(HTTP 500 (failed to encode response: json: " in str(error.value)
    cached.embed_documents(without(texts, BAD))
    billed = [text for text in server.billed if text != PROBE]
    assert sorted(billed) == sorted(text.text for text in without(texts, BAD))
    assert embedder.usage_tokens == server.billed_tokens
    # The whole and the text alone four times each, the parts between three times
    assert Counter(len(request.inputs) for request in server.requests if BAD in request.inputs) == {
        16: 4, 8: 3, 4: 3, 2: 3, 1: 4,
    }  # fmt: skip


@pytest.mark.slow
def test_a_request_that_a_server_fails_on_for_its_size_is_split(server, texts, waits):
    server.fails_on = lambda _text: len(server.requests[-1].inputs) > 4
    embedder = OpenAIEmbedder("tiny", base_url=server.url, attempts=2, concurrency=1)
    np.testing.assert_array_equal(embedder.embed_documents(texts), expected(texts))


def test_no_text_is_named_where_the_server_fails_on_all(server, texts):
    server.fails_on = lambda _text: True
    with pytest.raises(RemoteError, match=r"failed 4 times, .*: HTTP 500 "):
        OpenAIEmbedder("tiny", base_url=server.url, attempts=4).embed_documents(texts)
    assert [request.inputs for request in server.requests][4:] == [[PROBE]]


def zero_for(*bad):
    def vectors(inputs):
        return np.stack([0 * fake.vector_of(text) if text in bad else fake.vector_of(text) for text in inputs])

    return vectors


@pytest.mark.parametrize("batch_size", [16, 1])
def test_a_text_without_a_vector_is_named_and_the_others_are_paid_for_once(batch_size, server, texts, tmp_path):
    server.vectors = zero_for(BAD)
    embedder = OpenAIEmbedder("tiny", base_url=server.url, batch_size=batch_size)
    cached = CachedEmbedder(embedder, tmp_path / "cache")
    with pytest.raises(InputError, match=r"^'d7': .* zero, NaN or Inf"):
        cached.embed_documents(texts)
    cached.embed_documents(without(texts, BAD))
    billed = Counter(text for text in server.billed if text != PROBE)
    assert billed == Counter(text.text for text in texts) + Counter([BAD, BAD])
    assert embedder.usage_tokens == server.billed_tokens


@pytest.mark.parametrize("count", [1, 16])
def test_no_text_is_named_where_no_vector_can_be_used(count, server, texts):
    server.vectors = zero_for(PROBE, *(text.text for text in texts))
    with pytest.raises(RemoteError, match=r"failed 3 times, .* zero.* `base_url`"):
        OpenAIEmbedder("tiny", base_url=server.url).embed_documents(texts[:count])


@pytest.mark.parametrize(
    "faults", [[fake.ZERO] * 2, [fake.NAN] * 2, [fake.NAN, fake.NOT_JSON], [fake.ZERO, fake.status(429)]]
)
def test_only_a_text_whose_vector_cannot_be_used_is_sent_again(faults, server, texts):
    server.faults += faults
    embedder = OpenAIEmbedder("tiny", base_url=server.url)
    np.testing.assert_array_equal(embedder.embed_documents(texts), expected(texts))
    assert [request.inputs for request in server.requests[1:]] == [["text 0"]] * 2
    assert embedder.usage_tokens == server.billed_tokens


def test_parameters_of_the_address_go_with_each_request(server, texts):
    embedder = OpenAIEmbedder("tiny", base_url=f"{server.url}?tenant=a%20b&empty=", batch_size=8)
    np.testing.assert_array_equal(embedder.embed_documents(texts), expected(texts))
    assert [request.query for request in server.requests] == ["tenant=a+b&empty="] * 2
    assert {request.api_key for request in server.requests} == {None}


@pytest.mark.parametrize("key", [fake.KEY, "sk-another"])
def test_azure_gets_its_version_and_the_key_in_its_own_header(key, texts, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", key)
    with fake.OpenAIServer(key=fake.KEY) as server:
        server.api_version = "2024-10-21"
        address = server.url.replace("/v1", "/openai/deployments/small")
        embedder = OpenAIEmbedder("tiny", base_url=f"{address}?api-version=2024-10-21", batch_size=8)
        if key == fake.KEY:
            np.testing.assert_array_equal(embedder.embed_documents(texts), expected(texts))
        else:
            with pytest.raises(AuthenticationError, match="HTTP 401"):
                embedder.embed_documents(texts)


@pytest.mark.parametrize(
    ("name", "is_noted"),
    [("something-else-v9", True), ("tiny", False), ("/models/tiny-q8_0.gguf", False), (None, False)],
)
def test_another_models_name_is_noted_once(name, is_noted, server, texts, caplog):
    server.names = lambda _request: name
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            OpenAIEmbedder("tiny", base_url=server.url, batch_size=8).embed_documents(texts)
    note = f"{server.url}: 'tiny' was requested, and a model named {name!r} answers; check that it is the one you mean"
    assert [record.getMessage() for record in caplog.records] == [note] * is_noted


@pytest.fixture
def certify(tmp_path, monkeypatch):
    """Make a certificate and its key for a name or an address, signed by itself; the client reads certificates anew."""
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)

    def make(*names):
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "a server of a test")])
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        )
        pem = serialization.Encoding.PEM
        form = serialization.PrivateFormat.PKCS8
        certificate, secret = tmp_path / "server.pem", tmp_path / "server.key"
        certificate.write_bytes(builder.sign(key, hashes.SHA256()).public_bytes(pem))
        secret.write_bytes(key.private_bytes(pem, form, serialization.NoEncryption()))
        return certificate, secret

    _certificates.cache_clear()
    yield make
    _certificates.cache_clear()


LOCAL = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))


def test_a_certificate_of_ones_own_is_accepted_where_it_is_named(certify, texts, monkeypatch):
    files = certify(LOCAL)
    with fake.OpenAIServer(certificate=files) as server:
        with pytest.raises(RemoteError) as error:
            OpenAIEmbedder("tiny", base_url=server.url).embed_documents(texts)
        assert "self-signed certificate" in str(error.value)
        assert str(error.value).endswith(" SSL_CERT_FILE")
        _certificates.cache_clear()
        monkeypatch.setenv("SSL_CERT_FILE", str(files[0]))
        embedder = OpenAIEmbedder("tiny", base_url=server.url)
        np.testing.assert_array_equal(embedder.embed_documents(texts), expected(texts))


def test_a_certificate_for_another_name_is_told(certify, texts, monkeypatch):
    files = certify(x509.DNSName("embeddings.example"))
    monkeypatch.setenv("SSL_CERT_FILE", str(files[0]))
    with fake.OpenAIServer(certificate=files) as server, pytest.raises(RemoteError) as error:
        OpenAIEmbedder("tiny", base_url=server.url).embed_documents(texts)
    assert "certificate is not valid for '127.0.0.1'" in str(error.value)
    assert str(error.value).endswith(" `base_url`")


@pytest.mark.parametrize("content", [None, b"no certificate"])
def test_a_file_of_certificates_that_cannot_be_read_is_named(content, certify, server, texts, tmp_path, monkeypatch):
    path = tmp_path / "authorities.pem"
    if content is not None:
        path.write_bytes(content)
    monkeypatch.setenv("SSL_CERT_FILE", str(path))
    with pytest.raises(OutputError, match=rf"^cannot read the certificates of SSL_CERT_FILE, {path}: .*; name a file"):
        OpenAIEmbedder("tiny", base_url=server.url).embed_documents(texts)


def test_requests_go_through_a_proxy_of_the_environment(server, texts, monkeypatch):
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTP_PROXY", server.url.removesuffix("/v1"))
    embedder = OpenAIEmbedder("tiny", base_url="http://embeddings.invalid/v1")
    np.testing.assert_array_equal(embedder.embed_documents(texts), expected(texts))


def test_a_server_of_ones_own_may_be_free(server, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("\n".join(json.dumps({"id": str(n), "text": f"text {n}"}) for n in range(40)))
    places = ["--no-chunks", "-o", str(tmp_path / "out"), "--base-url", server.url]
    assert run(["embed", str(corpus), "--model", "openai:tiny", *places, "--price", "0", "--max-cost", "0"]) == 0
    assert "$0.00" in capsys.readouterr().err
