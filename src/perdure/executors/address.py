"""Which addresses a request may go to: public ones, and what the operator allows.

A url comes from a workflow, often from the data of strangers; the connection comes from inside the operator's network.
So a host is resolved once, every address that it has is judged here, and the connection goes to a judged address, never
to a name: what a name server answers a moment later has no part in it. One refused address refuses the host, so
that the outcome does not hang on which one was tried first.

The table follows IANA's registries of special-purpose addresses. `ipaddress` knows them too, but differently in each
release of Python, and by no names.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

from perdure.errors import AddressRefused, BadCall

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

Resolver = Callable[[str, int], Awaitable[list[str]]]
"""From a host and a port to addresses, the best first. It raises OSError for a host that has none."""

RULES: Final = (
    # what cloud platforms hand out keys at; the first is also the link-local one of most of them
    ("metadata", "169.254.169.254/32"),
    ("metadata", "169.254.170.0/24"),  # containers on AWS
    ("metadata", "100.100.100.200/32"),  # Alibaba
    ("metadata", "168.63.129.16/32"),  # Azure; a public address by its number
    ("metadata", "192.0.0.192/32"),  # Oracle
    ("metadata", "fd00:ec2::/32"),  # AWS
    ("metadata", "fd20:ce::254/128"),  # Google
    ("loopback", "127.0.0.0/8"),
    ("loopback", "::1/128"),
    ("unspecified", "0.0.0.0/8"),  # "this host": connects to loopback on Linux
    ("unspecified", "::/128"),
    ("link-local", "169.254.0.0/16"),
    ("link-local", "fe80::/10"),
    ("private", "10.0.0.0/8"),
    ("private", "172.16.0.0/12"),
    ("private", "192.168.0.0/16"),
    ("private", "fc00::/7"),
    ("private", "fec0::/10"),  # site-local, the older form of the same
    ("private", "64:ff9b:1::/48"),  # translation to IPv4 inside one network
    ("shared by carriers", "100.64.0.0/10"),
    ("multicast", "224.0.0.0/4"),
    ("multicast", "ff00::/8"),
    ("reserved", "192.0.0.0/24"),
    ("reserved", "192.0.2.0/24"),  # documentation
    ("reserved", "192.88.99.0/24"),  # relays of 6to4
    ("reserved", "198.18.0.0/15"),  # benchmarks
    ("reserved", "198.51.100.0/24"),
    ("reserved", "203.0.113.0/24"),
    ("reserved", "240.0.0.0/4"),  # with the broadcast address
    ("reserved", "::/96"),  # IPv4-compatible, long given up
    ("reserved", "100::/64"),  # discarded
    ("reserved", "2001::/23"),  # Teredo, benchmarks and other protocols
    ("reserved", "2001:db8::/32"),  # documentation
    ("reserved", "2002::/16"),  # 6to4: an IPv4 address behind somebody's relay
    ("reserved", "3fff::/20"),  # documentation
    ("reserved", "5f00::/16"),  # segment routing
)
"""The first that fits gives the name. An address that none fits is public, if it is of a space that is given out."""

GIVEN_OUT: Final = IPv6Network("2000::/3")
"""All of IPv6 that anybody has an address of."""

NAT64: Final = IPv6Network("64:ff9b::/96")
"""IPv4 as networks without it see it. In daily use, so it is judged by the IPv4 address in it."""

_RULES: Final[tuple[tuple[str, Network], ...]] = tuple((rule, ip_network(network)) for rule, network in RULES)


class Guard:
    """What the operator allows besides public addresses: networks, addresses and hosts, by their exact names."""

    def __init__(self, allow: Iterable[str] = ()) -> None:
        if isinstance(allow, str) or not isinstance(allow, Iterable):
            raise BadCall(f"allow= takes a list of networks, addresses and hosts, found {allow!a}: write allow=[...]")
        self._networks: list[Network] = []
        self._hosts: set[str] = set()
        for entry in allow:
            network = _network(entry)
            if network is not None:
                self._networks.append(network)
            else:
                self._hosts.add(_host(entry))

    def check(self, host: str, address: str) -> None:
        """Raise `AddressRefused` unless a connection to this address, for this host, is allowed."""
        found = without_zone(address)
        rule = rule_of(found)
        if rule is not None and not self._allows(host, found):
            raise AddressRefused(host, str(found), rule)

    def _allows(self, host: str, address: Address) -> bool:
        forms = {address, _as_ipv4(address)}
        return canonical_host(host) in self._hosts or any(
            form in network for form in forms for network in self._networks
        )


def rule_of(address: Address) -> str | None:
    """Why this address is not a public one, or None if it is."""
    judged = _as_ipv4(address)
    for rule, network in _RULES:
        if judged in network:
            return rule
    return "reserved" if isinstance(judged, IPv6Address) and judged not in GIVEN_OUT else None


def canonical_host(host: str) -> str:
    """Hosts are compared in lower case, and a name with a dot at its end is the same name."""
    return host.lower().removesuffix(".")


def without_zone(address: str) -> Address:
    """`fe80::1%eth0` is an address and the interface it is behind."""
    return ip_address(address.partition("%")[0])


async def resolve(host: str, port: int) -> list[str]:
    """Ask the system. Numbers in old spellings (`127.1`, `0x7f000001`) come back as the addresses that they are."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(sockaddr[0]) for *_, sockaddr in found))


def _as_ipv4(address: Address) -> Address:
    """The IPv4 address that this one stands for, if it does."""
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return address.ipv4_mapped
        if address in NAT64:
            return IPv4Address(int(address) & 0xFFFF_FFFF)
    return address


def _network(entry: str) -> Network | None:
    if not isinstance(entry, str):  # a number would be an address
        raise BadCall(f"allow= takes networks, addresses and exact names of hosts as text, found {entry!a}")
    try:
        return ip_network(entry)
    except ValueError as error:
        if "/" in entry or ":" in entry:
            raise BadCall(f"allow= has {entry!a}, which is no network: {error}") from None
        return None


def _host(entry: str) -> str:
    labels = canonical_host(entry).split(".")
    if not all(label and label.isascii() and label.replace("-", "").replace("_", "").isalnum() for label in labels):
        raise BadCall(f"allow= takes networks, addresses and exact names of hosts, found {entry!a}")
    return canonical_host(entry)
