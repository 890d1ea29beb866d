"""What a preflight found, and how it is handed on."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import Enum

from walrelay.errors import WalrelayError


class Severity(Enum):
    """How much a finding matters. Only an error keeps a pipeline from running."""

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True)
class Finding:
    """One answer of one check. `check` is stable, `remedy` says what to do, `tables` whom it concerns."""

    check: str
    severity: Severity
    message: str
    remedy: str | None = None
    tables: tuple[str, ...] = ()


@dataclass(frozen=True)
class Report:
    """All findings about a source. Holds no secret and no row value, so it may be printed and stored."""

    source: str
    server_version: str
    findings: tuple[Finding, ...]

    @classmethod
    def refused(cls, source: str, error: WalrelayError) -> Report:
        """The report on a source that gave no answer: the error is its only finding."""
        return cls(source, "", (Finding(error.code, Severity.ERROR, error.message, error.hint or None),))

    @property
    def ok(self) -> bool:
        return self.count(Severity.ERROR) == 0

    def count(self, severity: Severity) -> int:
        return sum(finding.severity is severity for finding in self.findings)

    def to_json(self) -> str:
        findings = [{**asdict(finding), "severity": finding.severity.value} for finding in self.findings]
        body = {
            "source": self.source,
            "server_version": self.server_version,
            "ok": self.ok,
            "findings": findings,
        }
        return json.dumps(body, indent=2, ensure_ascii=False)


def passed(check: str, message: str) -> Finding:
    return Finding(check, Severity.OK, message)


def note(check: str, message: str, remedy: str | None = None, tables: Iterable[str] = ()) -> Finding:
    return Finding(check, Severity.NOTE, message, remedy, tuple(tables))


def warning(check: str, message: str, remedy: str | None = None, tables: Iterable[str] = ()) -> Finding:
    return Finding(check, Severity.WARNING, message, remedy, tuple(tables))


def problem(check: str, message: str, remedy: str | None = None, tables: Iterable[str] = ()) -> Finding:
    return Finding(check, Severity.ERROR, message, remedy, tuple(tables))
