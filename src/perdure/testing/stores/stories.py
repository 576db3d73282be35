"""Random stories of scripted machines, the same for every store."""

from hypothesis import strategies as st

from perdure.kernel.events import Address, CancelAsked, Message, Retried, Tagged
from perdure.kernel.rows import inbox_row

from .harness import BIG, ask
from .scripted import SmallShard

KEYS = st.sampled_from(["a", "b", "c"])
ORDERS = st.one_of(
    st.sampled_from(["call", "wait", "withdraw", "end", "fail", "raise", "note", "publish value", "timer 5"]),
    st.sampled_from(["tag a=1", "tag a=2", "tag b=1", "untag a"]),
    st.builds("{} {}".format, st.sampled_from(["child", "detach", "send"]), st.sampled_from("abcd")),
)
LINES = st.one_of(
    st.tuples(st.just("start"), KEYS, st.sampled_from(["", "failed", "always"])),
    st.tuples(st.just("tell"), KEYS, ORDERS),
    st.tuples(st.just("tell"), KEYS, ORDERS),
    st.tuples(st.just("post"), KEYS, st.sampled_from(["note", "end", "call"])),
    st.tuples(st.just("retry"), KEYS, st.just("")),
    st.tuples(st.just("mark"), KEYS, st.sampled_from(["", "1"])),
    st.tuples(st.just("cancel"), KEYS, st.just("")),
    st.tuples(st.just("fire"), st.just(""), st.just("")),
    st.tuples(st.just("big"), KEYS, st.just("")),
    st.tuples(st.just("reopen"), st.just(""), st.just("")),
)
STORIES = st.lists(LINES, max_size=25)


def perform(player: SmallShard, story: list[tuple[str, str, str]]) -> None:
    for n, (verb, key, argument) in enumerate(story):
        to = Address("puppet", key)
        match verb:
            case "start":
                player.start(key, reuse=argument)
            case "tell":
                player.tell(key, argument, b"%d" % n)
            case "big":
                player.tell(key, "note", b"x" * (BIG + n))
            case "post":
                row = inbox_row(b"post-%d" % n, to, Message(argument, b""), player.now)
                ask(player.store.post(row))
                player.read_inbox()
            case "retry":
                player.offer(to, Retried())
            case "mark":
                player.offer(to, Tagged({"a": argument or None}))
            case "cancel":
                player.offer(to, CancelAsked("as it was told"))
            case "fire":
                player.fire(player.now + 10)
            case "reopen":
                player.reopen()
            case _:
                raise AssertionError(f"no such verb: {verb}")
