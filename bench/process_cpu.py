"""CPU time of other processes, for the benches."""
import pathlib, statistics


def cpu_of(processes):
    """Seconds of CPU time of processes by their threads of now; None where the kernel does not tell."""
    used = []
    for process in processes:
        for file in pathlib.Path(f"/proc/{process}/task").glob("*/schedstat"):
            try:
                used.append(int(file.read_text().split()[0]))
            except OSError:
                pass  # a thread that has ended, or another user's
    return sum(used) / 1e9 if used else None


def microseconds(before, after, count):
    """CPU time between two readings for each of `count` turns; None where one is missing."""
    return None if before is None or after is None else (after - before) / count * 1e6


def median(figures):
    """The median, None if one of them was not measured."""
    return None if None in figures else statistics.median(figures)


def cell(figure, width):
    """A figure of a table without decimals, `-` for one that was not measured."""
    return f"{'-' if figure is None else format(figure, '.0f'):>{width}}"
