"""Secrets: values are in calls while they run, and in nothing that is kept or shown."""

from __future__ import annotations

import base64
import html
import io
import json
import logging
import re
from dataclasses import dataclass
from logging.handlers import QueueHandler
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple
from urllib.parse import quote, quote_plus, urlencode

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

import perdure
from perdure.codec import decode, digest, encode, from_plain, to_plain
from perdure.errors import BadCall, Fatal, NotConvertible, SecretChanged, SecretMissing
from perdure.executors import info
from perdure.executors.http import request
from perdure.executors.redaction import Redaction
from perdure.executors.secrets import EnvironmentSecrets, FileSecrets, MappingSecrets, inject
from perdure.kernel.receipt import failure_of
from perdure.ports.secrets import Secret, Secrets
from tests.executors.site import Asked, Site

VALUE = "sk/live+4eC39H=qLyj'WDar\"jtT1&zdp7é"
KEY = Secret("stripe-key")
SECRETS = MappingSecrets({"stripe-key": VALUE, "other": "another-value"})


class Params(msgspec.Struct, frozen=True):
    url: str
    headers: dict[str, str | Secret]


@dataclass(frozen=True)
class Login:
    user: str
    password: str | Secret


class Pair(NamedTuple):
    left: Any
    right: Any


# ---- references ------------------------------------------------------------------------------------------------


def test_a_reference_is_plain_data_of_its_own_type():
    plain = to_plain(Secret("stripe-key", prefix="Bearer "), Secret)

    assert plain == {"name": "stripe-key", "digest": None, "prefix": "Bearer "}
    assert from_plain(decode(encode(plain)), Secret) == Secret("stripe-key", prefix="Bearer ")


@pytest.mark.parametrize("name", ["", ".hidden", "../etc/passwd", "a/b", "a\0b", "a b", "-x", "x" * 129, "é"])
def test_a_name_that_could_lead_elsewhere_is_refused(name: str):
    with pytest.raises(BadCall):
        Secret(name)
    with pytest.raises(NotConvertible):
        from_plain({"name": name, "digest": None, "prefix": ""}, Secret)


@pytest.mark.parametrize("name", [None, 7, b"stripe-key"])
def test_a_name_that_is_no_text_is_refused(name: Any):
    with pytest.raises(BadCall, match="the name of a secret"):
        Secret(name)


@pytest.mark.parametrize("wrong", ["", "sha256:", "sha256:" + "A" * 64, "md5:" + "a" * 32, 7, b"sha256:"])
def test_a_digest_that_is_none_is_refused(wrong: Any):
    with pytest.raises(BadCall):
        Secret("stripe-key", wrong)


# ---- injecting -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "injected"),
    [
        (KEY, VALUE),
        (Secret("stripe-key", prefix="Bearer "), f"Bearer {VALUE}"),
        ({"a": [1, {"b": KEY}]}, {"a": [1, {"b": VALUE}]}),
        ((KEY, 2), (VALUE, 2)),
        (Pair(KEY, 2), Pair(VALUE, 2)),
        (Params("u", {"x": KEY}), Params("u", {"x": VALUE})),
        ([Login("me", KEY)], [Login("me", VALUE)]),
    ],
)
def test_references_become_values_wherever_they_are(value: Any, injected: Any):
    found, _ = inject(value, SECRETS)

    assert found == injected
    assert type(found) is type(injected)


@pytest.mark.parametrize(
    "value",
    [
        {"name": "stripe-key", "digest": None, "prefix": ""},
        {"$secret": "stripe-key"},
        {"$tag": "sys/Secret@1", "$value": {"name": "stripe-key"}},
        "stripe-key",
        [Params("u", {"x": "stripe-key"}), Login("me", "sys/Secret@1")],
    ],
)
def test_data_that_looks_like_a_reference_is_none_and_stays_the_same_object(value: Any):
    found, redaction = inject(value, SECRETS)

    assert found is value
    assert redaction.text(VALUE) == VALUE


def test_what_was_injected_into_is_not_changed_itself():
    params = Params("u", {"x": KEY})

    inject(params, SECRETS)

    assert params == Params("u", {"x": KEY})


def test_a_digest_has_to_match():
    right, wrong = digest(VALUE.encode()), digest(b"yesterday's")

    assert inject(Secret("stripe-key", right), SECRETS)[0] == VALUE
    with pytest.raises(SecretChanged) as refused:
        inject({"a": Secret("stripe-key", wrong)}, SECRETS)

    assert "'stripe-key'" in str(refused.value)
    assert VALUE not in str(refused.value)


def test_a_secret_that_is_rotated_during_a_call_is_one_value_in_all_of_it():
    class Rotating:
        turn = 0

        def get(self, name: str) -> str:
            self.turn += 1
            return f"value-{self.turn}"

    found, redaction = inject([KEY, KEY], Rotating())

    assert found == ["value-1", "value-1"]
    assert redaction.text("value-1") == "<secret stripe-key>"


def test_a_class_that_refuses_the_text_is_told_of_without_the_text():
    @dataclass(frozen=True)
    class Strict:
        token: Any

        def __post_init__(self) -> None:
            if not isinstance(self.token, Secret):
                raise TypeError(f"not a secret: {self.token}")

    with pytest.raises(BadCall, match="Strict refuses the text of a secret in: token") as refused:
        inject(Strict(KEY), SECRETS)

    assert VALUE not in failure_of(refused.value).traceback


# ---- where values come from ------------------------------------------------------------------------------------


def sources(directory: Path, monkeypatch: pytest.MonkeyPatch) -> list[Secrets]:
    monkeypatch.setenv("PERDURE_SECRET_STRIPE_KEY_V1", VALUE)
    monkeypatch.setenv("PERDURE_SECRET_EMPTY", "")
    (directory / "stripe-key.v1").write_text(VALUE + "\n")
    (directory / "empty").write_text("\n")
    return [
        MappingSecrets({"stripe-key.v1": VALUE, "empty": ""}),
        EnvironmentSecrets(),
        FileSecrets(directory),
    ]


@pytest.mark.parametrize("which", [0, 1, 2])
def test_values_come_from_a_mapping_the_environment_or_files(
    which: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    source = sources(tmp_path, monkeypatch)[which]

    assert source.get("stripe-key.v1") == VALUE
    with pytest.raises(SecretMissing, match="'missing'"):
        source.get("missing")
    with pytest.raises(SecretMissing, match="empty"):
        source.get("empty")
    assert VALUE not in repr(source)
    assert VALUE not in str(vars(source)) or which == 0


def test_what_is_missing_says_where_it_was_looked_for(tmp_path: Path):
    with pytest.raises(SecretMissing, match="environment variable PERDURE_SECRET_STRIPE_KEY is not set"):
        EnvironmentSecrets().get("stripe-key")
    with pytest.raises(SecretMissing, match=r"no file .*stripe-key"):
        FileSecrets(tmp_path).get("stripe-key")


def test_a_file_is_read_at_every_use_also_through_the_links_of_a_mount(tmp_path: Path):
    (tmp_path / "..2026_11_16").mkdir()
    (tmp_path / "..2026_11_16" / "stripe-key").write_text("one")
    (tmp_path / "..data").symlink_to("..2026_11_16")
    (tmp_path / "stripe-key").symlink_to("..data/stripe-key")
    source = FileSecrets(tmp_path)

    before = source.get("stripe-key")
    (tmp_path / "..2026_11_16" / "stripe-key").write_text("two\r\n")

    assert (before, source.get("stripe-key")) == ("one", "two")


def test_a_file_that_cannot_be_read_as_text_is_missing(tmp_path: Path):
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    (tmp_path / "directory").mkdir()

    with pytest.raises(SecretMissing, match="not UTF-8"):
        FileSecrets(tmp_path).get("binary")
    with pytest.raises(SecretMissing, match="cannot be read"):
        FileSecrets(tmp_path).get("directory")


# ---- hiding ----------------------------------------------------------------------------------------------------

HIDDEN = Redaction({"stripe-key": VALUE})

WRITTEN = [
    VALUE,
    f"Bearer {VALUE}, and more",
    quote(VALUE),
    quote(VALUE, safe=""),
    quote_plus(VALUE),
    re.sub("%..", lambda found: found[0].lower(), quote(VALUE)),
    urlencode({"key": VALUE, "b": 1}),
    base64.b64encode(VALUE.encode()).decode(),
    base64.urlsafe_b64encode(VALUE.encode()).decode(),
    base64.b64encode(f"u:{VALUE}:x".encode()).decode(),
    base64.b64encode(f"us:{VALUE}".encode()).decode(),
    base64.b64encode(f"use:{VALUE}".encode()).decode(),
    VALUE.encode().hex(),
    VALUE.encode().hex().upper(),
    json.dumps({"key": VALUE}),
    json.dumps({"key": VALUE}, ensure_ascii=False),
    html.escape(f"<b>{VALUE}</b>"),
    repr([VALUE]),
    ascii([VALUE]),
    repr(VALUE.encode()),
    repr(VALUE.encode("latin-1")),
    VALUE.encode().decode("latin-1"),
]


def readable(text: str) -> str:
    """The text and everything that somebody could decode from its words."""
    found = [text]
    for word in text.replace('"', " ").replace("'", " ").split():
        for turn in range(4):
            try:
                found.append(base64.b64decode(word[turn:] + "=" * (-len(word[turn:]) % 4)).decode("latin-1"))
            except ValueError:
                continue
    return " ".join(found)


@pytest.mark.parametrize("text", WRITTEN)
def test_a_value_is_hidden_however_it_is_written(text: str):
    hidden = HIDDEN.text(text)

    assert "<secret stripe-key>" in hidden
    assert "4eC39H" not in readable(hidden)
    assert b"4eC39H" not in HIDDEN.data(text.encode())


@settings(deadline=None)  # the machine may be busy
@given(some.text(min_size=8, max_size=40), some.binary(max_size=5), some.binary(max_size=5))
def test_no_text_around_a_value_keeps_it_from_being_hidden(value: str, before: bytes, after: bytes):
    redaction = Redaction({"any": value})
    raw = value.encode()

    assert value not in redaction.text(f"x{value}y")
    assert raw not in redaction.data(before + raw + after)
    inside = base64.b64encode(before + raw + after).decode()
    assert "<secret any>" in redaction.text(inside)


@pytest.mark.parametrize("encoded", [base64.b64encode, base64.urlsafe_b64encode])
@pytest.mark.parametrize("value", ["correct-horse", "correct-horses", "correct-horse's"])
def test_nothing_is_left_of_a_value_that_is_base64_as_a_whole(encoded: Any, value: str):
    whole = encoded(value.encode()).decode()

    assert Redaction({"any": value}).text(f"{whole} {whole.rstrip('=')}.") == "<secret any> <secret any>."


def test_other_text_is_left_alone():
    text = "card declined: insufficient funds (sk/test)"

    assert HIDDEN.text(text) == text
    assert Redaction({}).text(VALUE) == VALUE
    assert (
        Redaction({"pin": "7"}).text("code 7, hex 37, base64 Nw==")
        == "code <secret pin>, hex 3<secret pin>, base64 Nw=="
    )


def test_a_value_of_several_lines_is_hidden_line_by_line_too():
    redaction = Redaction({"pem": "-----BEGIN KEY-----\nabcdefghij\nklmnopqrst\n-----END KEY-----"})

    assert redaction.text("cannot parse 'klmnopqrst'") == "cannot parse '<secret pem>'"


def test_each_secret_is_hidden_by_its_own_name_and_the_longer_one_first():
    redaction = Redaction({"short": "abcdef", "long": "abcdefghi"})

    assert redaction.text("abcdefghi abcdef") == "<secret long> <secret short>"


def test_values_are_hidden_in_plain_data_also_in_keys_and_bytes():
    found = HIDDEN.value({VALUE: [VALUE.encode(), {"n": 7, "t": f"x{VALUE}"}, None]})

    assert found == {"<secret stripe-key>": [b"<secret stripe-key>", {"n": 7, "t": "x<secret stripe-key>"}, None]}


# ---- nothing that is kept or shown has it ----------------------------------------------------------------------


def holds(data: bytes) -> bool:
    """Whether something in it is the value, or what is left of it when it is written otherwise."""
    return any(part in data for part in (b"4eC39H", b"zdp7", VALUE.encode().hex().encode()[8:24]))


def fails(params: Login) -> None:
    try:
        raise KeyError(params.password)
    except KeyError as cause:
        error = Fatal(f"login {params!r} failed", data={"sent": params.password, "raw": str(params.password).encode()})
        error.add_note(f"with {params.password}")
        raise error from cause


def test_a_recorded_failure_has_no_value_in_its_message_traceback_notes_data_or_causes():
    params, redaction = inject(Login("me", KEY), SECRETS)
    with pytest.raises(Fatal) as raised:
        fails(params)
    found = info.error(raised.value)
    assert found.error is not None
    found = msgspec.structs.replace(found, error=msgspec.structs.replace(found.error, causes=(found.error,)))
    assert holds(msgspec.msgpack.encode(found))

    kept = redaction.receipt(found)

    assert not holds(msgspec.msgpack.encode(kept))
    assert kept.error is not None
    assert kept.error.type == "Fatal"
    assert "login Login(user='me', password=" in kept.error.message
    assert kept.error.data == {"sent": "<secret stripe-key>", "raw": b"<secret stripe-key>"}


def test_a_receipt_of_a_call_without_secrets_is_the_same_object():
    receipt = info.ok({"a": VALUE}, None)

    assert inject({"a": 1}, SECRETS)[1].receipt(receipt) is receipt


class Keeping(QueueHandler):
    """Keeps records as they come."""

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        return record


def test_logs_have_no_value_in_their_text_arguments_errors_or_extras():
    params, redaction = inject(Login("me", KEY), SECRETS)
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    handler.setFormatter(logging.Formatter("%(message)s %(token)s"))
    logger = logging.Logger("executor")
    logger.addHandler(handler)
    logger.addFilter(redaction)
    queue: SimpleQueue[logging.LogRecord] = SimpleQueue()
    logger.addHandler(Keeping(queue))

    try:
        fails(params)
    except Fatal:
        logger.exception("calling with %r", params, extra={"token": params.password})
    logger.warning("does not fit %d", params.password, extra={"token": ""})

    text = out.getvalue()
    assert not holds(text.encode())
    assert "calling with Login(user='me', password=" in text
    assert "Traceback" in text
    assert "does not fit" in text
    assert queue.get().exc_info is None  # there are handlers that format errors themselves


async def test_a_request_with_a_secret_leaves_nothing_of_it_in_a_database(tmp_path: Path):
    """The server gets the value and sends it back in every form; what the engine has on disk has none of them."""

    async def echo(asked: Asked, writer: Any) -> None:
        body = f"{asked.headers['authorization']} {asked.body.hex()} {quote(VALUE)}".encode("latin-1")
        writer.write(b"HTTP/1.1 401 No\r\ncontent-length: %d\r\n\r\n" % len(body) + body)

    async def call(url: str, key: Secret) -> dict[str, Any]:
        (headers, body), redaction = inject(({"authorization": key}, Secret("stripe-key")), SECRETS)
        answer = await request("POST", url, headers, body.encode(), allow=["127.0.0.1"])
        assert holds(answer.body)
        kept: dict[str, Any] = redaction.value(to_plain(answer))
        return kept

    @perdure.flow
    async def charge(ctx: perdure.Context, url: str) -> Any:
        return await ctx.step("call", call, url, Secret("stripe-key", prefix="Bearer "))

    async with Site({"/": echo}) as site, perdure.open(tmp_path / "shop.db", workflows=[charge]) as engine:
        handle = await engine.start(charge, site.url(), key="o-17")
        result = await handle.result()

    assert site.asked[0].headers["authorization"] == f"Bearer {VALUE}"
    assert result["body"].startswith(b"Bearer <secret stripe-key> <secret stripe-key> <secret stripe-key>")
    kept = contents(tmp_path)
    assert b"<secret stripe-key>" in kept
    assert not holds(kept)


def contents(directory: Path) -> bytes:
    return b"".join(file.read_bytes() for file in directory.rglob("*") if file.is_file())
