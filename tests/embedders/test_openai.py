import itertools
import socket
import traceback
from urllib.parse import urlsplit

import numpy as np
import openai_server as fake
import pytest

from migrate.embedders.openai import OpenAIEmbedder
from migrate.errors import AuthenticationError, InputError, RemoteError, UsageError, VectorError


@pytest.fixture
def waits(monkeypatch):
    return fake.do_not_wait(monkeypatch)


@pytest.fixture
def embedder(server, waits):
    return OpenAIEmbedder("tiny", base_url=server.url, attempts=4, timeout_s=20)


def expected(*texts):
    return np.stack([fake.vector_of(text) for text in texts])


@pytest.mark.parametrize("encoding", ["base64", "float"])
def test_gives_the_servers_vectors_in_order(encoding, waits, documents):
    with fake.OpenAIServer(encoding=encoding) as server:
        vectors = OpenAIEmbedder("tiny", base_url=server.url).embed_documents(documents("one", "two", "three"))
    assert vectors.dtype == np.float32
    assert vectors.flags.c_contiguous
    np.testing.assert_array_equal(vectors, expected("one", "two", "three"))


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
    "NaN": (fake.NAN, 3, "an embedding that is zero, NaN or Inf"),
    "zero": (fake.ZERO, 3, "an embedding that is zero, NaN or Inf"),
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
    assert len(server.requests) == 2 + attempts and len(waits) == 1 + attempts - 1


def test_waits_longer_after_each_failure(server, embedder, waits, documents):
    embedder.embed_documents(documents("one"))
    server.faults += [fake.status(500)] * 3
    embedder.embed_documents(documents("two"))
    assert waits == [0.5, 1.0, 2.0]


def test_obeys_retry_after(server, embedder, waits, documents):
    server.faults += [fake.status(429, retry_after="7"), fake.status(429, retry_after_ms="250")]
    embedder.embed_documents(documents("one"))
    assert waits == [7.0, 0.25]


def test_restores_the_order_without_asking_again(server, embedder, documents):
    server.faults.append(fake.SHUFFLED)
    texts = [f"text {number}" for number in range(9)]
    np.testing.assert_array_equal(embedder.embed_documents(documents(*texts)), expected(*texts))
    assert len(server.requests) == 1


def test_answers_that_cannot_be_used_are_few_even_between_other_failures(server, embedder, documents):
    server.faults += [fake.NAN, fake.status(500), fake.NAN, fake.NAN]
    with pytest.raises(RemoteError, match="failed 3 times"):
        embedder.embed_documents(documents("one two"))
    assert embedder.usage_tokens == server.billed_tokens == 3 * 2


@pytest.mark.parametrize(("failures", "waited"), [(2, [0.5, 1.0]), (5, [0.5, 1.0, 0.5, 1.0])])
def test_a_server_that_refuses_at_first_is_there_and_gets_all_attempts(failures, waited, server, waits, documents):
    server.faults += [fake.status(429)] * failures
    OpenAIEmbedder("tiny", base_url=server.url, attempts=6).embed_documents(documents("one"))
    assert len(server.requests) == failures + 1 and waits == waited


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
    with pytest.raises(RemoteError, match=rf"^{url} failed 3 times, the last time with: no connection {reason}"):
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
    ("name", "fault", "message"),
    [
        ("tiny", fake.status(429, "You exceeded your current quota", "insufficient_quota"), "quota"),
        ("tiny", fake.status(429, retry_after="7200"), "failed once with: .*; the server asks to wait 7200 s: run ag"),
        ("no-such-model", None, "'no-such-model'"),
    ],
)
def test_what_waiting_does_not_help_is_not_tried_again(name, fault, message, server, waits, documents):
    server.faults += [fault] if fault else []
    with pytest.raises(RemoteError, match=message):
        OpenAIEmbedder(name, base_url=server.url).embed_documents(documents("one"))
    assert len(server.requests) == 1 and waits == []


@pytest.mark.parametrize("key", [fake.KEY, "sk-wrong-987654321", None])
def test_the_key_is_sent_and_one_that_is_refused_is_not_tried_again_and_not_shown(key, monkeypatch, documents):
    if key:
        monkeypatch.setenv("OPENAI_API_KEY", key)
    with fake.OpenAIServer(key=fake.KEY) as server:
        embedder = OpenAIEmbedder("tiny", base_url=server.url)
        if key == fake.KEY:
            embedder.embed_documents(documents("one"))
            assert server.requests[0].authorization == f"Bearer {fake.KEY}"
            server.faults.append(fake.status(418, f"I got {fake.KEY} and am a teapot"))
        error, words = (RemoteError, "teapot") if key == fake.KEY else (AuthenticationError, "OPENAI_API_KEY")
        with pytest.raises(error, match=words) as caught:
            embedder.embed_documents(documents("one"))
        assert len(server.requests) == (2 if key == fake.KEY else 1)
    assert "wrong" not in str(caught.value) and fake.KEY not in str(caught.value)


def test_openai_itself_needs_a_key(documents):
    with pytest.raises(AuthenticationError, match="set OPENAI_API_KEY"):
        OpenAIEmbedder("text-embedding-3-small").embed_documents(documents("one"))


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


def test_names_the_document_that_is_too_long(server, embedder, documents):
    texts = ["short", "short too", "w " * (fake.MAX_TEXT_TOKENS + 1), "last"]
    with pytest.raises(InputError, match=r"'d2'.*cut it into chunks"):
        embedder.embed_documents(documents(*texts))


@pytest.mark.parametrize(
    ("text", "fault"), [("", "has no text"), (" \n\t", "has no text"), ("\ud800", "is not valid Unicode")]
)
def test_what_is_no_text_is_refused_before_anything_is_paid(text, fault, server, embedder, documents):
    with pytest.raises(InputError, match=f"'d1' {fault}"):
        embedder.embed_documents(documents("one", text))
    assert server.requests == []


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


def test_counts_the_tokens_that_were_charged_for_nothing_too(server, embedder, documents):
    server.faults.append(fake.TOO_FEW)
    embedder.embed_documents(documents("one two three", "four"))
    embedder.embed_queries(documents("five six"))
    assert embedder.usage_tokens == server.billed_tokens == 4 + 4 + 2
    server.faults += [fake.NAN] * 3
    with pytest.raises(RemoteError):
        embedder.embed_documents(documents("one two three"))
    assert embedder.usage_tokens == server.billed_tokens == 10 + 9


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
    embedder = OpenAIEmbedder(name, base_url=server.url, **options)
    identity = embedder.identity
    assert (identity.spec, identity.dim, identity.normalized) == (f"openai:{name.lower()}", dim, normalized)
    assert [request.inputs for request in server.requests] == asked
    assert embedder.embed_documents(documents("one")).shape == (1, dim)
    assert server.requests[-1].dimensions == options.get("dimensions")
    after = OpenAIEmbedder(name, base_url=server.url, **options)
    after.embed_documents(documents("one"))
    assert after.identity == identity and len(server.requests) == len(asked) + 2


@pytest.mark.parametrize(
    ("name", "dimensions", "expects", "told"),
    [
        ("tiny", None, None, r"dimension 7, not 8 \(as earlier answers\); is another model behind `base_url` now"),
        ("tiny", 8, None, r"dimension 7, not 8 \(as requested\); leave out dimensions=8"),
        (
            "text-embedding-3-small",
            None,
            None,
            r"dimension 1535, not 1536 \(as text-embedding-3-small gives by itself\); if .* ,dimensions=1535",
        ),
        ("tiny", None, 8, r"dimension 7, not 8 \(as my-store has\); name the model that it was built with, or check"),
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
    with pytest.raises(RemoteError, match=told) as caught:
        embedder.embed_documents(documents("two", "three", "four", "five"))
    assert "\n" not in str(caught.value) and caught.value.exit_code == 7
    assert len(server.requests) == before + 1 and waits == []
    assert embedder.usage_tokens == server.billed_tokens


def test_the_dimension_that_a_store_expects_is_held_against_what_is_known_beforehand(server):
    with pytest.raises(VectorError, match=r"my-store: its vectors have dimension 8, those of openai:text.* 1536;"):
        OpenAIEmbedder("text-embedding-3-small", base_url=server.url).expect_dim(8, "my-store")
    assert server.requests == []


@pytest.mark.parametrize(("batch_size", "others", "requests"), [(None, [], 1), (1, ["d", "e"], 6)])
def test_a_server_that_gives_one_vector_to_all_texts_is_refused_at_once(
    batch_size, others, requests, server, waits, documents
):
    embedder = OpenAIEmbedder("tiny", base_url=server.url, batch_size=batch_size, concurrency=1)
    server.faults += [fake.CONSTANT] * 99
    with pytest.raises(RemoteError, match="one and the same vector for 4 different texts; check the model"):
        embedder.embed_documents(documents("one", "ONE!", "a", "b", "one.", "c", *others))
    assert len(server.requests) == requests
    assert embedder.usage_tokens == server.billed_tokens


def test_texts_that_differ_by_signs_and_capitals_may_have_one_vector(server, embedder, documents):
    server.faults.append(fake.CONSTANT)
    assert embedder.embed_documents(documents("one", "One", "ONE", "one!", "(one)", "one...")).shape == (6, 8)
    assert embedder.embed_documents(documents("two", "three", "four", "five")).shape == (4, 8)


def test_reports_progress(server, documents):
    seen = []
    embedder = OpenAIEmbedder("tiny", base_url=server.url, batch_size=2, concurrency=1)
    embedder.embed_documents(documents(*"abcde"), progress=lambda *step: seen.append(step))
    assert seen == [("embed", 2, 5), ("embed", 4, 5), ("embed", 5, 5)]


def test_rejects_options_that_cannot_work():
    with pytest.raises(UsageError, match="2048"):
        OpenAIEmbedder("tiny", batch_size=2049)
    with pytest.raises(UsageError, match="localhost"):
        OpenAIEmbedder("tiny", base_url="localhost:8000")


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
    assert str(error.value) == (
        f"{here} redirects to {there}; nothing was sent there: if that is right, name its address instead"
    )
    assert error.value.exit_code == 7
    assert len(server.requests) == 1


@pytest.mark.parametrize("location", ["/v1/embeddings", "{url}/embeddings"])
def test_a_redirect_within_the_host_is_followed(location, server, embedder, documents):
    server.faults.append(fake.status(307, Location=location.format(url=server.url)))
    np.testing.assert_array_equal(embedder.embed_documents(documents("one")), expected("one"))
    assert len(server.requests) == 2


SMALL = "text-embedding-3-small"


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
