"""The types of cells, as data: what an event, a state, a parameter or a receipt may be.

A schema is one of the structs below. In a manifest it is written as a word or as a dict with one word in it:

    "text"    {"record": {"order_id": "text", "cents": "nat"}}    {"list": "uuid"}    {"ref": "com.acme/Order@1"}

`from_data` reads that form and refuses everything else with its path; `to_data` writes it; there is no second
spelling. Names of definitions (`com.acme/Order@1`) are read here too, by `parse_name` alone. A schema holds other
named ones by reference, and no name may lead back to itself: `check` follows the references and holds the rules that
cannot be seen without them. What values look like is in `canonical.py`, and how Python classes give schemas is in
`record.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

import msgspec

from perdure.codec.converters.frame import described, did_you_mean
from perdure.codec.values import digest, encode, join
from perdure.errors import BadDefinition

DEPTH_MAX: Final = 64  # types inside types, references followed: values stay within what canonical bytes may nest

# ---- the types ---------------------------------------------------------------------------------------------------


class Bool(msgspec.Struct, frozen=True):
    """true or false"""


class Int(msgspec.Struct, frozen=True):
    """a whole number of 64 bits with a sign"""


class Nat(msgspec.Struct, frozen=True):
    """a whole number of 64 bits without a sign"""


class Dec128(msgspec.Struct, frozen=True):
    """a decimal number within IEEE 754 decimal128: 34 digits"""


class Bytes(msgspec.Struct, frozen=True):
    """a byte string"""


class Text(msgspec.Struct, frozen=True):
    """Unicode text"""


class Time(msgspec.Struct, frozen=True):
    """a point in time: nanoseconds since 1970 in UTC, 64 bits with a sign"""


class Duration(msgspec.Struct, frozen=True):
    """a length of time: nanoseconds, 64 bits with a sign"""


class Hash(msgspec.Struct, frozen=True):
    """the name of content: sha256 and 64 hex digits"""


class Uuid(msgspec.Struct, frozen=True):
    """a UUID"""


class Unit(msgspec.Struct, frozen=True):
    """the type of one value, null"""


class Record(msgspec.Struct, frozen=True):
    """named fields, all of them there; their order is no part of the type"""

    fields: Mapping[str, Schema]

    def __hash__(self) -> int:
        return hash(("record", frozenset(self.fields.items())))


class Variant(msgspec.Struct, frozen=True):
    """one of several named arms"""

    arms: Mapping[str, Schema]

    def __hash__(self) -> int:
        return hash(("variant", frozenset(self.arms.items())))


class List(msgspec.Struct, frozen=True):
    """items in an order"""

    item: Schema


class Set(msgspec.Struct, frozen=True):
    """items without an order, each once"""

    item: Schema


class Map(msgspec.Struct, frozen=True):
    """values by key; a key is an int, nat, text, uuid or hash"""

    key: Schema
    value: Schema


class Option(msgspec.Struct, frozen=True):
    """a value or null"""

    item: Schema


class Ref(msgspec.Struct, frozen=True):
    """the schema that has this name"""

    name: str


Schema: TypeAlias = (
    Bool
    | Int
    | Nat
    | Dec128
    | Bytes
    | Text
    | Time
    | Duration
    | Hash
    | Uuid
    | Unit
    | Record
    | Variant
    | List
    | Set
    | Map
    | Option
    | Ref
)
Refs: TypeAlias = Mapping[str, Schema]

PRIMITIVES: Final[dict[str, Schema]] = {
    "bool": Bool(),
    "int": Int(),
    "nat": Nat(),
    "dec128": Dec128(),
    "bytes": Bytes(),
    "text": Text(),
    "time": Time(),
    "duration": Duration(),
    "hash": Hash(),
    "uuid": Uuid(),
    "unit": Unit(),
}
COMPOSITES: Final = ("record", "variant", "list", "set", "map", "option", "ref")
KEYS: Final = (Int, Nat, Text, Uuid, Hash)

_WORDS: Final[dict[type, str]] = {type(schema): word for word, schema in PRIMITIVES.items()}


def label(schema: Schema) -> str:
    """How messages name a type."""
    match schema:
        case Record(fields):
            return f"a record of {', '.join(fields)}" if fields else "a record without fields"
        case Variant(arms):
            return f"a variant of {', '.join(arms)}"
        case List(item):
            return f"a list of {label(item)}"
        case Set(item):
            return f"a set of {label(item)}"
        case Map(key, value):
            return f"a map of {label(key)} to {label(value)}"
        case Option(item):
            return f"{label(item)} or null"
        case Ref(name):
            return name
        case _:
            return _WORDS[type(schema)]


# ---- names -------------------------------------------------------------------------------------------------------


class Name(msgspec.Struct, frozen=True, order=True):
    """The name of a definition: `namespace/Name@version`."""

    namespace: str
    name: str
    version: int

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}@{self.version}"

    @property
    def workflow(self) -> str:
        """Without the version: what the instances of a cell are named by."""
        return f"{self.namespace}/{self.name}"

    @property
    def reserved(self) -> bool:
        """`sys/*` belongs to perdure."""
        return self.namespace == "sys"


def parse_name(text: Any, path: str = "$") -> Name:
    """Reads a name. Raises `BadDefinition` with what is wrong with it."""
    if type(text) is not str:
        raise BadDefinition(path, NAME_FORM, described(text))
    found = _NAME.fullmatch(text)
    if found is None:
        raise BadDefinition(path, NAME_FORM, repr(text[:100]), _name_hint(text))
    return Name(found["namespace"], found["name"], int(found["version"]))


def _name_hint(text: str) -> str:
    rest, at, version = text.partition("@")
    if not at:
        return f"the version is missing, for example {text[:60]}@1"
    if not re.fullmatch(r"[1-9][0-9]{0,8}", version):
        return "a version is a positive whole number, without leading zeros"
    if "/" not in rest:
        return f"the namespace is missing, for example com.example/{text[:60]}"
    return "letters, digits, _ and - are allowed, and dots in the namespace"


NAME_FORM: Final = "a name of the form namespace/Name@version"
_PART: Final = "[A-Za-z][A-Za-z0-9_-]{0,63}"
_NAME: Final = re.compile(
    rf"(?P<namespace>{_PART}(?:\.{_PART}){{0,15}})/(?P<name>{_PART})@(?P<version>[1-9][0-9]{{0,8}})"
)

# ---- the form in a manifest ----------------------------------------------------------------------------------------


def to_data(schema: Schema) -> Any:
    """The one form of a schema in a manifest: JSON data."""
    return _data(schema, None)


def from_data(data: Any, path: str = "$") -> Schema:
    """Reads the form of a manifest. Raises `BadDefinition` with the path of what is wrong."""
    return _read(data, path, 0)


def schema_hash(schema: Schema, refs: Refs | None = None) -> str:
    """The name of a schema by its content, and by the content of all that it refers to.

    It is the hash of the manifest form in which each reference also carries the hash of what it names.
    """
    refs = {} if refs is None else refs
    check(schema, refs)
    hashes: dict[str, str] = {}

    def named(name: str) -> str:
        if name not in hashes:
            hashes[name] = digest(encode(_data(refs[name], named)))
        return hashes[name]

    return digest(encode(_data(schema, named)))


def _data(schema: Schema, hash_of: Any) -> Any:
    match schema:
        case Record(fields):
            return {"record": {name: _data(field, hash_of) for name, field in fields.items()}}
        case Variant(arms):
            return {"variant": {name: _data(arm, hash_of) for name, arm in arms.items()}}
        case List(item):
            return {"list": _data(item, hash_of)}
        case Set(item):
            return {"set": _data(item, hash_of)}
        case Map(key, value):
            return {"map": {"key": _data(key, hash_of), "value": _data(value, hash_of)}}
        case Option(item):
            return {"option": _data(item, hash_of)}
        case Ref(name):
            return {"ref": name} if hash_of is None else {"ref": name, "hash": hash_of(name)}
        case _:
            return _WORDS[type(schema)]


def _read(data: Any, path: str, depth: int) -> Schema:
    if depth == DEPTH_MAX:
        raise BadDefinition(path, f"at most {DEPTH_MAX} types inside each other", "one more", "flatten the schema")
    if type(data) is str:
        return _read_word(data, path)
    if type(data) is not dict:
        raise BadDefinition(path, _FORM, described(data))
    if len(data) != 1:
        words = ", ".join(repr(word)[:40] for word in list(data)[:5])
        found = f"one with {words}" if data else "an empty one"
        raise BadDefinition(path, "a dict with one type in it", found, f"its one key is one of {', '.join(COMPOSITES)}")
    ((word, inner),) = data.items()
    below = join(path, word)
    match word:
        case "record":
            return Record(_read_members(inner, below, depth, field_name))
        case "variant":
            arms = _read_members(inner, below, depth, arm_name)
            if not arms:
                raise BadDefinition(below, "at least one arm", "none", "a variant without arms has no values")
            return Variant(arms)
        case "list":
            return List(_read(inner, below, depth + 1))
        case "set":
            return Set(_read(inner, below, depth + 1))
        case "map":
            properties(inner, below, ("key", "value"))
            key = _read(inner["key"], f"{below}.key", depth + 1)
            return Map(key, _read(inner["value"], f"{below}.value", depth + 1))
        case "option":
            return Option(_read(inner, below, depth + 1))
        case "ref":
            return Ref(str(parse_name(inner, below)))
        case _ if word in PRIMITIVES:
            raise BadDefinition(path, repr(word), f"a dict with {word!r} in it", "write the word alone")
        case _:
            raise BadDefinition(path, "a type", f"the word {word!r}"[:100], _word_hint(word))


def _read_word(word: str, path: str) -> Schema:
    schema = PRIMITIVES.get(word)
    if schema is not None:
        return schema
    if word in COMPOSITES:
        raise BadDefinition(path, _FORM, f"{word!r} alone", f"say of what, for example {_EXAMPLES[word]}")
    if _NAME.fullmatch(word):
        raise BadDefinition(path, "a type", f"the name {word!r}", f'write {{"ref": "{word}"}}')
    raise BadDefinition(path, "a type", f"the word {word!r}"[:100], _word_hint(word))


def _word_hint(word: Any) -> str:
    if isinstance(word, str) and word.lower() in _ELSEWHERE:
        return _ELSEWHERE[word.lower()]
    known = [*PRIMITIVES, *COMPOSITES]
    return did_you_mean(word, known)[2:] or f"the types are {', '.join(known)}"


def _read_members(data: Any, path: str, depth: int, name: Any) -> dict[str, Schema]:
    if type(data) is not dict:
        raise BadDefinition(path, "a dict of names and types", described(data))
    return {name(key, path): _read(inner, join(path, key), depth + 1) for key, inner in data.items()}


def properties(data: Any, path: str, required: tuple[str, ...], optional: tuple[str, ...] = ()) -> None:
    """Holds that `data` is a dict with these properties and no other one: the rule for everything in a manifest."""
    known = (*required, *optional)
    if type(data) is not dict:
        raise BadDefinition(path, f"a dict with {', '.join(known)}", described(data))
    for key in data:
        if key not in known:
            hint = did_you_mean(key, known)[2:] or f"known are {', '.join(known)}"
            raise BadDefinition(path, "known properties only", f"the property {key!r}"[:100], hint)
    for key in required:
        if key not in data:
            raise BadDefinition(join(path, key), "this property", "nothing")


def field_name(name: Any, path: str) -> str:
    """Holds that this can be the name of a field: an attribute in Python, a step of a path anywhere."""
    if type(name) is str and _FIELD.fullmatch(name):
        return name
    hint = "ASCII letters, digits and _, at most 64, not a digit in front"
    raise BadDefinition(path, "the name of a field", repr(name)[:100], hint)


def arm_name(name: Any, path: str) -> str:
    """Holds that this can be the name of an arm: text that fits on a line."""
    if type(name) is str and 0 < len(name) <= 64 and name.isprintable() and not name.startswith("$"):
        return name
    hint = "printable text of at most 64 characters, without $ in front"
    raise BadDefinition(path, "the name of an arm", repr(name)[:100], hint)


_FIELD: Final = re.compile("[A-Za-z_][A-Za-z0-9_]{0,63}")
_FORM: Final = "a type: a word, or a dict with one word in it"
_EXAMPLES: Final = {
    "record": '{"record": {"name": "text"}}',
    "variant": '{"variant": {"idle": "unit", "done": "text"}}',
    "list": '{"list": "text"}',
    "set": '{"set": "text"}',
    "map": '{"map": {"key": "text", "value": "nat"}}',
    "option": '{"option": "text"}',
    "ref": '{"ref": "com.example/Order@1"}',
}
# What these types are called in other systems.
_ELSEWHERE: Final = {
    **dict.fromkeys(("str", "string", "char", "varchar", "utf8"), "text is called 'text'"),
    **dict.fromkeys(("integer", "i64", "int64", "long"), "a 64-bit whole number is 'int', or 'nat' if never below 0"),
    **dict.fromkeys(("u64", "uint", "uint64", "unsigned"), "a 64-bit whole number that is never below 0 is 'nat'"),
    **dict.fromkeys(
        ("float", "double", "number", "decimal", "f64", "numeric"),
        "there are no floats: use 'dec128', or 'int' of a small unit such as cents",
    ),
    **dict.fromkeys(("datetime", "timestamp", "date", "instant"), "a point in time is 'time'"),
    **dict.fromkeys(("timedelta", "interval"), "a length of time is 'duration'"),
    **dict.fromkeys(("boolean",), "it is called 'bool'"),
    **dict.fromkeys(("blob", "binary", "bytestring"), "it is called 'bytes'"),
    **dict.fromkeys(("null", "none", "void", "nothing"), "it is called 'unit'"),
    **dict.fromkeys(("array", "sequence", "tuple"), "it is called 'list'"),
    **dict.fromkeys(("object", "struct"), "it is called 'record', or 'map' if its keys are data"),
    **dict.fromkeys(("dict", "mapping"), "it is called 'map', or 'record' if its keys are names"),
    **dict.fromkeys(("enum", "union", "oneof"), "it is called 'variant'"),
    **dict.fromkeys(("optional", "nullable", "maybe"), "it is called 'option'"),
}

# ---- references ----------------------------------------------------------------------------------------------------


def references(schema: Schema, path: str = "$") -> Iterator[tuple[str, str]]:
    """The path and the name of each reference in this schema, in its manifest form."""
    match schema:
        case Ref(name):
            yield f"{path}.ref", name
        case Record(members) | Variant(members):
            word = "record" if isinstance(schema, Record) else "variant"
            for name, member in members.items():
                yield from references(member, join(f"{path}.{word}", name))
        case Map(key, value):
            yield from references(key, f"{path}.map.key")
            yield from references(value, f"{path}.map.value")
        case List(item) | Set(item) | Option(item):
            yield from references(item, f"{path}.{type(schema).__name__.lower()}")
        case _:
            return


def resolve(schema: Schema, refs: Refs) -> Schema:
    """The schema itself, behind as many names as there are in front of it. `check` holds that there is one."""
    while isinstance(schema, Ref):
        schema = refs[schema.name]
    return schema


def check(schema: Schema, refs: Refs, path: str = "$") -> None:
    """Holds what a schema must be with its references: found, finite, and each value in one form only."""
    _Walk(refs, [], {}).height(schema, path, 1)


class _Walk(msgspec.Struct):
    """Down a schema and into what it refers to. Each name is followed once: many may share it."""

    refs: Refs
    trail: list[str]  # the names that we are inside of
    heights: dict[str, int]  # of the names that were followed

    def height(self, schema: Schema, path: str, depth: int) -> int:
        """How many types are inside each other."""
        if depth > DEPTH_MAX:
            raise BadDefinition(path, f"at most {DEPTH_MAX} types inside each other", "more", "flatten the schema")
        match schema:
            case Ref(name):
                return self.height_of_name(name, path, depth)
            case Record(members) | Variant(members):
                path += ".record" if isinstance(schema, Record) else ".variant"
                inside = [self.height(member, join(path, name), depth + 1) for name, member in members.items()]
                return 1 + max(inside, default=0)
            case List(item):
                return 1 + self.height(item, f"{path}.list", depth + 1)
            case Set(item):
                return 1 + self.height(item, f"{path}.set", depth + 1)
            case Map(key, value):
                height = 1 + max(
                    self.height(key, f"{path}.map.key", depth + 1), self.height(value, f"{path}.map.value", depth + 1)
                )
                if not isinstance(resolve(key, self.refs), KEYS):
                    expected = "int, nat, text, uuid or hash as the key of a map"
                    hint = "use a list of records with two fields"
                    raise BadDefinition(f"{path}.map.key", expected, label(key), hint)
                return height
            case Option(item):
                height = 1 + self.height(item, f"{path}.option", depth + 1)
                if isinstance(inner := resolve(item, self.refs), Option | Unit):
                    hint = "its null would have two meanings: use a variant"
                    raise BadDefinition(f"{path}.option", "a type without null", label(inner), hint)
                return height
            case _:
                return 1

    def height_of_name(self, name: str, path: str, depth: int) -> int:
        if name in self.trail:
            circle = " -> ".join((*self.trail[self.trail.index(name) :], name))
            raise BadDefinition(path, "a schema that ends", circle, "no recursion: refer by a key, not by value")
        if name not in self.refs:
            hint = did_you_mean(name, self.refs)[2:] or "define it, or correct the name"
            raise BadDefinition(path, "the name of a schema", f"{name!r}, which is not defined", hint)
        if len(self.trail) == DEPTH_MAX:
            raise BadDefinition(path, f"at most {DEPTH_MAX} names that lead to each other", "more", "flatten it")
        if name not in self.heights:
            self.trail.append(name)
            self.heights[name] = self.height(self.refs[name], name, depth)
            self.trail.pop()
        if depth + self.heights[name] > DEPTH_MAX + 1:
            raise BadDefinition(path, f"at most {DEPTH_MAX} types inside each other", "more", "flatten the schema")
        return self.heights[name]


# ---- JSON Schema ---------------------------------------------------------------------------------------------------


def json_schema(schema: Schema, refs: Refs | None = None) -> dict[str, Any]:
    """JSON Schema (2020-12) of the form that the JSON lens reads and writes (`canonical.py`)."""
    refs = {} if refs is None else refs
    check(schema, refs)
    definitions: dict[str, Any] = {}
    ahead = [name for _, name in references(schema)]
    while ahead:
        name = ahead.pop()
        if name not in definitions:
            definitions[name] = _json(refs[name], refs)
            ahead += [inner for _, inner in references(refs[name])]
    whole = {"$schema": "https://json-schema.org/draft/2020-12/schema", **_json(schema, refs)}
    if definitions:
        whole["$defs"] = dict(sorted(definitions.items()))
    return whole


def _json(schema: Schema, refs: Refs) -> dict[str, Any]:
    match schema:
        case Record(fields):
            needed = [name for name, field in fields.items() if not isinstance(resolve(field, refs), Option)]
            return {
                "type": "object",
                "properties": {name: _json(field, refs) for name, field in fields.items()},
                "required": needed,
                "additionalProperties": False,
            }
        case Variant(arms):
            return {"oneOf": [_json_arm(name, arm, refs) for name, arm in arms.items()]}
        case List(item) | Set(item):
            return {"type": "array", "items": _json(item, refs)}
        case Map(key, value):
            key = resolve(key, refs)
            names = {"type": "string", "pattern": _JSON_KEYS[type(key)]} if type(key) in _JSON_KEYS else {}
            return {
                "type": "object",
                "propertyNames": names or {"type": "string"},
                "additionalProperties": _json(value, refs),
            }
        case Option(item):
            return {"anyOf": [_json(item, refs), {"type": "null"}]}
        case Ref(name):
            return {"$ref": "#/$defs/" + name.replace("/", "~1")}
        case _:
            return dict(_JSON[type(schema)])


def _json_arm(name: str, arm: Schema, refs: Refs) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"$tag": {"const": name}, "$value": _json(arm, refs)},
        "required": ["$tag", "$value"],
        "additionalProperties": False,
    }


_I64: Final = {"minimum": -(2**63), "maximum": 2**63 - 1}
_HEX: Final = "[0-9a-fA-F]"
_UUID: Final = f"{_HEX}{{8}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{12}}"
_JSON: Final[dict[type, dict[str, Any]]] = {
    Bool: {"type": "boolean"},
    # Limits of numbers do not concern text, nor does a pattern concern numbers: either spelling is covered.
    Int: {"type": ["integer", "string"], **_I64, "pattern": "^(0|-?[1-9][0-9]{0,18})$"},
    Nat: {"type": ["integer", "string"], "minimum": 0, "maximum": 2**64 - 1, "pattern": "^(0|[1-9][0-9]{0,19})$"},
    Dec128: {"type": ["string", "integer"], "pattern": "^-?[0-9]+(\\.[0-9]+)?([eE][+-]?[0-9]{1,5})?$"},
    Bytes: {"type": "string", "contentEncoding": "base64"},
    Text: {"type": "string"},
    Time: {"type": ["string", "integer"], "format": "date-time", **_I64},
    Duration: {"type": ["integer", "string"], **_I64, "pattern": "^(0|-?[1-9][0-9]{0,18})$"},
    Hash: {"type": "string", "pattern": f"^sha256:{_HEX}{{64}}$"},
    Uuid: {"type": "string", "pattern": f"^((urn:uuid:)?{_UUID}|\\{{{_UUID}\\}}|{_HEX}{{32}})$"},
    Unit: {"type": "null"},
}
_JSON_KEYS: Final[dict[type, str]] = {kind: _JSON[kind]["pattern"] for kind in KEYS if "pattern" in _JSON[kind]}
