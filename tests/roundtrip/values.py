"""Every type of the list with values at its edges, in the type's own input syntax; None is NULL."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

Literals = tuple[str | None, ...]

EXTENSIONS = ("citext", "cube", "hstore", "isn", "ltree", "seg")

TYPES = """
CREATE TYPE mood AS ENUM ('sad', 'very happy', 'quo"te''s', 'a,b{}', '漢字😀', 'null');
CREATE DOMAIN positive AS int4 CHECK (VALUE > 0);
CREATE DOMAIN words AS text[];
CREATE DOMAIN matrix AS int4[][];
CREATE DOMAIN price AS numeric(10,2);
CREATE DOMAIN discount AS price CHECK (VALUE < 100);
CREATE DOMAIN lasting AS interval;
CREATE TYPE pair AS (number int4, word text);
CREATE DOMAIN known_pair AS pair CHECK ((VALUE).number > 0);
CREATE DOMAIN known_mood AS mood;
CREATE TYPE nothing AS ();
CREATE TYPE "Odd Type" AS ("a b" int4, "q""uo'te" text, "dot.ted" numeric(6,2), "Ünï" bool, "select" bytea);
CREATE TYPE deep AS (
    first pair, pairs pair[], tags text[][], at timestamptz, lasts interval, amount discount, feels mood, span int4range
);
CREATE TYPE evolving AS (kept int4, gone text, last mood);
CREATE TYPE holds_unknown AS (number int4, shape cube);
CREATE TYPE shows_unknown AS (number int4, shape bytea);
CREATE TYPE holds_acl AS (number int4, acl aclitem);
CREATE TYPE textrange AS RANGE (subtype = text, collation = "C");
CREATE TYPE floatrange AS RANGE (subtype = float8);
CREATE TYPE lastingrange AS RANGE (subtype = interval);
CREATE TYPE arrayrange AS RANGE (subtype = int4[]);
CREATE TYPE domainrange AS RANGE (subtype = positive);
CREATE SCHEMA own;
CREATE TABLE own.line (id int4, gone int4, note text);
ALTER TABLE own.line DROP COLUMN gone;
-- A type with bytes of its own, and the name of one that we know.
CREATE TYPE own.uuid;
CREATE FUNCTION own.uuid_in(cstring) RETURNS own.uuid IMMUTABLE STRICT LANGUAGE internal AS 'int8in';
CREATE FUNCTION own.uuid_out(own.uuid) RETURNS cstring IMMUTABLE STRICT LANGUAGE internal AS 'int8out';
CREATE FUNCTION own.uuid_send(own.uuid) RETURNS bytea IMMUTABLE STRICT LANGUAGE internal AS 'int8send';
CREATE TYPE own.uuid (INPUT = own.uuid_in, OUTPUT = own.uuid_out, SEND = own.uuid_send, LIKE = int8);
CREATE TYPE own.interval AS ENUM ('short', 'long');
"""


@dataclass(frozen=True)
class Case:
    """A column type, the DuckDB type it becomes, and values; `printed` is what Postgres is asked to print."""

    type: str
    duckdb: str
    literals: Literals
    printed: str = "value"
    since: int = 14
    until: int = 99
    unknown: bool = False
    """Has no decoder: bytes unless the user wants text."""
    altered: str = ""
    """Done to the type when the values are stored already."""
    note: str = ""
    """Tells apart two cases of one type."""

    @property
    def id(self) -> str:
        return f"{self.type}, {self.note}" if self.note else self.type

    @property
    def table(self) -> str:
        return "of_" + re.sub(r"[^a-z0-9]+", "_", self.id.lower().replace("[]", "_list").replace("-", "minus"))

    def runs_on(self, version: int) -> bool:
        return self.since <= version <= self.until


def texts(type_: str, *literals: str | None, **options: object) -> Case:
    """A type that arrives as the text that Postgres prints."""
    return Case(type_, "VARCHAR", literals, **options)  # type: ignore[arg-type]


def case(type_: str, duckdb: str, *literals: str | None, **options: object) -> Case:
    return Case(type_, duckdb, literals, **options)  # type: ignore[arg-type]


PLANES = tuple(
    "".join(chr((plane << 16) + low) for low in (0x0041, 0x00E9, 0x6F22, 0xD7FF, 0xE000, 0xFDD0, 0xFFFD, 0xFFFF))
    for plane in range(17)
)
CHARACTERS = (
    "", " ", "a", "NULL", "null", "\\N", "\\", "'", '"', '"\\"', "a,b", "{}", "()", "\t\n\v\f\r", "\x01\x7f", "\ufeff",
    "e\u0301", "\u202etxet", "👩‍👩‍👧", "\U0010ffff", "x" * 10_000, *PLANES, None,
)  # fmt: skip
INTEGERS = ("0", "1", "-1", None)
FLOATS = (
    "0", "-0", "1", "0.1", "-123.456", "100000", "1e6", "1e14", "1e15", "1e16", "0.0001", "0.00001", "NaN", "Infinity",
    "-Infinity", None,
)  # fmt: skip

NUMBERS = (
    case("bool", "BOOLEAN", "t", "f", None),
    case("int2", "SMALLINT", "-32768", "32767", *INTEGERS),
    case("int4", "INTEGER", "-2147483648", "2147483647", *INTEGERS),
    case("int8", "BIGINT", "-9223372036854775808", "9223372036854775807", *INTEGERS),
    case("oid", "BIGINT", "0", "2147483647", "2147483648", "4294967295", None),
    case("xid", "BIGINT", "0", "2147483648", "4294967295", None),
    case("cid", "BIGINT", "0", "4294967295", None),
    texts("xid8", "0", "9223372036854775808", "18446744073709551615", None),
    case("float4", "FLOAT", *FLOATS, "3.4028235e38", "-3.4028235e38", "1.1754944e-38", "1e-45", "16777216"),
    case(
        "float8", "DOUBLE", *FLOATS, "1.7976931348623157e308", "2.2250738585072014e-308", "5e-324", "9007199254740993",
    ),
    case("numeric(10,2)", "DECIMAL(10,2)", "0", "0.01", "-0.01", "99999999.99", "-99999999.99", "1e7", "0.10", None),
    case("numeric(1)", "DECIMAL(1,0)", "0", "9", "-9", None),
    case("numeric(4,4)", "DECIMAL(4,4)", "0", "0.9999", "-0.9999", "0.0001", None),
    case("numeric(18,9)", "DECIMAL(18,9)", "999999999.999999999", "-999999999.999999999", "1e-9", "10000", None),
    case("numeric(19,3)", "DECIMAL(19,3)", "9" * 16 + ".999", "-" + "9" * 16 + ".999", "9223372036854775.808", None),
    *(
        case(
            f"numeric(38,{scale})", f"DECIMAL(38,{scale})", "0", *(
                sign + text for sign in ("", "-") for text in (
                    ("9" * (38 - scale) or "0") + ("." + "9" * scale if scale else ""),
                    "0" if scale == 38 else "1" + "0" * (37 - scale), f"1e-{scale}",
                )
            ), None,
        )
        for scale in (0, 1, 2, 3, 4, 5, 19, 37, 38)
    ),
    case("numeric(3,-2)", "DECIMAL(5,0)", "0", "99900", "-99900", "149", None, since=15),
    case("numeric(3,5)", "DECIMAL(5,5)", "0", "0.00999", "-0.00999", "0.00001", None, since=15),
    case("numeric(38,-1)", "VARCHAR", "0", "9" * 38 + "0", None, since=15, note="too wide for a decimal"),
    texts("numeric(39,1)", "0", "9" * 38 + ".9", "-" + "9" * 38 + ".9", "NaN", None),
    texts("numeric(1000,500)", "0", "9" * 500 + "." + "9" * 500, "-1e-500", "NaN", None),
    texts(
        "numeric", "0", "0.0", "0.000", "-1", "1.10", "10000", "100000000", "1e-5", "0.00010001", "1e1000", "-1e-1000",
        "123456789" * 112, "1" * 131_072, "0." + "0" * 16_382 + "1", "NaN", "Infinity", "-Infinity", None,
    ),
    case(
        "money", "DECIMAL(19,2)", "0", "0.01", "-0.01", "92233720368547758.07", "-92233720368547758.08", None,
        printed="value::numeric",
    ),
)  # fmt: skip

TEXTS = (
    texts("text", *CHARACTERS),
    texts("varchar", *CHARACTERS),
    texts("varchar(5)", "", "a", "a    ", "漢字かな交", None),
    texts("bpchar(5)", "", "a", "a    ", "漢字", "12345", None),
    texts("bpchar", "", "a", "a  ", None),
    texts("char", "", "a", "😀", None, note="one character"),
    texts('"char"', "", "a", "~", " ", None),
    texts('"char"', r"\200", r"\377", "é", since=15, note="high bit"),
    texts("name", "", "a", "x" * 63, "naïve", None),
    texts("citext", "", "Aa", "ÄäSS", None),
    texts("xml", "<a/>", "<a b='1'>é漢😀<![CDATA[<]]></a>", "just text", "<?xml version='1.0'?><a/>", None, until=17),
    case("bytea", "BLOB", "", r"\x00", r"\xff00ff", r"\x" + bytes(range(256)).hex() * 40, None),
    case("uuid", "UUID", "0" * 32, "f" * 32, "7fffffff-ffff-ffff-ffff-ffffffffffff", "8" + "0" * 31, None),
    texts(
        "json", "null", " { } ", '{"b":1, "a" : [1,2.50,1E400], "b":2}', r'"\u0000\ud83d\ude00"', '"😀"', "[]", None,
    ),
    texts(
        "jsonb", "null", "{}", '{"b":1, "a" : [1,2.50,1e40], "b":2}', r'"\ud83d\ude00\n"', '"😀"', "-0.0", '""',
        "9" * 1000, "[" * 50 + "]" * 50, None,
    ),
    texts("jsonpath", "$", 'lax $."a b"[*] ? (@.c > 1.5 && @ like_regex "é")', "strict $.**{2 to last}", None),
    texts("mood", "sad", "very happy", "quo\"te's", "a,b{}", "漢字😀", "null", None),
    texts("own.interval", "short", "long", None),
    texts("refcursor", "", "some cursor", None),
)  # fmt: skip

DATED = (
    "4714-11-24 BC", "0044-03-15 BC", "0001-12-31 BC", "0001-01-01", "1582-10-10", "1969-12-31", "1970-01-01",
    "1999-12-31", "2000-01-01", "2000-02-29", "9999-12-31", "10000-01-01", "infinity", "-infinity", None,
)  # fmt: skip
LAST_STAMP = "294247-01-10 04:00:54.775806"
"""The last that microseconds since 1970 can count, besides infinity."""
STAMPS = (*DATED, LAST_STAMP, "1969-12-31 23:59:59.999999", "1970-01-01 00:00:00.1", "0001-01-01 00:00:00.000001 BC")
INTERVALS = (
    "0", "1 mon", "-1 mon", "1 year", "-1 year", "1 year -1 mon", "1 day", "-1 day", "36:00:00", "-36:00:00",
    "00:00:00.000001", "-00:00:00.000001", "1 mon -1 day", "-1 mon +1 day", "-1 year +2 mons -3 days +04:05:06.07",
    "1 year 2 mons 3 days -04:05:06", "-1 days +02:03:00", "13 mons 400 days 100:00:00",
    "178956970 years 7 mons 2147483647 days 2147483646:59:59.999999",
    "-178956970 years -8 mons -2147483647 days -2147483646:59:59.999999", None,
)  # fmt: skip
WIDEST_INTERVALS = (
    "178956970 years 7 mons 2147483646 days 2562047788:00:54.775807",
    "-178956970 years -8 mons -2147483647 days -2562047788:00:54.775807",
)

TIMES = (
    case("date", "DATE", *DATED, "5874897-12-31", "294277-01-01"),
    case("timestamp", "TIMESTAMP", *STAMPS),
    case("timestamp(0)", "TIMESTAMP", "2000-01-01 00:00:00.5", "1999-12-31 23:59:59.9", None),
    case(
        "timestamptz",
        "TIMESTAMP WITH TIME ZONE",
        *STAMPS,
        "2024-02-29 23:59:59.123456+15:59:59",
        "1883-11-18 12:00-04:56:02",
    ),
    case("timestamptz(3)", "TIMESTAMP WITH TIME ZONE", "2000-01-01 00:00:00.0005", None),
    case("time", "TIME", "00:00:00", "00:00:00.000001", "23:59:59.999999", "24:00:00", "12:30:00.5", None),
    case("time(0)", "TIME", "23:59:59.9", "00:00:00.4", None),
    texts("timetz", "00:00+00", "24:00-15:59:59", "00:00:00.000001+15:59:59", "04:05:06.789-08", "12:00+05:30", None),
    case("interval", "INTERVAL", *INTERVALS),
    case("interval", "INTERVAL", *WIDEST_INTERVALS, since=15, note="all 64 bits"),
    case("interval(2)", "INTERVAL", "00:00:00.126", None),
    case("interval year to month", "INTERVAL", "14 mons 3 days", None),
)

OTHERS = (
    texts("inet", "0.0.0.0", "255.255.255.255", "10.1.2.3/8", "0.0.0.0/0", "::", "::1", "::ffff:1.2.3.4", "::1/0",
          "2001:db8::/32", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", None),
    texts("cidr", "0.0.0.0/0", "10.0.0.0/8", "1.2.3.4/32", "::/0", "2001:db8::/32", "::1/128", None),
    texts("macaddr", "00:00:00:00:00:00", "ff:ff:ff:ff:ff:ff", "08:00:2b:01:02:03", None),
    texts("macaddr8", "00:00:00:00:00:00:00:00", "ff:ff:ff:ff:ff:ff:ff:ff", "08:00:2b:01:02:03", None),
    texts("bit(1)", "0", "1", None),
    texts("bit(13)", "0" * 13, "1" * 13, "1000000000001", None),
    texts("varbit", "", "1", "01" * 500, None),
    texts("varbit(5)", "", "10101", None),
    texts("point", "(0,-0)", "(1.5,-2e-30)", "(NaN,Infinity)", "(1e300,-Infinity)", None),
    texts("line", "{1,-1,0}", "{0,1,-5.25}", None),
    texts("lseg", "[(0,0),(1,1)]", "[(-1e10,0.1),(Infinity,2)]", None),
    texts("box", "(1,1),(0,0)", "(0.1,2),(-3,-4e-5)", None),
    texts("path", "[(0,0),(1,1)]", "((0,0),(1,1),(2,0))", "[(1,2)]", None),
    texts("polygon", "((0,0),(1,1),(2,0))", "((0.1,0.2))", None),
    texts("circle", "<(0,0),0>", "<(1.5,-2),3e20>", None),
    texts("tsvector", "", "a", "a:1A,2B,16383 b:4", "'it''s' 'back\\\\slash' '漢字' ' '", None),
    texts("tsquery", "", "a", "!a & (b | c:*AB) <-> d", "a <3> (b <-> c)", "'it''s' & '漢字'", None),
    texts("pg_lsn", "0/0", "FFFFFFFF/FFFFFFFF", "16/B374D848", None),
    texts("tid", "(0,0)", "(4294967295,65535)", "(0,1)", None),
    texts("hstore", "", "a=>1", 'a=>NULL, "b c"=>"", ""=>"\\"\\\\", 漢=>😀', None),
    texts("ltree", "", "Top.Science.Astronomy", "a_1.b", None),
    texts("lquery", "Top.*{1,2}.!a|b*@", "*", None),
    texts("ltxtquery", "Europe & Russia*@ & !Transport", None),
    case("int2vector", "SMALLINT[]", "", "1", "-32768 0 32767", None),
    case("oidvector", "BIGINT[]", "", "0", "1 4294967295", None),
    *(
        case(type_, "BIGINT", *literals, None, printed="value::oid")
        for type_, literals in {
            "regclass": ("pg_class", "0", "4294967295"), "regtype": ("int4", "0"), "regproc": ("now", "0"),
            "regprocedure": ("abs(int4)", "0"), "regrole": ("postgres", "0"), "regnamespace": ("pg_catalog", "0"),
            "regconfig": ("english", "0"), "regdictionary": ("simple", "0"), "regoperator": ("+(int4,int4)", "0"),
            "regoper": ("0",), "regcollation": ('"C"', "0"),
        }.items()
    ),
    case("vector", "FLOAT[]", "[0]", "[1,2.5,-3e-05]", "[3.4028235e+38,1e-45]", f"[{','.join('7' * 16_000)}]", None,
         since=18),
    case("vector(3)", "FLOAT[]", "[1,2,3]", None, since=18),
    case("halfvec", "FLOAT[]", "[0]", "[1,2.5,-65504]", "[5.9604645e-08,0.099975586]", None, since=18),
)  # fmt: skip

BLANK = ("{}", None)

ARRAYS = (
    case("int4[]", "INTEGER[]", *BLANK, "{1}", "{NULL}", "{1,NULL,-2147483648}", "{" + ",".join(["7"] * 5000) + "}"),
    case("int4[][]", "INTEGER[][]", *BLANK, "{{1}}", "{{1,2},{3,NULL}}", "{{NULL},{NULL},{3}}"),
    case("int4[3][3][3]", "INTEGER[][][]", *BLANK, "{{{1,2},{3,4}},{{5,6},{7,NULL}}}", "{{{1}}}"),
    case("text[][][][][][]", "VARCHAR[][][][][][]", *BLANK, "{{{{{{a}}}}}}", "{{{{{{a,b}},{{NULL,\"\"}}}}}}"),
    case("bool[]", "BOOLEAN[]", *BLANK, "{t,f,NULL}"),
    case("int2[]", "SMALLINT[]", *BLANK, "{-32768,NULL,32767}"),
    case("int8[]", "BIGINT[]", *BLANK, "{-9223372036854775808,NULL,9223372036854775807}"),
    case("oid[]", "BIGINT[]", *BLANK, "{0,4294967295}"),
    case("float4[]", "FLOAT[]", *BLANK, "{NaN,-0,1e-45,Infinity,NULL,0.1}"),
    case("float8[]", "DOUBLE[]", *BLANK, "{NaN,-0,5e-324,-Infinity,NULL,0.1}"),
    case("numeric[]", "VARCHAR[]", *BLANK, "{0.00,NaN,-Infinity,1e100,NULL}"),
    case("numeric(10,2)[]", "DECIMAL(10,2)[]", *BLANK, "{0,-99999999.99,NULL,1.5}"),
    case("numeric(38,10)[][]", "DECIMAL(38,10)[][]", *BLANK, "{{1,2},{NULL,-9999999999999999999999999999.9999999999}}"),
    case("text[]", "VARCHAR[]", *BLANK, '{a,"",NULL,"NULL"," x ","a,b","{}","\\"","\\\\","漢字😀"}'),
    case("varchar(3)[]", "VARCHAR[]", *BLANK, "{abc,NULL}"),
    case("bpchar(3)[]", "VARCHAR[]", *BLANK, '{a,"   ",NULL}'),
    case('"char"[]', "VARCHAR[]", *BLANK, '{a,"",NULL}'),
    case("name[]", "VARCHAR[]", *BLANK, "{a,NULL}"),
    case("citext[]", "VARCHAR[]", *BLANK, "{Aa,NULL}"),
    case("bytea[]", "BLOB[]", *BLANK, '{"\\\\x","\\\\x00ff",NULL}'),
    case("uuid[]", "UUID[]", *BLANK, "{" + "0" * 32 + ",NULL," + "f" * 32 + "}"),
    case("date[]", "DATE[]", *BLANK, '{infinity,NULL,"4714-11-24 BC",5874897-12-31}'),
    case("time[]", "TIME[]", *BLANK, "{24:00:00,NULL,00:00:00.000001}"),
    case("timetz[]", "VARCHAR[]", *BLANK, "{24:00:00-15:59:59,NULL}"),
    case("timestamp[]", "TIMESTAMP[]", *BLANK, f'{{-infinity,NULL,"{LAST_STAMP}","4714-11-24 BC"}}'),
    case("timestamptz[]", "TIMESTAMP WITH TIME ZONE[]", *BLANK, f'{{infinity,NULL,"{LAST_STAMP}","4714-11-24 BC"}}'),
    case("interval[]", "INTERVAL[]", *BLANK, '{"1 mon -1 day",NULL,"-00:00:01.5",0}'),
    case("interval[][]", "INTERVAL[][]", *BLANK, '{{"1 mon",NULL},{"1 day","1 us"}}'),
    case("json[]", "VARCHAR[]", *BLANK, r'{"{\"a\": [1]}",NULL," null "}'),
    case("jsonb[]", "VARCHAR[]", *BLANK, r'{"{\"a\": [1]}",NULL}'),
    case("mood[]", "VARCHAR[]", *BLANK, "{sad,NULL,\"quo\\\"te's\",\"a,b{}\",\"null\",漢字😀}"),
    case("inet[]", "VARCHAR[]", *BLANK, "{10.0.0.1,NULL,::1/64}"),
    case("bit(3)[]", "VARCHAR[]", *BLANK, "{101,NULL}"),
    case("money[]", "DECIMAL(19,2)[]", *BLANK, "{1.5,NULL,-92233720368547758.08}", printed="value::numeric[]"),
    case("point[]", "VARCHAR[]", *BLANK, '{"(1,2)",NULL}'),
    case("box[]", "VARCHAR[]", *BLANK, "{(1,1),(0,0);NULL;(3,4),(1,2)}"),
    case("tsvector[]", "VARCHAR[]", *BLANK, "{\"'a':1 'b':2\",NULL,\"\"}"),
    case("hstore[]", "VARCHAR[]", *BLANK, r'{"\"a\"=>NULL",NULL}'),
    case("pg_lsn[]", "VARCHAR[]", *BLANK, "{0/0,NULL}"),
    case("xid8[]", "VARCHAR[]", *BLANK, "{0,NULL,18446744073709551615}"),
    case("regclass[]", "BIGINT[]", *BLANK, "{pg_class,NULL,0}", printed="value::oid[]"),
    case("int2vector[]", "SMALLINT[][]", *BLANK, '{"1 2",NULL,"",3}'),
    case("vector[]", "FLOAT[][]", *BLANK, '{"[1,2]",NULL,"[3]"}', since=18),
    case("int4range[]", "STRUCT(lower INTEGER, upper INTEGER, lower_inc BOOLEAN, upper_inc BOOLEAN, empty BOOLEAN)[]",
         *BLANK, '{"[1,3)",NULL,empty,"(,)"}'),
    case("pair[]", "STRUCT(number INTEGER, word VARCHAR)[]", *BLANK, r'{"(1,a)",NULL,"(,)","(2,\"x, \"\"y\"\"\")"}'),
    case("pair[][]", "STRUCT(number INTEGER, word VARCHAR)[][]", *BLANK, '{{"(1,a)",NULL},{"(,)","(2,b)"}}'),
    case("positive[]", "INTEGER[]", *BLANK, "{1,NULL,2147483647}", note="a domain's"),
    case("discount[]", "DECIMAL(10,2)[]", *BLANK, "{1,NULL,-99999999.99}", note="a domain's domain's"),
    case("words[]", "VARCHAR[][]", *BLANK, r'{"{a,NULL}",NULL,"{}","{\"b c\"}"}', note="a domain's that is an array"),
)  # fmt: skip

DOMAINS = (
    case("positive", "INTEGER", "1", "2147483647", None),
    case("price", "DECIMAL(10,2)", "0", "-99999999.99", None),
    case("discount", "DECIMAL(10,2)", "99.99", "-99999999.99", None),
    case("words", "VARCHAR[]", *BLANK, '{a,NULL,"b c"}'),
    case("matrix", "INTEGER[][]", *BLANK, "{{1,2},{3,NULL}}"),
    case("lasting", "INTERVAL", "1 mon -1 day", None),
    case("known_pair", "STRUCT(number INTEGER, word VARCHAR)", "(1,a)", "(2,)", "(,)", None),
    case("known_pair[]", "STRUCT(number INTEGER, word VARCHAR)[]", *BLANK, '{"(1,a)"}'),
    case("known_mood", "VARCHAR", "sad", "null", None),
)

PAIR = "STRUCT(number INTEGER, word VARCHAR)"
INT4RANGE = "STRUCT(lower INTEGER, upper INTEGER, lower_inc BOOLEAN, upper_inc BOOLEAN, empty BOOLEAN)"
ODD = 'STRUCT("a b" INTEGER, "q""uo\'te" VARCHAR, "dot.ted" DECIMAL(6,2), "Ünï" BOOLEAN, "select" BLOB)'
DEEP = (
    f'STRUCT(first {PAIR}, pairs {PAIR}[], tags VARCHAR[][], "at" TIMESTAMP WITH TIME ZONE, lasts INTERVAL,'
    f" amount DECIMAL(10,2), feels VARCHAR, span {INT4RANGE})"
)

COMPOSITES = (
    case("pair", PAIR, "(1,a)", "(,)", '(,"")', "(-2147483648,null)", '(0,"a ""b"", (c) \\\\ d")', "(1, 漢 )", None),
    case('"Odd Type"', ODD, r'(1,"x y",-9999.99,t,"\\x00ff")', "(,,,,)", None),
    case(
        "deep", DEEP,
        '("(1,a)","{""(2,b)"",NULL}","{{a,b},{NULL,""c d""}}","2000-01-01 00:00:00.5+00","1 mon -1 day",1.5,,"[1,5)")',
        "(,,,,,,,)", '("(,)",{},{},infinity,0,,"a,b{}",empty)', '("(,""x"")","{""(,)""}",,-infinity,,,,"(,)")', None,
    ),
    case("deep[]", DEEP + "[]", *BLANK, r'{"(,,,,\"1 day\",,sad,)",NULL,"(,,,,,,,)"}'),
    case("evolving", "STRUCT(kept INTEGER, last VARCHAR, added INTEGER)", "(1,x,sad)", "(,,)", None,
         altered="ALTER TYPE evolving DROP ATTRIBUTE gone, ADD ATTRIBUTE added int4"),
    case("own.line", "STRUCT(id INTEGER, note VARCHAR)", "(1,a)", "(,)", None, note="a table's rows"),
    case("own.line[]", "STRUCT(id INTEGER, note VARCHAR)[]", *BLANK, '{"(1,a)",NULL}', note="a table's rows"),
)  # fmt: skip


def spans(type_: str, bound: str, *literals: str, **options: object) -> Case:
    """A range type: what it holds besides the values that every range has."""
    struct = f"STRUCT(lower {bound}, upper {bound}, lower_inc BOOLEAN, upper_inc BOOLEAN, empty BOOLEAN)"
    many = type_.endswith("multirange")
    common = ("{}", "{(,)}") if many else ("empty", "(,)")
    return case(type_, struct + "[]" * many, *common, *literals, None, **options)


DAYS = ("[2020-01-01,2020-02-01)", "[4714-11-24 BC,)", "[-infinity,infinity]", "(,5874897-12-31)")
MOMENTS = ("[2020-01-01 12:00:00.5,2020-02-01]", "(-infinity,infinity)", "[4714-11-24 BC,)", f"(,{LAST_STAMP}]")

RANGES = (
    spans("int4range", "INTEGER", "[1,10]", "(1,10)", "[-2147483648,)", "(,2147483647)"),
    spans("int8range", "BIGINT", "[1,10]", "[-9223372036854775808,9223372036854775807)"),
    spans("numrange", "VARCHAR", "[1.10,2.2]", "(1,2)", "[-Infinity,Infinity]", "[1e-500,1e500)", "[NaN,NaN]"),
    spans("tsrange", "TIMESTAMP", *MOMENTS),
    spans("tstzrange", "TIMESTAMP WITH TIME ZONE", *MOMENTS),
    spans("daterange", "DATE", *DAYS),
    spans("textrange", "VARCHAR", '["",a]', '[a,"b ""c"" \\\\ ,()"]', "[漢,😀)"),
    spans("floatrange", "DOUBLE", "[-Infinity,NaN]", "(0.1,1e300)", "[-0,0]"),
    spans("lastingrange", "INTERVAL", "[1 day,1 mon)", "(,00:00:01.5)"),
    spans("arrayrange", "INTEGER[]", '["{1,2}","{3,NULL}")', '[{},"{1}"]'),
    spans("domainrange", "INTEGER", "[1,10]", "(5,)"),
    spans("int4multirange", "INTEGER", "{[1,3),[5,9)}", "{(,1),[5,)}"),
    spans("int8multirange", "BIGINT", "{[-9223372036854775808,0),[5,9)}"),
    spans("nummultirange", "VARCHAR", "{[1.10,2.2],(3,4.00)}"),
    spans("tsmultirange", "TIMESTAMP", "{[2020-01-01,2020-02-01],(2021-01-01,infinity]}"),
    spans("tstzmultirange", "TIMESTAMP WITH TIME ZONE", "{[2020-01-01,2020-02-01],(2021-01-01,infinity]}"),
    spans("datemultirange", "DATE", "{[4714-11-24 BC,2020-02-01),[2021-01-01,)}"),
    spans("textmultirange", "VARCHAR", '{["",a],["b c","d,"]}'),
    spans("lastingmultirange", "INTERVAL", "{[1 day,2 days),[1 year,)}"),
    case("int4multirange[]", INT4RANGE + "[][]", *BLANK, '{"{[1,3),[5,)}",NULL,"{}"}'),
)

UNKNOWN = (
    case("pg_snapshot", "BLOB", "10:20:10,14,15", "1:1:", None, printed="pg_snapshot_send(value)", unknown=True),
    case("cube", "BLOB", "(1,2,3),(4,5,6)", "0", None, printed="cube_send(value)", unknown=True),
    case("own.uuid", "BLOB", "-1", "9223372036854775807", None, printed="own.uuid_send(value)", unknown=True),
    case("cube[]", "BLOB[]", '{"(1, 2)",NULL,"(0)"}', *BLANK, unknown=True,
         printed="CASE WHEN value IS NOT NULL THEN ARRAY(SELECT cube_send(x) FROM unnest(value) x) END"),
    case("holds_unknown", "STRUCT(number INTEGER, shape BLOB)", '(1,"(2, 3)")', "(,)", None, unknown=True,
         printed="CASE WHEN value::text IS NOT NULL THEN"
                 " ROW((value).number, cube_send((value).shape))::shows_unknown END"),
    case("nothing", "BLOB", "()", None, printed="record_send(value)", unknown=True),
    case("sparsevec", "BLOB", "{1:1.5,3:2}/5", None, printed="sparsevec_send(value)", unknown=True, since=18),
)  # fmt: skip
"""Types without a decoder: Postgres's own binary form."""

WITHOUT_BINARY = (
    texts("aclitem", "postgres=arwdDxt/postgres", "=r/postgres", None),
    texts("aclitem[]", "{postgres=r/postgres,NULL}", *BLANK),
    texts("holds_acl", "(1,postgres=r/postgres)", "(,)", None),
    texts("seg", "1.5 .. 2.50", "< 3", None),
    texts("ean13", "978-0-393-04002-9", None),
)
"""Types that Postgres itself can only print."""

CASES = (
    *NUMBERS, *TEXTS, *TIMES, *OTHERS, *ARRAYS, *DOMAINS, *COMPOSITES, *RANGES, *UNKNOWN, *WITHOUT_BINARY,
)  # fmt: skip
AS_TEXT = tuple(replace(case, duckdb="VARCHAR", printed="value") for case in UNKNOWN)
"""The same when the user asks for text."""


def cases_of(version: int) -> list[Case]:
    return [case for case in CASES if case.runs_on(version)]
