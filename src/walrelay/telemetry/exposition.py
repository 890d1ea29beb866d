"""The text that Prometheus reads: families of samples, written by its rules (exposition format 0.0.4)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

S = TypeVar("S")
Kind = Literal["gauge", "counter", "histogram"]
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Sample:
    """A value, with its labels in the order of the metric's own; `suffix` and `bound` are a histogram's."""

    value: float
    labels: tuple[str, ...] = ()
    suffix: str = ""
    bound: str | None = None


@dataclass(frozen=True)
class Metric(Generic[S]):
    """A metric as data: what it is called, what it means, and how its samples come out of what was seen."""

    name: str
    kind: Kind
    help: str
    samples: Callable[[S], Iterable[Sample]]
    labels: tuple[str, ...] = ()


def exposition(metrics: Iterable[Metric[S]], seen: S, common: dict[str, str]) -> str:
    """All that is known now; a metric without a sample is left out. `common` are labels that every sample has."""
    return "".join(line + "\n" for one in metrics for line in _family(one, seen, common))


def _family(metric: Metric[S], seen: S, common: dict[str, str]) -> Iterator[str]:
    samples = list(metric.samples(seen))
    if not samples:
        return
    yield f"# HELP {metric.name} {_escaped(metric.help)}"
    yield f"# TYPE {metric.name} {metric.kind}"
    for one in samples:
        labels = {**common, **dict(zip(metric.labels, one.labels, strict=True))}
        if one.bound is not None:
            labels["le"] = one.bound
        inside = ",".join(f'{name}="{_quoted(value)}"' for name, value in labels.items())
        yield f"{metric.name}{one.suffix}{{{inside}}} {_number(one.value)}"


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")


def _quoted(text: str) -> str:
    return _escaped(text).replace('"', r"\"")
