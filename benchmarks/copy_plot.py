"""The race's outcome as a picture."""

from __future__ import annotations

from pathlib import Path

from benchmarks.copy_speed import Race, Standing

OURS, OTHERS, LIMIT = "#2a6fb0", "#c3c7cc", "#8d939b"


def plot_race(race: Race, path: Path) -> None:
    """Draw seconds per contender, shortest first, with whiskers from the fastest to the slowest run."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    standings = sorted(race.standings, key=lambda standing: standing.median)
    figure, axes = plt.subplots(figsize=(9.5, 1.3 + 0.55 * len(standings)), layout="constrained")
    places = range(len(standings))
    axes.barh(
        places,
        [standing.median for standing in standings],
        xerr=[
            [standing.median - min(standing.seconds) for standing in standings],
            [max(standing.seconds) - standing.median for standing in standings],
        ],
        color=[_colour(standing) for standing in standings],
        error_kw={"ecolor": "#30343a", "elinewidth": 1.1, "capsize": 3},
        height=0.66,
    )
    longest = max(max(standing.seconds) for standing in standings)
    for place, standing in zip(places, standings, strict=True):
        rate = race.table.rows / standing.median / 1e6
        axes.text(
            max(standing.seconds) + longest * 0.012,
            place,
            f"{standing.median:.2f} s · {rate:.2f} M rows/s",
            va="center",
            fontsize=9,
        )
    axes.set_yticks(places, [standing.label for standing in standings], fontsize=9.5)
    axes.invert_yaxis()
    axes.set_xlim(0, longest * 1.28)
    axes.set_xlabel("seconds, shorter is better; bars are medians, whiskers the fastest and slowest run")
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    size = f"{race.copy_bytes / 1e6:,.0f} MB" if race.copy_bytes else f"{race.table.disk_bytes / 1e6:,.0f} MB on disk"
    axes.set_title(
        f"Copying {race.table.rows:,} rows ({size}) out of Postgres, {race.machine['cores']} cores",
        loc="left",
        fontsize=11.5,
        fontweight="bold",
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150, bbox_inches="tight", pad_inches=0.15)
    plt.close(figure)


def _colour(standing: Standing) -> str:
    if standing.name.startswith("walrelay"):
        return OURS
    return LIMIT if standing.name == "psql" else OTHERS
