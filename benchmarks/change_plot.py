"""The drains as a picture."""

from __future__ import annotations

from pathlib import Path

from benchmarks.change_speed import Race
from benchmarks.copy_plot import LIMIT, OURS


def plot_drains(races: list[Race], path: Path) -> None:
    """Seconds per contender and transaction size, with whiskers from the fastest to the slowest round."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    drains = [(race, drain) for race in races for drain in (race.theirs, race.ours)]
    figure, axes = plt.subplots(figsize=(9.5, 1.3 + 0.6 * len(drains)), layout="constrained")
    medians = [drain.median for _, drain in drains]
    axes.barh(
        range(len(drains)),
        medians,
        xerr=[
            [drain.median - min(drain.seconds) for _, drain in drains],
            [max(drain.seconds) - drain.median for _, drain in drains],
        ],
        color=[OURS if drain is race.ours else LIMIT for race, drain in drains],
        error_kw={"ecolor": "#30343a", "elinewidth": 1.1, "capsize": 3},
        height=0.66,
    )
    labels = [f"{drain.name}, {race.size:,} row{'s' if race.size > 1 else ''} a transaction" for race, drain in drains]
    axes.set_yticks(range(len(drains)), labels, fontsize=9.5)
    for place, (race, drain) in enumerate(drains):
        rate = race.rows / drain.median / 1e3
        axes.text(
            max(drain.seconds) + max(medians) * 0.012,
            place,
            f"{drain.median:.2f} s · {rate:,.0f}k rows/s · {drain.median_cpu:.1f} s CPU",
            va="center",
            fontsize=9,
        )
    axes.invert_yaxis()
    axes.set_xlim(0, max(max(drain.seconds) for _, drain in drains) * 1.4)
    axes.set_xlabel("seconds, shorter is better; bars are medians, whiskers the fastest and slowest round")
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(
        f"Draining {races[0].rows:,} inserted rows from a slot: to nowhere, and to a durable log",
        loc="left",
        fontsize=11.5,
        fontweight="bold",
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150, bbox_inches="tight", pad_inches=0.15)
    plt.close(figure)
