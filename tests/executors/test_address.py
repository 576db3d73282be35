"""The address guard: what is not public is refused, in every spelling, unless the operator allows it."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as some

from perdure.errors import AddressRefused, BadCall
from perdure.executors.address import RULES, Guard, resolve, rule_of

PUBLIC = [
    "8.8.8.8",
    "2a00:1450::1",
    "3ffe::1",
    "1.1.1.1",
    "172.15.255.255",
    "172.32.0.1",
    "100.63.255.255",
    "100.128.0.1",
    "2606:4700::1111",
]


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_are_allowed(address: str):
    Guard().check("api.example", address)


@pytest.mark.parametrize(
    ("address", "rule"),
    [
        ("127.0.0.1", "loopback"),
        ("127.255.255.254", "loopback"),
        ("::1", "loopback"),
        ("0.0.0.0", "unspecified"),
        ("::", "unspecified"),
        ("169.254.1.1", "link-local"),
        ("fe80::1", "link-local"),
        ("fe80::1%eth0", "link-local"),
        ("10.1.2.3", "private"),
        ("172.16.0.1", "private"),
        ("192.168.1.1", "private"),
        ("fd12:3456::1", "private"),
        ("fec0::1", "private"),
        ("100.64.0.1", "shared by carriers"),
        ("224.0.0.1", "multicast"),
        ("ff02::1", "multicast"),
        ("255.255.255.255", "reserved"),
        ("192.0.2.1", "reserved"),
        ("2001:db8::1", "reserved"),
        ("169.254.169.254", "metadata"),
        ("169.254.170.2", "metadata"),
        ("100.100.100.200", "metadata"),
        ("168.63.129.16", "metadata"),
        ("fd00:ec2::254", "metadata"),
        ("fd20:ce::254", "metadata"),
        ("4000::1", "reserved"),
        ("1::1", "reserved"),
    ],
)
def test_each_kind_of_address_that_is_not_public_is_refused_by_its_rule(address: str, rule: str):
    with pytest.raises(AddressRefused) as refused:
        Guard().check("api.example", address)

    assert refused.value.rule == rule
    assert refused.value.host == "api.example"
    assert refused.value.address == address.partition("%")[0]


@pytest.mark.parametrize(
    ("address", "rule"),
    [
        ("::ffff:127.0.0.1", "loopback"),
        ("::ffff:7f00:1", "loopback"),
        ("::ffff:10.0.0.1", "private"),
        ("::ffff:169.254.169.254", "metadata"),
        ("64:ff9b::127.0.0.1", "loopback"),
        ("64:ff9b::a9fe:a9fe", "metadata"),
        ("64:ff9b:1::a00:1", "private"),
        ("2002:7f00:1::", "reserved"),
        ("2002:a00:1::1", "reserved"),
        ("2001:0:4136:e378:8000:63bf:3fff:fdd2", "reserved"),
        ("::127.0.0.1", "reserved"),
    ],
)
def test_an_ipv6_form_of_a_refused_ipv4_address_is_refused(address: str, rule: str):
    with pytest.raises(AddressRefused) as refused:
        Guard().check("api.example", address)

    assert refused.value.rule == rule


@pytest.mark.parametrize("address", ["::ffff:8.8.8.8", "64:ff9b::8.8.8.8"])
def test_an_ipv6_form_of_a_public_ipv4_address_is_public(address: str):
    Guard().check("api.example", address)


@settings(deadline=None)  # the machine may be busy
@given(some.ip_addresses())
@example(ip_address("192.88.99.1"))
@example(ip_address("2002::1"))
def test_nothing_that_python_knows_as_not_global_is_public_here(address: IPv4Address | IPv6Address):
    if not address.is_global and rule_of(address) is None:
        assert isinstance(address, IPv6Address)
        assert address.ipv4_mapped is not None  # Python calls none of these global
        assert address.ipv4_mapped.is_global


@pytest.mark.parametrize(("rule", "network"), RULES)
def test_every_rule_of_the_table_refuses_its_first_and_its_last_address(rule: str, network: str):
    edges = ip_network(network)

    assert rule_of(edges[0]) is not None
    assert rule_of(edges[-1]) is not None


@pytest.mark.parametrize(
    ("allowed", "host", "address"),
    [
        ("127.0.0.1", "localhost", "127.0.0.1"),
        ("127.0.0.0/8", "localhost", "127.9.9.9"),
        ("::1", "localhost", "::1"),
        ("10.0.0.0/8", "db.corp.example", "::ffff:10.0.0.1"),
        ("localhost", "localhost", "127.0.0.1"),
        ("localhost", "LOCALHOST.", "::1"),
        ("Db.Corp.Example", "db.corp.example", "10.0.0.7"),
        ("169.254.169.254", "169.254.169.254", "169.254.169.254"),
    ],
)
def test_the_operator_allows_networks_addresses_and_hosts(allowed: str, host: str, address: str):
    Guard([allowed]).check(host, address)


@pytest.mark.parametrize(
    ("allowed", "host", "address"),
    [
        ("127.0.0.1", "localhost", "127.0.0.2"),
        ("10.0.0.0/8", "x.example", "192.168.0.1"),
        ("corp.example", "db.corp.example", "10.0.0.7"),
        ("localhost", "localhost.example", "127.0.0.1"),
    ],
)
def test_what_is_allowed_allows_nothing_else(allowed: str, host: str, address: str):
    with pytest.raises(AddressRefused):
        Guard([allowed]).check(host, address)


def test_a_refusal_says_what_where_why_and_how_to_allow_it():
    with pytest.raises(AddressRefused) as refused:
        Guard().check("localhost", "127.0.0.1")

    assert str(refused.value) == (
        "localhost leads to 127.0.0.1, which is refused (loopback); "
        'if it is meant, the operator allows it: "localhost" or "127.0.0.1"'
    )


@pytest.mark.parametrize("entry", ["10.0.0.1/8", "10.0.0.0/40", "http://localhost", "*.example", "a b", "", "ex..com"])
def test_an_entry_that_is_neither_network_nor_host_is_refused_at_once(entry: str):
    with pytest.raises(BadCall, match=r"allow="):
        Guard([entry])


def test_a_text_instead_of_a_list_is_refused():
    with pytest.raises(BadCall, match="takes a list"):
        Guard("127.0.0.1")


@pytest.mark.parametrize("spelling", ["127.1", "0x7f000001", "2130706433", "0177.0.0.1", "localhost"])
async def test_old_spellings_of_an_address_are_resolved_before_they_are_judged(spelling: str):
    addresses = await resolve(spelling, 80)

    assert addresses
    for address in addresses:
        with pytest.raises(AddressRefused, match="loopback"):
            Guard().check(spelling, address)
