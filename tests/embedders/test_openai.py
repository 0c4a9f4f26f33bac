import itertools
import socket
import traceback
from urllib.parse import urlsplit

import numpy as np
import openai_server as fake
import pytest

from migrate.embedders.openai import OpenAIEmbedder
from migrate.errors import AuthenticationError, InputError, RemoteError, VectorError


@pytest.fixture
def waits(monkeypatch):
    return fake.do_not_wait(monkeypatch)


@pytest.fixture
def embedder(server, waits):
    return OpenAIEmbedder("tiny", base_url=server.url, attempts=4, timeout_s=20)


SMALL = "text-embedding-3-small"


def expected(*texts):
    return np.stack([fake.vector_of(text) for text in texts])


@pytest.mark.parametrize("encoding", ["base64", "float"])
@pytest.mark.parametrize("fault", [fake.Fault(), fake.SHUFFLED], ids=["in order", "shuffled"])
def test_gives_the_servers_vectors_in_order(encoding, fault, waits, documents):
    texts = [f"text {number}" for number in range(9)]
    with fake.OpenAIServer(encoding=encoding) as server:
        server.faults.append(fault)
        vectors = OpenAIEmbedder("tiny", base_url=server.url).embed_documents(documents(*texts))
        assert len(server.requests) == 1
    assert vectors.dtype == np.float32 and vectors.flags.c_contiguous
    np.testing.assert_array_equal(vectors, expected(*texts))


UNNUMBERED = "not a list of embeddings with an index each"
TRANSIENT = {
    "429": (fake.status(429, "slow down", "rate_limit_exceeded"), 4, "HTTP 429 (slow down); try again later"),
    "500": (fake.status(500), 4, "HTTP 500 (spoiled); try again later"),
    "502": (fake.status(502), 4, "HTTP 502 (spoiled); try again later"),
    "503": (fake.status(503), 4, "HTTP 503 (spoiled); try again later"),
    "timeout": (fake.SLOW, 4, "no answer within 0.2 s, perhaps for want of a smaller batch-size; is the server run"),
    "connection reset": (fake.RESET, 4, "no connection (Connection reset by peer)"),
    "truncated JSON": (fake.TRUNCATED, 3, UNNUMBERED),
    "not JSON": (fake.NOT_JSON, 3, UNNUMBERED),
    "too few": (fake.TOO_FEW, 3, "1 embeddings for 2 texts; check `base_url`"),
    "too many": (fake.TOO_MANY, 3, "3 embeddings for 2 texts; check `base_url`"),
    "same index": (fake.SAME_INDEX, 3, "without the numbers of their texts"),
    "no index": (fake.NO_INDEX, 3, UNNUMBERED),
    "ragged": (fake.RAGGED, 3, "embeddings of several dimensions"),
    "dripping": (fake.DRIP, 3, "no whole answer within 0.2 s"),
    "reset midway": (fake.RESET_MIDWAY, 3, "an answer that broke off"),
}


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "attempts", "told"), TRANSIENT.values(), ids=TRANSIENT)
def test_tries_again_after_a_passing_fault_and_gives_up_in_a_line(
    fault, attempts, told, server, embedder, waits, documents
):
    if fault in (fake.SLOW, fake.DRIP):  # a busy machine may be as late with any other answer
        embedder.timeout_s = 0.2
    server.faults.append(fault)
    vectors = embedder.embed_documents(documents("one", "two"))
    np.testing.assert_array_equal(vectors, expected("one", "two"))
    assert len(server.requests) == 2 and len(waits) == 1
    server.faults += [fault] * 9
    with pytest.raises(RemoteError, match=f"failed {attempts} times, the last time with") as caught:
        embedder.embed_documents(documents("one", "two"))
    assert caught.value.exit_code == 7
    assert told in str(caught.value) and "\n" not in str(caught.value)
    # At 500 the server is asked for another text, once, as the fault may be with these
    probes = int(fault.status == 500)
    assert len(server.requests) == 2 + attempts + probes and len(waits) == 1 + attempts - 1


UNAVAILABLE, BUSY = fake.status(500), fake.status(429)


@pytest.mark.parametrize(
    ("answers", "waited"),
    [
        ([fake.Fault(), *[UNAVAILABLE] * 3], [0.5, 1.0, 2.0]),
        ([BUSY] * 2, [0.5, 1.0]),
        ([BUSY] * 5, [0.5, 1.0, 0.5, 1.0]),  # none at the third, when its requests in flight are as few as can be
        ([fake.status(429, retry_after="7"), fake.status(429, retry_after_ms="250")], [7.0, 0.25]),
    ],
    ids=["longer after each failure", "refused at first", "refused for longer", "as it says"],
)
def test_waits_as_long_as_the_failures_are_many_or_as_it_is_told(answers, waited, server, waits, documents):
    server.faults += answers
    embedder = OpenAIEmbedder("tiny", base_url=server.url, attempts=6)
    if answers[0] == fake.Fault():
        embedder.embed_documents(documents("zero"))
    embedder.embed_documents(documents("one"))
    assert waits == waited and len(server.requests) == len(answers) + 1


def test_answers_that_cannot_be_used_are_few_even_between_other_failures_and_are_counted(server, embedder, documents):
    server.faults += [fake.NAN, fake.status(500), fake.TOO_FEW, fake.NAN]
    with pytest.raises(InputError, match=r"'d0': .* fails on this text .* and embeds others"):
        embedder.embed_documents(documents("one two"))
    assert embedder.usage_tokens == server.billed_tokens == 3 * 2 + 1, "and another word, to tell that it does"
    embedder.embed_queries(documents("five six"))
    assert embedder.usage_tokens == server.billed_tokens == 3 * 2 + 1 + 2


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://127.0.0.1:{free}/v1", r"\(Connection refused\); is the server running, and is `base_url` right\?$"),
        ("http://no-such-host.invalid/v1", r"\(.+\); .*is `base_url` right"),
        ("https://127.0.0.1:{busy}/v1", r"\(.*SSL.*is `base_url` right"),
    ],
)
def test_gives_up_soon_on_a_server_that_is_not_there(url, reason, server, waits, documents):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        free = probe.getsockname()[1]
    url = url.format(free=free, busy=urlsplit(server.url).port)
    with pytest.raises(RemoteError, match=rf"^{url} failed 3 times, .*: no connection {reason}"):
        OpenAIEmbedder("tiny", base_url=url).embed_documents(documents("one"))
    assert waits == [0.5, 1.0]


def test_a_server_that_goes_away_in_a_long_run_is_waited_for_longer(waits, documents):
    with fake.OpenAIServer() as server:
        embedder = OpenAIEmbedder("tiny", base_url=server.url)
        embedder.embed_documents(documents("one"))
    with pytest.raises(RemoteError, match=r"failed 8 times, .*no connection"):
        embedder.embed_documents(documents("two"))
    assert waits == [0.5, 1.0, 2.0, 4.0, 8.0, 8.0, 8.0]


@pytest.mark.parametrize(
    ("key", "error", "words"),
    [
        (fake.KEY, RemoteError, "teapot"),
        ("sk-wrong-987654321", AuthenticationError, "OPENAI_API_KEY"),
        (None, AuthenticationError, "OPENAI_API_KEY"),
    ],
)
def test_the_key_is_sent_and_no_refusal_shows_it_or_is_asked_for_twice(key, error, words, monkeypatch, documents):
    if key:
        monkeypatch.setenv("OPENAI_API_KEY", key)
    with fake.OpenAIServer(key=fake.KEY) as server:
        if key == fake.KEY:
            server.faults.append(fake.status(418, f"I got {fake.KEY} and am a teapot"))
        with pytest.raises(error, match=words) as caught:
            OpenAIEmbedder("tiny", base_url=server.url).embed_documents(documents("one"))
        (request,) = server.requests
    assert key is None or request.authorization == f"Bearer {key}"
    assert "wrong" not in str(caught.value) and fake.KEY not in str(caught.value)


@pytest.mark.parametrize("key", ["sk-ümlaut", "sk-one\nsk-two"])
def test_a_garbled_key_is_found_before_it_is_sent(key, monkeypatch, server, documents):
    monkeypatch.setenv("OPENAI_API_KEY", key)
    with pytest.raises(AuthenticationError, match="characters") as caught:
        OpenAIEmbedder("tiny", base_url=server.url).embed_documents(documents("one"))
    assert key not in "".join(traceback.format_exception(caught.value))
    assert server.requests == []


MINUTE = "Request too large for text-embedding-3-small on tokens per min (TPM): Limit 10, Requested 16."


@pytest.mark.parametrize(
    ("limit", "fault", "sizes"),
    [(10, None, [8, 4, 2, 2, 4, 2, 2]), (300_000, fake.status(429, MINUTE, "rate_limit_exceeded"), [8, 4, 4])],
)
def test_a_request_that_the_server_finds_too_large_is_split_and_not_sent_again(
    limit, fault, sizes, server, waits, documents
):
    server.max_request_tokens = limit
    server.faults += [fault] if fault else []
    texts = [f"a b c {number}" for number in range(8)]
    embedder = OpenAIEmbedder("tiny", base_url=server.url, concurrency=1)
    np.testing.assert_array_equal(embedder.embed_documents(documents(*texts)), expected(*texts))
    assert sorted(server.texts_served) == sorted(texts)
    assert [len(request.inputs) for request in server.requests] == sizes and waits == []


@pytest.mark.parametrize(
    ("text", "fault"), [("", "has no text"), (" \n\t", "has no text"), ("\ud800", "is not valid Unicode")]
)
def test_what_is_no_text_is_refused_before_anything_is_paid(text, fault, server, embedder, documents):
    with pytest.raises(InputError, match=f"'d1' {fault}"):
        embedder.embed_documents(documents("one", text))
    assert server.requests == []


@pytest.mark.slow
def test_requests_stay_within_both_limits(server, documents):
    texts = [f"{number} " + "word " * 400 for number in range(1200)]
    embedder = OpenAIEmbedder("tiny", base_url=server.url, batch_size=2048)
    embedder.embed_documents(documents(*texts, *(f"x{number}" for number in range(5000))))
    assert max(len(request.inputs) for request in server.requests) == 2048
    for request in server.requests:
        assert sum(map(fake.count_tokens, request.inputs)) <= 300_000
    assert len(server.texts_served) == 6200


def test_prefixes_are_sent_by_role(server, documents):
    embedder = OpenAIEmbedder("tiny", base_url=server.url, document_prefix="passage: ", query_prefix="query: ")
    np.testing.assert_array_equal(embedder.embed_documents(documents("x")), expected("passage: x"))
    np.testing.assert_array_equal(embedder.embed_queries(documents("x")), expected("query: x"))
    assert (embedder.identity.document_prefix, embedder.identity.query_prefix) == ("passage: ", "query: ")


@pytest.mark.parametrize(
    ("name", "options", "dim", "normalized", "asked"),
    [
        ("Text-Embedding-3-Small", {}, 1536, True, []),
        ("text-embedding-3-small", {"dimensions": 16}, 16, True, []),
        ("tiny", {}, 8, True, [["word"]]),
        ("tiny-raw", {}, 8, False, [["word"]]),
    ],
)
def test_the_identity_of_an_unknown_model_is_found_by_one_word(
    name, options, dim, normalized, asked, server, documents
):
    before, after = (OpenAIEmbedder(name, base_url=server.url, **options) for _ in range(2))
    identity = before.identity
    assert (identity.spec, identity.dim, identity.normalized) == (f"openai:{name.lower()}", dim, normalized)
    assert [request.inputs for request in server.requests] == asked
    assert after.embed_documents(documents("one")).shape == (1, dim)
    assert server.requests[-1].dimensions == options.get("dimensions")
    assert after.identity == identity and len(server.requests) == len(asked) + 1, "its first answer told it"


@pytest.mark.parametrize(
    ("name", "dimensions", "expects", "told"),
    [
        ("tiny", None, None, r"7, not 8 \(as earlier answers\); is another model behind `base_url` now"),
        ("tiny", 8, None, r"7, not 8 \(as requested\); leave out dimensions=8"),
        (SMALL, None, None, rf"1535, not 1536 \(as {SMALL} gives by itself\); if .* ,dimensions=1535"),
        ("tiny", None, 8, r"7, not 8 \(as my-store has\); name the model that it was built with, or check"),
    ],
)
def test_a_whole_answer_of_another_dimension_is_paid_for_once(
    name, dimensions, expects, told, server, waits, documents
):
    embedder = OpenAIEmbedder(name, base_url=server.url, dimensions=dimensions)
    if expects is not None:
        embedder.expect_dim(expects, "my-store")
    elif dimensions is None:
        embedder.embed_documents(documents("one"))
    before = len(server.requests)
    server.faults += [fake.SHORTER] * 9
    with pytest.raises(RemoteError, match=f"dimension {told}") as caught:
        embedder.embed_documents(documents("two", "three", "four", "five"))
    assert "\n" not in str(caught.value) and caught.value.exit_code == 7
    assert len(server.requests) == before + 1 and waits == []
    assert embedder.usage_tokens == server.billed_tokens


def test_the_dimension_that_a_store_expects_is_held_against_what_is_known_beforehand(server):
    with pytest.raises(VectorError, match=r"^my-store: .* dimension 8, .* openai:text.* 1536;"):
        OpenAIEmbedder(SMALL, base_url=server.url).expect_dim(8, "my-store")
    assert server.requests == []


@pytest.mark.parametrize(("batch_size", "others", "requests"), [(None, [], 1), (1, ["d", "e"], 6)])
def test_a_server_that_gives_one_vector_to_all_texts_is_refused_at_once(
    batch_size, others, requests, server, waits, documents
):
    embedder = OpenAIEmbedder("tiny", base_url=server.url, batch_size=batch_size, concurrency=1)
    server.faults += [fake.CONSTANT] * 99
    with pytest.raises(RemoteError, match="same vector for 4 different texts"):
        embedder.embed_documents(documents("one", "ONE!", "a", "b", "one.", "c", *others))
    assert len(server.requests) == requests
    assert embedder.usage_tokens == server.billed_tokens


def test_texts_that_differ_by_signs_and_capitals_may_have_one_vector(server, embedder, documents):
    server.faults.append(fake.CONSTANT)
    assert embedder.embed_documents(documents("one", "One", "ONE", "one!", "(one)", "one...")).shape == (6, 8)
    assert embedder.embed_documents(documents("two", "three", "four", "five")).shape == (4, 8)


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_a_redirect_to_another_host_gets_neither_texts_nor_key(code, server, embedder, documents, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", fake.KEY)
    with fake.OpenAIServer() as other:
        elsewhere = other.url.replace("127.0.0.1", "localhost")
        server.faults.append(fake.status(code, Location=f"{elsewhere}/embeddings"))
        with pytest.raises(RemoteError) as error:
            embedder.embed_documents(documents("one"))
        assert other.requests == []
    here, there = server.url.removesuffix("/v1"), elsewhere.removesuffix("/v1")
    assert str(error.value).startswith(f"{here} redirects to {there}; ")
    assert error.value.exit_code == 7
    assert len(server.requests) == 1


@pytest.mark.parametrize("location", ["/v1/embeddings", "{url}/embeddings"])
def test_a_redirect_within_the_host_is_followed(location, server, embedder, documents):
    server.faults.append(fake.status(307, Location=location.format(url=server.url)))
    np.testing.assert_array_equal(embedder.embed_documents(documents("one")), expected("one"))
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("asked", "names", "fault"),
    [
        ("tiny", ["tiny"], None),
        ("tiny", ["/models/other.gguf", "OTHER:latest", "file/other"], None),
        ("tiny", [None, "served", None], None),
        (SMALL, [SMALL, f"openai/{SMALL}-2024-05-01"], None),
        ("text-embedding-ada-002", ["text-embedding-ada-002-v2"], None),
        (SMALL, ["sentence-transformers/all-MiniLM-L6-v2"], None),
        ("tiny", ["tiny", "tiny", "other"], "two models answered, 'tiny' and then 'other'"),
        (SMALL, ["openai/text-embedding-3-large"], f"'{SMALL}' was requested, and 'openai/text-embedding-3-large' ans"),
    ],
)
def test_a_server_names_its_model_as_it_likes_but_not_another(asked, names, fault, server, documents):
    cycle, texts = itertools.cycle(names), documents("one", "two", "three", "four")
    server.names = lambda _: next(cycle)
    embedder = OpenAIEmbedder(asked, base_url=server.url, batch_size=1, concurrency=1)
    if fault is None:
        assert len(embedder.embed_documents(texts)) == 4
    else:
        with pytest.raises(RemoteError, match=fault):
            embedder.embed_documents(texts)
