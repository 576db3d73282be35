"""Which hosts and origins are ours. A foreign Host is DNS rebinding, a foreign Origin is a cross-site write."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final
from urllib.parse import urlsplit

LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")
SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})


def name_of(host: str) -> str:
    """The name of a Host header without its port."""
    if host.startswith("["):
        return host.partition("]")[0].lower() + "]"
    return host.partition(":")[0].lower()


def is_ours(host: str, hosts: Collection[str] | None) -> bool:
    """Whether a Host header names us. None: any host; the framework around us has checked it."""
    return hosts is None or name_of(host) in hosts


def is_ambient(headers: Mapping[str, str]) -> bool:
    """Whether a browser may have added the credential of a request by itself: a bearer token is never added so."""
    scheme = headers.get("authorization", "").partition(" ")[0].lower()
    return scheme != "bearer" and (scheme == "basic" or "cookie" in headers or "sec-fetch-site" in headers)


def may_write(method: str, headers: Mapping[str, str], host: str) -> bool:
    """Whether a request with a cookie comes from our own pages: no other site can set the header or the origin."""
    if method in SAFE:
        return True
    if headers.get("x-perdure") != "1":
        return False
    site = headers.get("sec-fetch-site")
    if site is not None and site != "same-origin":
        return False
    origin = headers.get("origin")
    if origin is None:
        return site == "same-origin"
    return urlsplit(origin).netloc.lower() == host.lower()
