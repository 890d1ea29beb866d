"""Runs a real Postgres server in a private data directory, for tests and demos."""

import atexit
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self
from urllib.parse import quote

import psycopg
from psycopg import sql

from walrelay.testing import postgres_versions as versions
from walrelay.testing.postgres_versions import EmbeddedPostgresError

__all__ = ["EmbeddedPostgres", "EmbeddedPostgresError"]

_SETTINGS = {
    "wal_level": "logical",
    "max_wal_senders": "20",
    "max_replication_slots": "20",
    "max_connections": "100",
    "shared_buffers": "256MB",
    "max_wal_size": "4GB",
    "listen_addresses": "127.0.0.1",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "lc_messages": "C",
}
# Safe while the machine stays up: what a killed server wrote, the kernel still has.
_WITHOUT_DURABILITY = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
# Another attempt can cure these: the port was taken meanwhile, or a killed server's backends still linger.
_PASSING_FAILURES = ("could not create any TCP/IP sockets", "pre-existing shared memory block")
_ATTEMPTS = 10
_WAIT_SECONDS = 30.0
_START_SECONDS = 180.0
"""A server that crashed first works its log off, which takes a while on a busy machine."""
# sockaddr_un holds a path of 107 bytes on Linux, of 103 on macOS.
_LONGEST_SOCKET_DIRECTORY = 103 - len("/.s.PGSQL.65535")


@dataclass(frozen=True)
class _Home:
    """Where a server's programs and files are, and the account it runs as if that is not ours."""

    installation: versions.Installation
    account: versions.Account | None
    directory: Path
    sockets: Path

    @property
    def data(self) -> Path:
        return self.directory / "data"

    @property
    def configuration(self) -> Path:
        """Our settings; written once initdb is through, so it also tells that the data are whole."""
        return self.data / "walrelay.conf"


class EmbeddedPostgres:
    """A Postgres server of one's own; superuser `postgres`, trusted on loopback and on its Unix socket.

    Without `directory` the data live in a temporary directory that `close` deletes; a given one is kept, and
    data found in it are used again. The port stays the same from the first start on. If we are root, the
    server runs as `postgres` or `nobody`. `settings` override the defaults; unless `durable`, fsync is off.

    The server ends with this process, even if that is killed. Linux ties this to the *thread* that calls
    `start` (prctl(2), PR_SET_PDEATHSIG): use the main thread or one that lives as long as the server should.
    """

    def __init__(
        self,
        *,
        version: int = 18,
        directory: Path | None = None,
        settings: Mapping[str, str] = {},
        durable: bool = False,
        installation: versions.Installation | None = None,
    ) -> None:
        if reserved := {"port", "unix_socket_directories"} & settings.keys():
            raise ValueError(f"EmbeddedPostgres itself chooses {', '.join(sorted(reserved))}; see its `url`")
        self.version = installation.version if installation is not None else version
        self._installation = installation
        self._settings = _SETTINGS | ({} if durable else _WITHOUT_DURABILITY) | dict(settings)
        self._given_directory = directory.absolute() if directory else None
        self._settled: _Home | None = None
        self._port: int | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._owner_pid = os.getpid()

    @property
    def port(self) -> int:
        if self._port is None:
            raise EmbeddedPostgresError("the server has no port before it was started")
        return self._port

    @property
    def pid(self) -> int:
        """The postmaster's process id."""
        if self._process is None:
            raise EmbeddedPostgresError("the server is not running")
        return self._process.pid

    @property
    def log_path(self) -> Path:
        return self._home.directory / "postgres.log"

    @property
    def bin_dir(self) -> Path:
        """Where the server's programs are; only version 18 brings psql, pg_recvlogical and the like."""
        return self._home.installation.bin_dir

    @property
    def url(self) -> str:
        return self._url("postgres")

    @property
    def socket_url(self) -> str:
        directory = quote(str(self._home.sockets), safe="")
        return f"postgresql://postgres@/postgres?host={directory}&port={self.port}"

    def start(self) -> Self:
        """Start the server, also again after `stop`, and return when it answers; nothing to do if it runs."""
        if self._process is not None and self._process.poll() is None:
            return self
        if self._settled is None:
            self._settled = _settle(self.version, self._given_directory, self._installation)
            atexit.register(self._close_at_exit)
        if not self._home.configuration.exists():
            self._initialize()
        attempts, established = 1, self._port
        while (ending := self._launch(established or _free_port())) is not None:
            if attempts == _ATTEMPTS or not any(failure in ending for failure in _PASSING_FAILURES):
                self._port = established
                raise EmbeddedPostgresError(f"Postgres {self.version} did not start; its log ends:\n{ending}")
            attempts += 1
            time.sleep(0.2)
        return self

    def stop(self, mode: Literal["fast", "immediate"] = "fast") -> None:
        """Stop the server, `fast` cleanly or `immediate` like a crash; return when it is gone. Data are kept.

        A fast stop that a stuck client holds up turns immediate after 30 seconds.
        """
        endings = [signal.SIGINT] if mode == "fast" else []
        for ending in (*endings, signal.SIGQUIT, signal.SIGKILL):
            if self._process is not None:
                self._process.send_signal(ending)
                with suppress(subprocess.TimeoutExpired):
                    self._process.wait(_WAIT_SECONDS)
                    self._process = None

    def close(self) -> None:
        """Stop the server and delete what is temporary; a directory given to the constructor is kept."""
        self.stop("fast" if self._given_directory else "immediate")
        atexit.unregister(self._close_at_exit)
        home, self._settled = self._settled, None
        if home is not None:
            shutil.rmtree(home.sockets, ignore_errors=True)
            if self._given_directory is None:
                shutil.rmtree(home.directory, ignore_errors=True)

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *exception: object) -> None:
        self.close()

    def create_database(self, name: str) -> str:
        """Create a database and return its URL."""
        with psycopg.connect(self.socket_url, autocommit=True) as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        return self._url(name)

    def require_password(self, role: str, password: str) -> str:
        """Create a login role without other rights that must give this password, and return its URL.

        On return every new connection of the role is asked, on TCP and socket alike.
        """
        with psycopg.connect(self.socket_url, autocommit=True) as connection:
            connection.execute("SET password_encryption = 'scram-sha-256'")
            create = sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}")
            connection.execute(create.format(sql.Identifier(role), sql.Literal(password)))
        # `all` leaves out physical replication. Put first, since the first line that matches decides.
        scope = 'all,replication "{}"'.format(role.replace('"', '""'))
        added = f"local {scope} scram-sha-256\nhost {scope} 127.0.0.1/32 scram-sha-256\n"
        self.add_rules(added)
        return self._url("postgres", user=f"{quote(role, safe='')}:{quote(password, safe='')}")

    def add_rules(self, rules: str) -> None:
        """Put lines before those of pg_hba.conf; on return every new connection goes by them."""
        file = self._home.data / "pg_hba.conf"
        file.write_text(rules + file.read_text())
        self._reload()

    def serve_tls(self, *, certificate: Path, key: Path, authority: Path) -> None:
        """Offer TLS from now on, with this certificate, to clients with certificates of this authority or with none."""
        for name, file in (("server.crt", certificate), ("server.key", key), ("clients.crt", authority)):
            copied = Path(shutil.copy(file, self._home.data / name))
            copied.chmod(0o600)
            if self._home.account is not None:
                os.chown(copied, self._home.account.pw_uid, self._home.account.pw_gid)
        with psycopg.connect(self.socket_url, autocommit=True) as connection:
            connection.execute("ALTER SYSTEM SET ssl_ca_file = 'clients.crt'")
            connection.execute("ALTER SYSTEM SET ssl = on")
        self._reload()

    @property
    def _home(self) -> _Home:
        if self._settled is None:
            raise EmbeddedPostgresError("the server has no files before it was started, nor once closed")
        return self._settled

    def _url(self, database: str, user: str = "postgres") -> str:
        return f"postgresql://{user}@127.0.0.1:{self.port}/{quote(database, safe='')}"

    def _initialize(self) -> None:
        options = ["--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"]
        if self._spawn("initdb", *options).wait() != 0:
            raise EmbeddedPostgresError(f"initdb of Postgres {self.version} failed:\n{_tail(self.log_path)}")
        with (self._home.data / "postgresql.conf").open("a") as configuration:
            configuration.write(f"include '{self._home.configuration.name}'\n")

    def _configure(self) -> None:
        # In a file and not on the command line, which would overrule a test's ALTER SYSTEM.
        own = {"port": str(self.port), "unix_socket_directories": str(self._home.sockets)}
        escapes = str.maketrans({"'": "''", "\\": "\\\\", "\n": "\\n"})
        lines = [f"{name} = '{value.translate(escapes)}'\n" for name, value in (self._settings | own).items()]
        self._home.configuration.write_text("".join(lines))
        self._home.configuration.chmod(0o644)

    def _launch(self, port: int) -> str | None:
        """Start the server once; return None when it answers, else the end of its log."""
        self._port = port
        self._configure()
        begin = self.log_path.stat().st_size if self.log_path.exists() else 0
        self._process = self._spawn("postgres")
        deadline = time.monotonic() + _START_SECONDS
        while self._process.poll() is None and time.monotonic() < deadline:
            # By the socket, since somebody else's server may answer on the port.
            with suppress(psycopg.OperationalError):
                psycopg.connect(self.socket_url, connect_timeout=5).close()
                return None
            time.sleep(0.02)
        self.stop("immediate")
        return _tail(self.log_path, begin)

    def _spawn(self, program: str, *options: str) -> subprocess.Popen[bytes]:
        home, log = self._home, self.log_path
        return home.installation.spawn(program, *options, data=home.data, log=log, account=home.account)

    def _reload(self) -> None:
        """Reload the configuration; return when new connections see it: pg_reload_conf() does not wait."""
        with psycopg.connect(self.socket_url) as connection:
            before = connection.execute("SELECT pg_conf_load_time(), pg_reload_conf()").fetchone()
        deadline = time.monotonic() + _WAIT_SECONDS
        while time.monotonic() < deadline:
            # A new backend is a fork of the postmaster, which reloads settings and access rules in one step.
            with psycopg.connect(self.socket_url) as connection:
                if connection.execute("SELECT pg_conf_load_time(), true").fetchone() != before:
                    return
        raise EmbeddedPostgresError(f"the server did not reload its configuration; see {self.log_path}")

    def _close_at_exit(self) -> None:
        # A forked child inherits the hook, but the server is not its own.
        if os.getpid() == self._owner_pid:
            self.close()


def _settle(version: int, given_directory: Path | None, installation: versions.Installation | None) -> _Home:
    """Find the account and the binaries, and make the directories, all within the account's reach."""
    account = versions.server_account()
    if installation is None:
        installation = versions.find_installation(version, account)
    elif account is not None:
        installation = versions.within_reach(installation, account)
    bases = (tempfile.gettempdir(), "/tmp", "/var/tmp")
    base = next((base for base in bases if not account or versions.can_reach(Path(base), account)), None)
    directory = given_directory or Path(tempfile.mkdtemp(prefix="walrelay-postgres-", dir=base))
    sockets = directory / "run"
    if len(os.fsencode(sockets)) > _LONGEST_SOCKET_DIRECTORY:
        sockets = Path(tempfile.mkdtemp(prefix="walrelay-", dir="/tmp"))
    for made in [directory / "data", sockets] + ([] if given_directory else [directory]):
        made.mkdir(mode=0o700, parents=True, exist_ok=True)
        if account is not None:
            os.chown(made, account.pw_uid, account.pw_gid)
    if account is not None and not versions.can_reach(directory, account):
        advice = "chmod a+x the directories on this path, or leave the choice to EmbeddedPostgres"
        raise EmbeddedPostgresError(f"the account {account.pw_name} cannot enter {directory}; {advice}")
    return _Home(installation, account, directory, sockets)


def _free_port() -> int:
    # Below the range for outgoing connections: in it, a client that reconnects while the server is down can
    # be given the server's port as its own, and connects to itself.
    for port in random.SystemRandom().sample(range(20_000, 32_000), 100):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise EmbeddedPostgresError("no free port on 127.0.0.1 from 20000 to 32000")


def _tail(log: Path, begin: int = 0) -> str:
    return "\n".join(log.read_bytes()[begin:].decode(errors="replace").splitlines()[-25:])
