"""Keys, sessions, origins and limits, without a server."""

import socket
from datetime import UTC, datetime, timedelta

import pytest

from perdure.server.auth.origins import LOOPBACK, is_ours, may_write
from perdure.server.auth.tokens import Signer, new_key, parse_key, same
from perdure.server.limits import Buckets
from perdure.server.serve import bind

NOW = datetime(2026, 11, 18, tzinfo=UTC)


def test_a_key_is_known_by_the_digest_of_its_secret():
    id, key, digest = new_key()

    assert parse_key(key) == (id, digest)
    assert key.split("_", 2)[2] not in digest
    assert same(digest, digest)
    assert not same(None, digest)
    assert not same(digest, new_key()[2])


@pytest.mark.parametrize("text", ["", "pdk_", "pdk_abc_def", "xyz", "pdk_" + "a" * 12 + "_" + "b" * 42])
def test_other_texts_are_no_keys(text):
    assert parse_key(text) is None


def test_a_session_ends_and_cannot_be_forged():
    signer = Signer(b"one")
    session, cookie = signer.session("ann", NOW)

    assert signer.read_session(cookie, NOW) == session
    assert signer.read_session(cookie, NOW + timedelta(hours=12)) is None
    assert Signer(b"two").read_session(cookie, NOW) is None
    assert signer.read_session(cookie[:-2] + "AA", NOW) is None
    assert signer.read_session("ä", NOW) is None


def test_a_cursor_is_no_session():
    signer = Signer(b"one")
    body = signer.read("session", signer.session("ann", NOW)[1])
    assert body is not None

    assert signer.read_session(signer.sign("cursor", body), NOW) is None


@pytest.mark.parametrize("host", ["127.0.0.1:7373", "localhost", "LOCALHOST:80", "[::1]:7373"])
def test_loopback_is_ours(host):
    assert is_ours(host, LOOPBACK)


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "", "localhost.evil.example:7373"])
def test_other_hosts_are_not(host):
    assert not is_ours(host, LOOPBACK)


OWN = {"x-perdure": "1", "origin": "http://127.0.0.1:7373"}


@pytest.mark.parametrize(
    ("headers", "may"),
    [
        (OWN, True),
        ({"x-perdure": "1", "sec-fetch-site": "same-origin"}, True),
        ({**OWN, "sec-fetch-site": "same-origin"}, True),
        ({"origin": "http://127.0.0.1:7373"}, False),
        ({"x-perdure": "1"}, False),
        ({"x-perdure": "1", "origin": "http://evil.example"}, False),
        ({"x-perdure": "1", "origin": "null"}, False),
        ({**OWN, "sec-fetch-site": "cross-site"}, False),
        ({**OWN, "sec-fetch-site": "same-site"}, False),
    ],
)
def test_a_write_with_a_cookie_comes_from_our_own_pages(headers, may):
    assert may_write("POST", headers, "127.0.0.1:7373") is may
    assert may_write("GET", headers, "127.0.0.1:7373")


def test_a_bucket_fills_again():
    buckets = Buckets(per_second=2, burst=3)

    assert [buckets.take("ann", 0) for _ in range(3)] == [0, 0, 0]
    assert buckets.take("ann", 0) == 0.5
    assert buckets.take("bob", 0) == 0
    assert buckets.take("ann", 0.5) == 0
    assert buckets.is_empty("ann", 0.5)


def test_answers_are_sent_at_once():
    """asyncio sets TCP_NODELAY only where the socket says that it is TCP: else each answer waits 40 ms."""
    with bind("127.0.0.1", 0) as listening:
        assert listening.proto == socket.IPPROTO_TCP
