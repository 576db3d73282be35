"""Which encoder is fastest for which value: the numbers of docs/decisions/0003-encoding-of-values.md.

    python -m bench.encoders

One run on one machine; read the ratios. Every candidate is asked for the bytes of `perdure.codec.encode`, and
a candidate that gives others is marked: it would need a check or a second pass to be usable.
"""

from __future__ import annotations

import functools
import json
import timeit
from collections.abc import Callable
from typing import Any

import cbor2
import msgspec

from perdure.codec import decode, decode_strict, encode, from_plain, to_plain

SELF_DESCRIBED = b"\xd9\xd9\xf7"

ENTRY = {
    "kind": "step",
    "at": 1700000000123456,
    "location": "loop/~3/charge",
    "attempt": 1,
    "ok": True,
    "value": {"auth": "a-123456", "cents": 4200, "currency": "EUR"},
    "tags": ["a", "b", "c"],
    "intent": b"0123456789abcdef0123456789abcdef",
    "error": None,
    "note": "x" * 40,
}

VALUES: dict[str, Any] = {
    "None": None,
    "int 5": 5,
    "int 70000": 70000,
    "short text": "o-17",
    "dict of 5": {"order_id": "o-17", "cents": 4200, "ok": True, "note": None, "name": "Ada Lovelace"},
    "entry of 220 bytes": ENTRY,
    "1 MB like JSON": [
        {
            "id": n,
            "name": f"customer {n}",
            "balance": n * 1.37,
            "tags": ["new", "eu"],
            "address": {"zip": n % 9999},
        }
        for n in range(12_000)
    ],
}


def own(value: Any) -> bytes:
    return encode(value)


def cbor2_canonical(value: Any) -> bytes:
    return SELF_DESCRIBED + cbor2.dumps(value, canonical=True)


def cbor2_plain(value: Any) -> bytes:
    return SELF_DESCRIBED + cbor2.dumps(value)


def cbor2_sorted(value: Any) -> bytes:
    """Keys put in order by us, then cbor2 as it is."""
    return SELF_DESCRIBED + cbor2.dumps(_in_order(value))


def _in_order(value: Any) -> Any:
    if type(value) is dict:
        return {key: _in_order(value[key]) for key in sorted(value, key=lambda key: (len(key), key))}
    if type(value) is list:
        return [_in_order(item) for item in value]
    return value


ENCODERS: list[Callable[[Any], bytes]] = [
    own,
    cbor2_canonical,
    cbor2_plain,
    cbor2_sorted,
    msgspec.msgpack.encode,
]


def cbor2_loads(data: bytes) -> Any:
    return cbor2.loads(data[3:])


DECODERS: list[Callable[[bytes], Any]] = [decode, cbor2_loads, decode_strict]


def main() -> None:
    print("encode, µs (* other bytes)")
    _table(VALUES, ENCODERS, lambda fn, value: "" if fn(value) == encode(value) else "*")
    print("\ndecode, µs")
    _table({name: encode(value) for name, value in VALUES.items()}, DECODERS, lambda _fn, _value: "")
    print("\nconvert, µs")
    for name, value, annotation in [
        ("int", 5, int),
        ("str", "o-17", str),
        ("dict, Any", VALUES["dict of 5"], Any),
    ]:
        there, back = _microseconds(
            functools.partial(to_plain, value, annotation), functools.partial(from_plain, value, annotation)
        )
        print(f"{name:20}{there:10.2f} to{back:10.2f} from")
    large = VALUES["1 MB like JSON"]
    print(f"\nthe large value: {len(encode(large)):,} bytes, as JSON {len(json.dumps(large)):,}")


def _table(values: dict[str, Any], functions: list[Callable[[Any], Any]], mark: Callable[[Any, Any], str]) -> None:
    print(f"{'':20}" + "".join(f"{function.__name__:>18}" for function in functions))
    for name, value in values.items():
        times = _microseconds(*(functools.partial(function, value) for function in functions))
        cells = (f"{time:.2f}{mark(fn, value)}" for time, fn in zip(times, functions, strict=True))
        print(f"{name:20}" + "".join(f"{cell:>18}" for cell in cells))


def _microseconds(*calls: Callable[[], Any]) -> list[float]:
    """The best of many short runs of each call, in turns, so that a busy machine hits all of them alike."""
    timers = [timeit.Timer(call) for call in calls]
    number = max(1, int(0.005 / max(min(timer.timeit(1) for timer in timers), 1e-7)))
    rounds = 40 if number > 1 else 5
    best = [float("inf")] * len(timers)
    for _ in range(rounds):
        for index, timer in enumerate(timers):
            best[index] = min(best[index], timer.timeit(number) / number * 1e6)
    return best


if __name__ == "__main__":
    main()
