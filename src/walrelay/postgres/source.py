"""The source a user names: where it is and which publication says what to replicate."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.errors import ProgrammingError

from walrelay.errors import ConfigError

STALL_TIMEOUT = timedelta(seconds=30)
_EXAMPLE = "It looks like postgresql://user@host:5432/database."


@dataclass(frozen=True)
class PostgresSource:
    """A Postgres database and a publication in it.

    `url` is a libpq URL or key=value string; the password may also come from PGPASSWORD, ~/.pgpass or a service file.
    """

    url: str = field(repr=False)
    publication: str = field(default="", kw_only=True)
    stall_timeout: timedelta = field(default=STALL_TIMEOUT, kw_only=True, repr=False)
    """How long nothing may come before the server is asked why (`postgres.silence`). A pipeline's settings decide."""

    def __post_init__(self) -> None:
        try:
            parts = conninfo_to_dict(self.url)
        except ProgrammingError as error:
            # libpq's own words may repeat the URL, and with it the password.
            raise ConfigError(
                "the source's URL is not one that libpq understands",
                hint=f"{_EXAMPLE} Escape special characters of the password: @ as %40, / as %2F, : as %3A.",
            ) from error
        if not parts:
            raise ConfigError("the source's URL is empty", hint=_EXAMPLE)
        # An unescaped @ or / in a password splits the URL in the wrong place, and what libpq then takes for the host
        # is a piece of the password, which must not be shown.
        misplaced = any("@" in str(parts.get(key, "")) for key in ("host", "hostaddr", "port", "dbname"))
        ports = str(parts.get("port") or "").split(",")
        if misplaced or not all(port == "" or port.isdigit() for port in ports):
            raise ConfigError(
                "the source's URL cannot be taken apart: host, port or database name hold a character that does not"
                " belong there",
                hint=f"Escape special characters of the password: @ as %40, / as %2F, : as %3A. {_EXAMPLE}",
            )

    @property
    def conninfo(self) -> str:
        """The connection string for libpq, with our defaults for what the user left open. Holds the password."""
        given = conninfo_to_dict(self.url)
        return make_conninfo("", **{**_DEFAULTS, **given})

    @property
    def location(self) -> str:
        """host:port/database, fit to be shown."""
        parts = conninfo_to_dict(self.url)
        host = str(parts.get("host") or parts.get("hostaddr") or "local socket")
        return f"{host}:{parts.get('port') or 5432}/{parts.get('dbname') or parts.get('user') or ''}"


_DEFAULTS = {
    "connect_timeout": "10",
    "application_name": "walrelay",
    # A peer that vanished without a word is noticed after about a minute, not after two hours.
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    # … also when it vanished while something was on the way to it, for which keepalives are not sent.
    "tcp_user_timeout": "60000",
    # Kerberos encryption would wrap the socket that the copy reads directly.
    "gssencmode": "disable",
}
