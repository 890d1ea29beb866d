"""What the workload's clients do: transactions drawn from a seed, as SQL that fits whatever the tables hold."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from decimal import Decimal
from random import Random
from typing import Any, LiteralString, NamedTuple

DDL_KINDS = ("add", "add_default", "rename", "widen", "drop")
ACCOUNTS = 40

# Few enough that clients meet on the same rows, and that most updates find one.
_KEYS = 400
_LARGE_BASE = 1_000_000


class Step(NamedTuple):
    """One statement. `kind` names the operation it belongs to; an operation is counted at its first step."""

    kind: str
    sql: LiteralString
    parameters: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """One transaction: begin, settings, steps, ending."""

    isolation: LiteralString
    asynchronous: bool
    steps: tuple[Step, ...]
    commits: bool

    @property
    def kinds(self) -> tuple[str, ...]:
        return tuple(step.kind for step in self.steps if step.kind)


@dataclass(frozen=True, slots=True)
class Mix:
    """What the plans are drawn with besides the seed. No large transactions if `large_rows` is 0."""

    client: int
    large_rows: int
    ddl: Collection[str]


def plans(seed: int, mix: Mix) -> Iterator[Plan]:
    """The endless list of a client's transactions: the same for the same seed, client and mix."""
    rng = Random(f"{seed}/{mix.client}")
    while True:
        yield _plan(rng, mix)


def _plan(rng: Random, mix: Mix) -> Plan:
    shape = _SHAPES[_pick(rng, {name: weight for name, (weight, _) in _SHAPES.items()})][1]
    steps = tuple(shape(rng, mix))
    levels = {"READ COMMITTED": 85, "REPEATABLE READ": 12, "SERIALIZABLE": 3}
    isolation: LiteralString = rng.choices(list(levels), list(levels.values()))[0]
    # These two read what may have been committed a moment ago: the end of the ledger, the columns of a table.
    if any(step.kind == "ledger" or step.kind.startswith("ddl") for step in steps):
        isolation = "READ COMMITTED"
    return Plan(isolation, rng.random() < 0.25, steps, commits=rng.random() >= 0.06)


# ------------------------------------------------------------------------------------------------------ shapes


def _several(rng: Random, mix: Mix) -> list[Step]:
    return [step for _ in range(rng.randint(2, 6)) for step in _operation(rng, mix)]


def _savepoints(rng: Random, mix: Mix, depth: int = 1) -> list[Step]:
    """Operations around and inside a savepoint that is released or rolled back, and may hold another one."""
    open_, release, back = _SAVEPOINTS[depth]
    inside = _operation(rng, mix)
    if depth < len(_SAVEPOINTS) and rng.random() < 0.5:
        inside += _savepoints(rng, mix, depth + 1)
    end = [Step("savepoint released", release)] if rng.random() < 0.5 else [Step("savepoint rolled back", back)]
    return [*_operation(rng, mix), Step("", open_), *inside, *end, *_operation(rng, mix)]


_SAVEPOINTS: dict[int, tuple[LiteralString, LiteralString, LiteralString]] = {
    1: ("SAVEPOINT s1", "RELEASE SAVEPOINT s1", "ROLLBACK TO SAVEPOINT s1"),
    2: ("SAVEPOINT s2", "RELEASE SAVEPOINT s2", "ROLLBACK TO SAVEPOINT s2"),
    3: ("SAVEPOINT s3", "RELEASE SAVEPOINT s3", "ROLLBACK TO SAVEPOINT s3"),
}


def _operation(rng: Random, mix: Mix) -> list[Step]:
    kind = _pick(rng, _weights(mix))
    return _OPERATIONS[kind][1](kind, rng, mix)


def _weights(mix: Mix) -> dict[str, float]:
    weights = {kind: weight for kind, (weight, _) in _OPERATIONS.items()}
    if not mix.large_rows:
        weights["large"] = 0
    if not mix.ddl:
        weights["ddl"] = 0
    return weights


def _pick(rng: Random, weights: dict[str, float]) -> str:
    return rng.choices(list(weights), list(weights.values()))[0]


# ------------------------------------------------------------------------------------------------------ values


def _text(rng: Random) -> str | None:
    odd = (None, "", "plain", 'quoted "text"', "back\\slash", "two\nlines", "äöü € 💧", "null", "{a,b}", "\t")
    return rng.choice(odd) if rng.random() < 0.5 else f"text {rng.randrange(1000)}"


def _body(rng: Random) -> str | None:
    """Sometimes so long, and so random, that Postgres stores it out of line."""
    return base64.b64encode(rng.randbytes(rng.randint(6200, 9000))).decode() if rng.random() < 0.2 else _text(rng)


def _price(rng: Random) -> Decimal | None:
    return None if rng.random() < 0.1 else Decimal(rng.randint(-9_999_999, 9_999_999)) / 100


def _item(rng: Random, key: int) -> tuple[Any, ...]:
    tags = rng.choice([None, [], [rng.randint(-9, 9), None], [rng.randrange(10**9) for _ in range(3)]])
    doc = rng.choice([None, "null", "[]", '{"b": 1.50, "a": ["ä", "\\"", true]}', '"text"'])
    active = rng.choice([None, True, False])
    token = uuid.UUID(int=rng.getrandbits(128)) if rng.random() < 0.8 else None
    return (key, _text(rng), rng.randrange(1000), _price(rng), active, token, tags, doc, _body(rng))


def _key(rng: Random) -> int:
    return rng.randint(1, _KEYS)


# -------------------------------------------------------------------------------------------------- operations

Make = Callable[[str, Random, Mix], list[Step]]

_ITEM = "(%s, %s, %s, %s, %s, clock_timestamp(), %s, %s::int[], %s::jsonb, %s)"
_INTO_ITEMS = "INSERT INTO items (id, label, amount, price, active, moment, token, tags, doc, body) VALUES "
_OR_NOTHING = " ON CONFLICT DO NOTHING"
_OR_UPDATE = " ON CONFLICT (id) DO UPDATE SET amount = EXCLUDED.amount, body = EXCLUDED.body, moment = EXCLUDED.moment"


def _one(sql: LiteralString, *values: Callable[[Random], Any]) -> Make:
    """An operation of one statement whose parameters are drawn one by one."""
    return lambda kind, rng, _mix: [Step(kind, sql, tuple(value(rng) for value in values))]


def _amount(rng: Random) -> int:
    return rng.randrange(1000)


def _few(rng: Random) -> int:
    return rng.randrange(12)


def _code(rng: Random) -> str:
    return f"c{rng.randrange(200)}"


def _item_insert(tail: LiteralString) -> Make:
    return lambda kind, rng, _mix: [Step(kind, _INTO_ITEMS + _ITEM + tail, _item(rng, _key(rng)))]


def _item_insert_many(kind: str, rng: Random, _mix: Mix) -> list[Step]:
    keys = rng.sample(range(1, _KEYS + 1), rng.choice([2, 5, 20]))
    tail: LiteralString = rng.choice([_OR_NOTHING, _OR_UPDATE])
    rows = ", ".join([_ITEM] * len(keys))
    return [Step(kind, _INTO_ITEMS + rows + tail, tuple(value for key in keys for value in _item(rng, key)))]


def _item_rekey(kind: str, rng: Random, _mix: Mix) -> list[Step]:
    free = "UPDATE items SET id = %s WHERE id = %s AND NOT EXISTS (SELECT FROM items AS i WHERE i.id = %s)"
    new = _key(rng)
    return [Step(kind, free, (new, _key(rng), new))]


def _pair_rekey(kind: str, rng: Random, _mix: Mix) -> list[Step]:
    free = (
        "UPDATE pairs SET a = %s, amount = amount + 1 WHERE a = %s AND b = %s"
        " AND NOT EXISTS (SELECT FROM pairs AS p WHERE p.a = %s AND p.b = %s)"
    )
    new, b = _few(rng), _code(rng)
    return [Step(kind, free, (new, _few(rng), b, new, b))]


def _recode(kind: str, rng: Random, _mix: Mix) -> list[Step]:
    free = "UPDATE coded SET code = %s WHERE id = %s AND NOT EXISTS (SELECT FROM coded AS c WHERE c.code = %s)"
    new = _code(rng)
    return [Step(kind, free, (new, _key(rng), new))]


def _ledger(kind: str, rng: Random, mix: Mix) -> list[Step]:
    # The lock waits for a commit of ours that a cut connection left behind, whose outcome we do not know.
    lock = "SELECT pg_advisory_xact_lock(7206, %s)"
    append = (
        "INSERT INTO ledger SELECT %s, coalesce(max(n), 0) + 1, clock_timestamp(), %s FROM ledger WHERE client = %s"
    )
    return [Step("", lock, (mix.client,)), Step(kind, append, (mix.client, _text(rng), mix.client))]


def _transfer(kind: str, rng: Random, _mix: Mix) -> list[Step]:
    change = Decimal(rng.randint(1, 10_000)) / 100
    give = Step(kind, "UPDATE accounts_a SET balance = balance - %s WHERE id = %s", (change, rng.randint(1, ACCOUNTS)))
    take = Step("", "UPDATE accounts_b SET balance = balance + %s WHERE id = %s", (change, rng.randint(1, ACCOUNTS)))
    return [give, take] if rng.random() < 0.5 else [take, give]


def _reading_move(kind: str, rng: Random, _mix: Mix) -> list[Step]:
    free = (
        "UPDATE readings SET region = %s WHERE id = %s AND region = %s"
        " AND NOT EXISTS (SELECT FROM readings AS r WHERE r.id = %s AND r.region = %s)"
    )
    key, new = _key(rng), _region(rng)
    return [Step(kind, free, (new, key, _region(rng), key, new))]


def _region(rng: Random) -> int:
    return rng.randrange(5)


def _message(kind: str, rng: Random, mix: Mix) -> list[Step]:
    emit = "SELECT pg_logical_emit_message(%s, 'workload', %s::text)"
    return [Step(kind, emit, (rng.random() < 0.5, f"client {mix.client}: {_text(rng)}"))]


def _mark(kind: str, _rng: Random, mix: Mix) -> list[Step]:
    mark = (
        "INSERT INTO marks SELECT nextval('workload_marks'), %s, clock_timestamp(), pg_current_wal_insert_lsn()::text"
    )
    return [Step(kind, mark, (mix.client,))]


_TRUNCATES: tuple[LiteralString, ...] = (
    "TRUNCATE items",
    "TRUNCATE pairs",
    "TRUNCATE loose",
    "TRUNCATE readings",
    "TRUNCATE pairs, loose",
    "TRUNCATE coded, readings",
    "TRUNCATE items, coded",
)


def _truncate(kind: str, rng: Random, _mix: Mix) -> list[Step]:
    return [Step(kind, rng.choice(_TRUNCATES))]


def _large(kind: str, rng: Random, mix: Mix) -> list[Step]:
    """Tens of thousands of rows: written anew, updated or deleted; each client has its own, so tables stay small."""
    first = _LARGE_BASE * (mix.client + 1)
    size = rng.randint(max(1, mix.large_rows // 2), mix.large_rows)
    delete = Step("", "DELETE FROM items WHERE id BETWEEN %s AND %s", (first, first + mix.large_rows))
    insert: LiteralString = (
        "INSERT INTO items (id, label, amount, price, active, moment, tags, body)"
        " SELECT g, 'large', g %% 1000, g / 100.0, g %% 2 = 0, clock_timestamp(), ARRAY[g, NULL], md5(g::text)"
        " FROM generate_series(%s, %s) AS g"
    )
    update: LiteralString = "UPDATE items SET amount = (amount + 1) %% 1000, label = %s WHERE id BETWEEN %s AND %s"
    choice = rng.random()
    if choice < 0.6:
        return [delete, Step(f"{kind} insert", insert, (first, first + size - 1))]
    if choice < 0.85:
        return [Step(f"{kind} update", update, (_text(rng), first, first + size - 1))]
    return [delete._replace(kind=f"{kind} delete")]


def _ddl(kind: str, rng: Random, mix: Mix) -> list[Step]:
    change = rng.choice(sorted(mix.ddl))
    table = rng.choice(["items", "pairs", "loose", "coded", "readings"])
    return [Step(f"{kind} {change}", "SELECT workload_ddl(%s::regclass, %s, %s)", (table, change, _amount(rng)))]


_OPERATIONS: dict[str, tuple[float, Make]] = {
    "item insert": (8, _item_insert(_OR_NOTHING)),
    "item upsert": (5, _item_insert(_OR_UPDATE)),
    "item insert many": (3, _item_insert_many),
    "item update": (10, _one("UPDATE items SET amount = %s, label = %s WHERE id = %s", _amount, _text, _key)),
    "item update body": (3, _one("UPDATE items SET body = %s, doc = NULL WHERE id = %s", _body, _key)),
    "item update range": (
        2,
        _one("UPDATE items SET amount = (amount + %s) %% 1000 WHERE id %% 40 = %s AND id < 1000", _amount, _few),
    ),
    "item rekey": (4, _item_rekey),
    "item delete": (4, _one("DELETE FROM items WHERE id = %s", _key)),
    "item attempt": (2, _one("SELECT workload_attempt(%s, %s)", _key, lambda rng: rng.random() < 0.5)),
    "pair insert": (9, _one("INSERT INTO pairs VALUES (%s, %s, %s, %s)" + _OR_NOTHING, _few, _code, _amount, _body)),
    "pair update": (5, _one("UPDATE pairs SET amount = %s WHERE a = %s AND b < %s", _amount, _few, _code)),
    "pair rekey": (3, _pair_rekey),
    "pair delete": (1, _one("DELETE FROM pairs WHERE a = %s AND b > %s", _few, _code)),
    "loose insert": (
        8,
        _one("INSERT INTO loose (label, amount, body) VALUES ('equal', %s, NULL), (%s, 0, %s)", _few, _text, _body),
    ),
    "loose update": (4, _one("UPDATE loose SET price = %s, label = 'equal' WHERE amount = %s", _price, _few)),
    "loose update one": (
        4,
        _one("UPDATE loose SET amount = %s WHERE ctid = (SELECT min(ctid) FROM loose WHERE amount = %s)", _few, _few),
    ),
    "loose delete one": (
        6,
        _one("DELETE FROM loose WHERE ctid = (SELECT min(ctid) FROM loose WHERE amount = %s)", _few),
    ),
    "loose delete": (0.5, _one("DELETE FROM loose WHERE amount = %s", _few)),
    "coded insert": (
        5,
        _one("INSERT INTO coded VALUES (%s, %s, %s, true, %s)" + _OR_NOTHING, _key, _code, _amount, _body),
    ),
    "coded update": (5, _one("UPDATE coded SET amount = %s, active = NOT active WHERE id = %s", _amount, _key)),
    "coded recode": (3, _recode),
    "coded delete": (2, _one("DELETE FROM coded WHERE code = %s", _code)),
    "ledger": (8, _ledger),
    "transfer": (8, _transfer),
    "reading insert": (
        9,
        _one(
            "INSERT INTO readings VALUES (%s, %s, %s, clock_timestamp(), %s)" + _OR_NOTHING,
            _key, _region, _amount, _body,
        ),
    ),
    "reading update": (4, _one("UPDATE readings SET amount = %s WHERE id = %s", _amount, _key)),
    "reading move": (3, _reading_move),
    "reading delete": (1.5, _one("DELETE FROM readings WHERE id = %s", _key)),
    "message": (2, _message),
    "mark": (1, _mark),
    "truncate": (0.15, _truncate),
    "large": (0.15, _large),
    "ddl": (1.5, _ddl),
}  # fmt: skip
"""Kind → how often, and what. The rates of inserts and deletes keep the tables at some hundreds of rows."""

_SHAPES: dict[str, tuple[float, Callable[[Random, Mix], list[Step]]]] = {
    "one operation": (60, _operation),
    "several operations": (28, _several),
    "savepoints": (12, _savepoints),
}
