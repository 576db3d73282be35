"""Requests, against a real server on this machine that the tests allow."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from perdure.errors import (
    AddressRefused,
    BadCall,
    BadRequest,
    RequestFailed,
    RequestTimeout,
    ResponseTooLarge,
)
from perdure.executors.address import Resolver
from perdure.executors.http import Response, request
from tests.executors.site import Asked, Site, certificate, says, writes

HERE = ["127.0.0.1"]


def names(**known: list[str]) -> tuple[Resolver, list[str]]:
    """A name server, and the list of what it was asked."""
    asked: list[str] = []

    async def look_up(host: str, port: int) -> list[str]:
        asked.append(host)
        return known[host.partition(".")[0]]

    return look_up, asked


async def never(_: Asked, writer: asyncio.StreamWriter) -> None:
    await writer.drain()
    await asyncio.Event().wait()


# ---- asking ----------------------------------------------------------------------------------------------------


async def test_a_request_arrives_whole_and_its_answer_comes_back():
    async with Site({"/things": says(b"made", "201 Created", X_One="1", Set_Cookie="a=b")}) as site:
        response = await request("post", site.url("/things?q=1"), {"X-Key": "k"}, b"thing", allow=HERE)

    assert site.asked == [
        Asked(
            "POST /things?q=1 HTTP/1.1",
            {
                "host": f"127.0.0.1:{site.port}",
                "x-key": "k",
                "accept-encoding": "identity",
                "user-agent": "perdure",
                "connection": "close",
                "content-length": "5",
            },
            b"thing",
        )
    ]
    assert (response.status, response.body, response.url) == (201, b"made", site.url("/things?q=1"))
    assert response.header("X-One") == "1"
    assert response.header("x-two") is None
    assert response.elapsed_seconds > 0


@pytest.mark.parametrize("status", ["204 No Content", "404 Not Found", "500 Oops"])
async def test_every_status_is_an_answer(status: str):
    async with Site({"/": writes(f"HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n".encode())}) as site:
        response = await request("GET", site.url(), allow=HERE)

    assert response.status == int(status[:3])


async def test_chunked_answers_and_answers_without_a_length_are_read_to_their_end():
    chunked = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n3\r\ncde\r\n0\r\n\r\n"
    async with Site({"/chunked": writes(chunked), "/open": writes(b"HTTP/1.0 200 OK\r\n\r\nabcde")}) as site:
        bodies = [(await request("GET", site.url(path), allow=HERE)).body for path in ("/chunked", "/open")]

    assert bodies == [b"abcde", b"abcde"]


async def test_early_hints_are_not_the_answer():
    early = b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
    async with Site({"/": writes(early)}) as site:
        response = await request("GET", site.url(), allow=HERE)

    assert (response.status, response.body) == (200, b"ok")


async def test_a_path_that_is_not_ascii_is_sent_percent_encoded():
    async with Site({"/caf%C3%A9": says(b"ok")}) as site:
        response = await request("GET", site.url("/café#part"), allow=HERE)

    assert response.body == b"ok"


async def test_the_answer_to_head_has_a_length_and_no_body():
    async with Site({"/": writes(b"HTTP/1.1 200 OK\r\ncontent-length: 99999999\r\n\r\n")}) as site:
        response = await request("HEAD", site.url(), allow=HERE)

    assert (response.body, response.header("content-length")) == (b"", "99999999")


# ---- where it may go -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "LOCALHOST", "127.1", "0x7f000001", "[::ffff:127.0.0.1]"])
async def test_an_address_of_this_machine_is_refused_in_every_spelling(host: str):
    async with Site({"/": says(b"ok")}) as site:
        with pytest.raises(AddressRefused, match="loopback"):
            await request("GET", site.url(host=host))

    assert site.asked == []


@pytest.mark.parametrize(
    "host", ["169.254.169.254", "[fd00:ec2::254]", "10.0.0.1", "[fe80::1]", "[::]", "0.0.0.0", "[64:ff9b::a9fe:a9fe]"]
)
async def test_addresses_of_the_platform_and_the_network_are_refused(host: str):
    with pytest.raises(AddressRefused):
        await request("GET", f"http://{host}/latest/meta-data/")


async def test_a_host_with_one_refused_address_is_refused_whatever_its_others_are():
    look_up, _ = names(two=["93.184.215.14", "10.0.0.1"])

    with pytest.raises(AddressRefused) as refused:
        await request("GET", "http://two.example/", resolver=look_up)

    assert (refused.value.host, refused.value.address, refused.value.rule) == ("two.example", "10.0.0.1", "private")


async def test_a_name_is_resolved_once_and_the_connection_goes_to_what_was_judged():
    turns = iter([["127.0.0.1"], ["169.254.169.254"]])

    async def rebinding(host: str, port: int) -> list[str]:
        return next(turns)

    async with Site({"/": says(b"ok")}) as site:
        response = await request("GET", site.url(host="rebind.example"), allow=HERE, resolver=rebinding)

    assert response.body == b"ok"
    assert site.asked[0].headers["host"] == f"rebind.example:{site.port}"
    assert next(turns) == ["169.254.169.254"]


async def test_an_allowed_host_is_allowed_and_the_same_address_under_another_name_is_not():
    look_up, _ = names(mine=["127.0.0.1"], other=["127.0.0.1"])
    async with Site({"/": says(b"ok")}) as site:
        allowed = await request("GET", site.url(host="mine.example"), allow=["mine.example"], resolver=look_up)
        with pytest.raises(AddressRefused):
            await request("GET", site.url(host="other.example"), allow=["mine.example"], resolver=look_up)

    assert allowed.body == b"ok"


async def test_the_next_address_is_tried_when_one_does_not_answer():
    look_up, _ = names(two=["127.0.0.2", "127.0.0.1"])
    async with Site({"/": says(b"ok")}) as site:  # listens on 127.0.0.1 alone
        response = await request("GET", site.url(host="two.example"), allow=["127.0.0.0/8"], resolver=look_up)

    assert response.body == b"ok"


async def test_the_first_address_that_answers_is_taken():
    look_up, _ = names(two=["127.0.0.1", "127.0.0.2"])
    async with Site({"/": says(b"ok")}) as site:
        response = await request("GET", site.url(host="two.example"), allow=["127.0.0.0/8"], resolver=look_up)

    assert response.body == b"ok"


async def test_an_address_that_hangs_leaves_time_for_the_next(tmp_path: Path):
    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server, client = certificate(tmp_path, "two.example")
    look_up, _ = names(two=["127.0.0.2", "127.0.0.1"])
    async with Site({"/": says(b"ok")}, server) as site:
        silent = await asyncio.start_server(hang, "127.0.0.2", site.port)
        url = site.url(host="two.example")
        response = await request("GET", url, allow=["127.0.0.0/8"], tls=client, resolver=look_up, timeout=2)
        silent.close()

    assert response.body == b"ok"


async def test_no_proxy_of_the_environment_is_asked(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9/")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9/")
    async with Site({"/": says(b"ok")}) as site:
        assert (await request("GET", site.url(), allow=HERE)).body == b"ok"


# ---- TLS -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["api.example", "API.example."])
async def test_tls_verifies_the_name_and_not_the_address(tmp_path: Path, host: str):
    server, client = certificate(tmp_path, "api.example")
    look_up, _ = names(api=["127.0.0.1"])
    async with Site({"/": says(b"ok")}, server) as site:
        url = site.url(host=host)

        response = await request("GET", url, allow=HERE, tls=client, resolver=look_up)

    assert response.body == b"ok"


@pytest.mark.parametrize("host", ["other.example", "127.0.0.1"])
async def test_a_certificate_of_another_name_is_refused_before_anything_is_sent(tmp_path: Path, host: str):
    server, client = certificate(tmp_path, "api.example")
    known: dict[str, list[str]] = {"other": ["127.0.0.1"], "127": ["127.0.0.1"]}
    look_up, _ = names(**known)
    async with Site({"/": says(b"ok")}, server) as site:
        with pytest.raises(RequestFailed, match="certificate is not trusted") as failed:
            await request("GET", site.url(host=host), allow=HERE, tls=client, resolver=look_up)

    assert site.asked == []
    assert failed.value.sent is False


async def test_a_certificate_of_an_unknown_authority_is_refused(tmp_path: Path):
    server, _ = certificate(tmp_path, "api.example")
    look_up, _ = names(api=["127.0.0.1"])
    async with Site({"/": says(b"ok")}, server) as site:
        with pytest.raises(RequestFailed, match="certificate is not trusted"):
            await request("GET", site.url(host="api.example"), allow=HERE, resolver=look_up)

    assert site.asked == []


# ---- redirects -------------------------------------------------------------------------------------------------


async def test_a_redirect_is_an_answer_unless_it_is_to_be_followed():
    async with Site({"/": says(b"", "302 Found", location="/next"), "/next": says(b"there")}) as site:
        answered = await request("GET", site.url(), allow=HERE)
        followed = await request("GET", site.url(), allow=HERE, redirects=1)

    assert (answered.status, answered.header("location")) == (302, "/next")
    assert (followed.status, followed.body, followed.url) == (200, b"there", site.url("/next"))


@pytest.mark.parametrize(
    "location", ["http://169.254.169.254/keys", "http://127.0.0.2/", "//[::1]/", "http://10.0.0.1"]
)
async def test_a_redirect_to_a_private_address_is_refused(location: str):
    async with Site({"/": says(b"", "302 Found", location=location)}) as site:
        with pytest.raises(AddressRefused):
            await request("GET", site.url(), allow=HERE, redirects=5)


async def test_redirects_without_end_end_with_the_last_of_them():
    async with Site({"/": says(b"", "302 Found", location="/")}) as site:
        response = await request("GET", site.url(), allow=HERE, redirects=3)

    assert response.status == 302
    assert len(site.asked) == 4


@pytest.mark.parametrize(
    "location", ["file:///etc/passwd", "gopher://x/", "http://user:pw@x/", "http://a b/", "http://["]
)
async def test_a_redirect_to_no_place_of_the_web_is_not_followed(location: str):
    async with Site({"/": says(b"", "302 Found", location=location)}) as site:
        response = await request("GET", site.url(), allow=HERE, redirects=5)

    assert (response.status, len(site.asked)) == (302, 1)


async def test_no_credentials_are_carried_to_another_origin():
    secret = {"Authorization": "Bearer k", "Cookie": "s=k", "X-Api-Key": "k", "Accept": "text/plain"}
    async with Site({"/": says(b"ok")}) as other, Site({"/": says(b"", "302 Found", location=other.url())}) as site:
        await request("GET", site.url(), secret, allow=HERE, redirects=1)

    assert {"authorization", "cookie", "x-api-key"} <= set(site.asked[0].headers)
    assert set(other.asked[0].headers) == {"host", "accept", "accept-encoding", "user-agent", "connection"}


async def test_credentials_stay_within_an_origin():
    async with Site({"/": says(b"", "302 Found", location="/next"), "/next": says(b"ok")}) as site:
        await request("GET", site.url(), {"Authorization": "Bearer k"}, allow=HERE, redirects=1)

    assert site.asked[1].headers["authorization"] == "Bearer k"


async def test_a_body_is_sent_again_within_an_origin_and_never_to_another():
    async with Site({"/": says(b"ok")}) as other:
        answers = {
            "/near": says(b"", "307 Temporary Redirect", location="/next"),
            "/far": says(b"", "307 Temporary Redirect", location=other.url()),
            "/next": says(b"ok"),
        }
        async with Site(answers) as site:
            near = await request("POST", site.url("/near"), body=b"password", allow=HERE, redirects=1)
            far = await request("POST", site.url("/far"), body=b"password", allow=HERE, redirects=1)

    assert (near.status, site.asked[1].line, site.asked[1].body) == (200, "POST /next HTTP/1.1", b"password")
    assert (far.status, other.asked) == (307, [])


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "303 See Other"])
async def test_a_post_that_is_redirected_becomes_a_get_without_its_body(status: str):
    async with Site({"/": says(b"", status, location="/next"), "/next": says(b"ok")}) as site:
        await request("POST", site.url(), {"content-type": "text/plain"}, b"x", allow=HERE, redirects=1)

    assert site.asked[1].line == "GET /next HTTP/1.1"
    assert site.asked[1].body == b""
    assert "content-type" not in site.asked[1].headers


async def test_a_redirect_from_https_to_http_is_not_followed(tmp_path: Path):
    server, client = certificate(tmp_path, "api.example")
    look_up, _ = names(api=["127.0.0.1"])
    async with Site({"/": says(b"", "302 Found", location="http://api.example/")}, server) as site:
        url = site.url(host="api.example")
        response = await request("GET", url, allow=HERE, tls=client, resolver=look_up, redirects=5)

    assert response.status == 302


@pytest.mark.parametrize("addresses", [["10.0.0.1"], ["169.254.169.254"], ["::1"], ["93.184.215.14", "192.168.0.1"]])
async def test_a_redirect_to_a_name_with_a_private_address_is_refused(addresses: list[str]):
    look_up, _ = names(shop=["127.0.0.1"], inside=addresses)
    async with Site({"/": says(b"", "302 Found", location="http://inside.example/keys")}) as site:
        with pytest.raises(AddressRefused, match=r"inside\.example"):
            await request("GET", site.url(host="shop.example"), allow=HERE, resolver=look_up, redirects=5)

    assert len(site.asked) == 1


# ---- bounds ----------------------------------------------------------------------------------------------------


async def test_an_answer_that_never_comes_is_timed_out():
    async with Site({"/": never}) as site:
        with pytest.raises(RequestTimeout) as cut:
            await request("GET", site.url("/?key=hidden"), allow=HERE, timeout=1.5)

    assert isinstance(cut.value, TimeoutError)
    assert cut.value.sent
    assert str(cut.value) == f"{site.url()}: no answer within 1.5 seconds; it may have taken effect"


async def trickle(_: Asked, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n")
    while True:
        writer.write(b".")
        await writer.drain()
        await asyncio.sleep(0)


async def test_an_answer_that_trickles_is_timed_out_as_a_whole():
    async with Site({"/": trickle}) as site:
        with pytest.raises(RequestTimeout):
            await request("GET", site.url(), allow=HERE, timeout=0.1)


async def test_a_name_server_that_does_not_answer_is_timed_out_and_nothing_was_sent():
    async def silent(host: str, port: int) -> list[str]:
        await asyncio.Event().wait()
        return []

    with pytest.raises(RequestTimeout) as cut:
        await request("GET", "http://slow.example/", resolver=silent, timeout=0.01)

    assert cut.value.sent is False


async def test_redirects_share_one_timeout():
    async with Site({"/": says(b"", "302 Found", location="/next"), "/next": never}) as site:
        with pytest.raises(RequestTimeout, match="/next"):
            await request("GET", site.url(), allow=HERE, redirects=1, timeout=1.5)


async def test_a_cancelled_request_closes_its_connection():
    began = asyncio.Event()

    async def begin(asked: Asked, writer: asyncio.StreamWriter) -> None:
        began.set()
        await trickle(asked, writer)

    async with Site({"/": begin}) as site:
        task = asyncio.create_task(request("GET", site.url(), allow=HERE))
        await began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(site.left.wait(), 60)


async def flood(_: Asked, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
    while True:
        writer.write(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")
        await writer.drain()


async def announce(asked: Asked, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100001\r\n\r\n")


@pytest.mark.parametrize("answer", [flood, announce], ids=["without end", "announced"])
async def test_an_answer_that_is_too_large_is_cut(answer: Any):
    async with Site({"/": answer}) as site:
        with pytest.raises(ResponseTooLarge) as cut:
            await request("GET", site.url("/?key=hidden"), allow=HERE, max_body=100_000)

        await asyncio.wait_for(site.left.wait(), 60)
    assert (cut.value.status, cut.value.limit) == (200, 100_000)
    assert "hidden" not in str(cut.value)


async def test_an_answer_of_exactly_the_limit_is_not_too_large():
    async with Site({"/": says(b"x" * 100_000)}) as site:
        assert len((await request("GET", site.url(), allow=HERE, max_body=100_000)).body) == 100_000


@pytest.mark.parametrize(
    ("method", "status"), [("GET", "304 Not Modified"), ("GET", "204 No Content"), ("HEAD", "200 OK")]
)
async def test_an_answer_without_a_body_is_not_too_large_whatever_length_it_names(method: str, status: str):
    """`304` names the length of what has not changed."""
    head = f"HTTP/1.1 {status}\r\ncontent-length: 100001\r\n\r\n".encode()
    async with Site({"/": writes(head)}) as site:
        response = await request(method, site.url(), allow=HERE, max_body=100_000)

    assert (response.status, response.body) == (int(status[:3]), b"")


async def test_an_answer_that_comes_before_all_of_the_request_was_heard_is_the_answer():
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too Much\r\ncontent-length: 0\r\n\r\n")
        await answered.wait()
        writer.transport.abort()

    answered = asyncio.Event()
    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    response = await request("POST", url, body=bytes(30_000_000), allow=HERE)
    answered.set()
    server.close()

    assert response.status == 413


async def test_headers_without_end_are_cut():
    async def headers(_: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n")
        while True:
            writer.write(b"x-more: " + b"x" * 1000 + b"\r\n")
            await writer.drain()

    async with Site({"/": headers}) as site:
        with pytest.raises(RequestFailed, match="not HTTP"):
            await request("GET", site.url(), allow=HERE)


# ---- bad input, bad answers ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "ftp://example.com/",
        "file:///etc/passwd",
        "//example.com/",
        "example.com",
        "",
        "http://",
        "http:///path",
        "http://user:pw@example.com/",
        "http://example.com\r\nX: y/",
        "http://example.com/\tpath",
        "http://example.com/a b",
        "http://example.com\\@127.0.0.1/",
        "http://example.com:0/",
        "http://example.com:99999/",
        "http://example.com:port/",
        "http://bücher.example/",
        "http://127。0。0。1/",
        "http://[::1/",
        "http://[fe80::1%25eth0]/",
        "http://exa mple.com/",
    ],
)
async def test_a_url_that_is_none_is_refused(url: str):
    with pytest.raises(BadRequest) as refused:
        await request("GET", url, allow=["0.0.0.0/0", "::/0"])

    assert refused.value.part == "url"


@pytest.mark.parametrize(
    "header",
    [
        ("X-A", "one\r\nX-B: two"),
        ("X-A", "one\ntwo"),
        ("X-A", "one\rtwo"),
        ("X-A", "nul\0"),
        ("X-A", "snow ☃"),
        ("X-A\r\nX-B", "one"),
        ("X A", "one"),
        ("", "one"),
        ("X:", "one"),
        ("Host", "other.example"),
        ("Content-Length", "0"),
        ("transfer-encoding", "chunked"),
        ("Connection", "upgrade"),
        ("X-A", 7),
    ],
)
async def test_a_header_that_could_break_out_of_its_line_or_its_message_is_refused(header: tuple[str, Any]):
    async with Site({"/": says(b"ok")}) as site:
        with pytest.raises(BadRequest) as refused:
            await request("GET", site.url(), [header], allow=HERE)

    assert refused.value.part == "header"
    assert site.asked == []


@pytest.mark.parametrize(
    ("value", "what"),
    [("s3cret\n", "a line break or another control character"), ("s3cr€t", "a character that is not Latin-1")],
)
async def test_a_refused_header_shows_nothing_of_its_value(value: str, what: str):
    """Not one character, nor how many there are before it: it may be a secret, and the error is recorded."""
    with pytest.raises(BadRequest) as refused:
        await request("GET", "http://example.com/", {"authorization": f"Bearer {value}"})

    assert str(refused.value) == f"header: the value of authorization has {what}, which no header can have"


@pytest.mark.parametrize("method", ["", "GET /", "GET\r\n", "CONNECT", "trace"])
async def test_a_method_that_is_none_is_refused(method: str):
    with pytest.raises(BadRequest, match="method"):
        await request(method, "http://example.com/")


async def test_a_body_that_is_text_is_refused():
    with pytest.raises(BadRequest, match="expected bytes, found str"):
        await request("POST", "http://example.com/", body="text")  # type: ignore[arg-type]


@pytest.mark.parametrize("options", [{"timeout": 0}, {"timeout": float("nan")}, {"max_body": -1}, {"redirects": -1}])
async def test_bounds_that_are_none_are_refused(options: dict[str, Any]):
    with pytest.raises(BadCall):
        await request("GET", "http://example.com/", **options)


async def test_a_host_that_is_not_known_and_a_port_where_nobody_listens_say_so():
    async with Site({}) as site:
        url = site.url()
    with pytest.raises(RequestFailed, match=r"no connection to 127\.0\.0\.1") as nobody:
        await request("GET", url, allow=HERE)
    with pytest.raises(RequestFailed, match=r"no-such-host\.invalid is not known") as unknown:
        await request("GET", "http://no-such-host.invalid/")

    with pytest.raises(RequestFailed, match="is not known"):
        await request("GET", f"http://{'a' * 64}.example/")

    assert (nobody.value.sent, unknown.value.sent) == (False, False)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc",
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nbad header\r\n\r\n",
    ],
)
async def test_an_answer_that_breaks_off_or_makes_no_sense_is_a_failure_that_may_have_taken_effect(answer: bytes):
    async with Site({"/": writes(answer)}) as site:
        with pytest.raises(RequestFailed) as failed:
            await request("POST", site.url(), body=b"x", allow=HERE)

    assert failed.value.sent
    assert not isinstance(failed.value, RequestTimeout)


def test_an_answer_is_plain_to_record():
    from perdure.codec import encode, from_plain, to_plain

    response = Response(200, (("a", "b"),), b"x", "http://x/", 0.5)

    assert from_plain(to_plain(response), Response) == response
    assert encode(to_plain(response))


def test_the_engine_starts_without_what_requests_and_keys_need():
    code = (
        "import sys, perdure, perdure.app, perdure.executors.inline, perdure.executors.signatures;"
        "print([name for name in ('h11', 'cryptography', 'perdure.executors.http') if name in sys.modules])"
    )

    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)

    assert found.stdout.strip() == "[]"
