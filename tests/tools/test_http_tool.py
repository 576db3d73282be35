"""The tool `http`, against a real server on this machine."""

import json

import pytest

from perdure.tools import ToolCall, ToolError, find
from tests.executors.site import Site, says

HERE = ("127.0.0.1",)
HTTP = find("http")


async def ask(allow=HERE, key="k1", connections=None, **params):
    return await HTTP.run(HTTP.read(params), ToolCall(key, 5.0, 1, allow, connections or {}))


async def failed(**params):
    with pytest.raises(ToolError) as raised:
        await ask(**params)
    return raised.value


async def test_json_comes_back_as_data_and_text_as_text():
    answers = {
        "/j": says(b'{"a": [1]}', Content_Type="application/json; charset=utf-8"),
        "/t": says(b"hi", Content_Type="text/plain"),
    }
    async with Site(answers) as site:
        told = await ask(url=site.url("/j"))
        assert (told.result, told.more["http"]["status"]) == ({"a": [1]}, 200)
        assert (await ask(url=site.url("/t"))).result == "hi"


async def test_params_headers_body_auth_and_the_idempotency_key_are_sent():
    async with Site({"/x": says(b"")}) as site:
        await ask(
            url=site.url("/x?z=1"),
            method="POST",
            params={"a": 1, "b": None, "c": ["x", "y"]},
            headers={"X-One": 1},
            json={"n": 2},
            auth={"bearer": "t0ken"},
        )
        await ask(url=site.url("/x"), form={"a": "b c"}, method="PUT", auth={"basic": {"user": "u", "password": "p"}})
        await ask(url=site.url("/x"), auth="depot", connections={"depot": "abc"})

    first, second, third = site.asked
    assert first.line == "POST /x?z=1&a=1&c=x&c=y HTTP/1.1"
    assert (first.headers["x-one"], first.headers["authorization"]) == ("1", "Bearer t0ken")
    assert first.headers["idempotency-key"] == "k1"
    assert json.loads(first.body) == {"n": 2}
    assert (second.body, second.headers["authorization"]) == (b"a=b+c", "Basic dTpw")
    assert third.headers["authorization"] == "Bearer abc"
    assert "idempotency-key" not in third.headers


@pytest.mark.parametrize(
    ("status", "kind", "retryable"),
    [
        ("429 Slow", "rate_limit", True),
        ("403 No", "auth", False),
        ("404 Gone", "not_found", False),
        ("409 Conflict", "client_error", False),
        ("503 Down", "server_error", True),
    ],
)
async def test_a_status_is_an_error_of_its_kind(status, kind, retryable):
    async with Site({"/": says(b"no", status, Content_Type="text/plain", Retry_After="7")}) as site:
        error = await failed(url=site.url())

    assert (error.kind, error.retryable, error.status) == (kind, retryable, int(status[:3]))
    assert error.data["http"]["headers"]["retry-after"] == "7"
    assert error.data["details"] == "no"


async def test_expect_says_which_statuses_are_ok():
    async with Site({"/": says(b"", "404 Gone")}) as site:
        assert (await ask(url=site.url(), expect=[404])).more["http"]["status"] == 404
        assert (await ask(url=site.url(), expect="2xx 4xx")).more["http"]["status"] == 404
        assert (await failed(url=site.url(), expect=200)).kind == "not_found"


async def test_other_errors():
    async with Site(
        {"/": says(b"x" * 100), "/r": says(b"", "302 Found", Location="http://169.254.169.254/keys")}
    ) as site:
        assert (await failed(url=site.url(), max_bytes=10)).kind == "too_large"
        assert (await failed(url=site.url("/r"), redirects=3)).kind == "blocked_address"
        assert (await failed(url=site.url(), allow=())).kind == "blocked_address"
        assert (await failed(url=site.url(), json=1, form={})).kind == "bad_parameters"
        gone = site.url()
    assert (await failed(url=gone)).kind == "connect"
    assert (await failed(url="ftp://x")).kind == "bad_parameters"
    assert (await failed(url="http://x", nothing=1)).kind == "bad_parameters"
    assert (await failed(url="http://x", auth="nobody")).kind == "auth"
