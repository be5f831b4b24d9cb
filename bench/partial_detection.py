#!/usr/bin/env python3
"""Draws how often altered blocks escape a partial MAC, counted and by the formula, from the table that a test prints:

    cargo test --profile checked -p sealane-crypto-portable --test it detection_of_a_million -- --ignored --nocapture |
        python3 bench/partial_detection.py > docs/partial-mac-detection.svg

The numbers are the same on every machine. Bars are intervals of 99 %; points below one in a million cannot be counted."""

import csv
import math
import sys

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 900, 520, 80, 30, 30, 60
COLOURS = {"1/2": "#b3261e", "1/4": "#1a5fb4", "1/8": "#26802f"}
DECADES = 6


def main():
    lines = [line.strip() for line in sys.stdin]
    start = next(i for i, line in enumerate(lines) if line.startswith("fraction,"))
    rows = list(csv.DictReader(line for line in lines[start:] if line.count(",") == 7))
    most = max(int(row["altered"]) for row in rows)

    def x(m):
        return LEFT + (WIDTH - LEFT - RIGHT) * m / most

    def y(p):
        return TOP + (HEIGHT - TOP - BOTTOM) * min(-math.log10(max(p, 1e-30)), DECADES) / DECADES

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="14">',
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>']
    for decade in range(DECADES + 1):
        at = y(10 ** -decade)
        out.append(f'<path d="M{LEFT} {at:.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>')
        out.append(f'<text x="{LEFT - 8}" y="{at + 5:.1f}" text-anchor="end">{"1" if decade == 0 else f"1e-{decade}"}</text>')
    for m in range(0, most + 1, 8):
        out.append(f'<path d="M{x(m):.1f} {TOP}V{HEIGHT - BOTTOM}" stroke="#eee"/>')
        out.append(f'<text x="{x(m):.1f}" y="{HEIGHT - BOTTOM + 20}" text-anchor="middle">{m}</text>')
    out.append(f'<text x="{(LEFT + WIDTH) / 2}" y="{HEIGHT - 12}" text-anchor="middle">altered blocks of {rows[0]["blocks"]}</text>')
    out.append(f'<text transform="translate(18 {HEIGHT / 2}) rotate(-90)" text-anchor="middle">escaped, of {rows[0]["trials"]} packets</text>')
    for i, (fraction, colour) in enumerate(COLOURS.items()):
        points = [row for row in rows if row["fraction"] == fraction]
        curve = [(x(int(r["altered"])), y(float(r["formula"]))) for r in points if float(r["formula"]) >= 10 ** -DECADES]
        out.append(f'<polyline points="{" ".join(f"{a:.1f},{b:.1f}" for a, b in curve)}" fill="none" stroke="{colour}" stroke-opacity="0.5"/>')
        for row in points:
            if int(row["escaped"]) == 0:
                continue
            at, share = x(int(row["altered"])), int(row["escaped"]) / int(row["trials"])
            low, high = y(float(row["low99"])), y(float(row["high99"]))
            out.append(f'<path d="M{at:.1f} {low:.1f}V{high:.1f}" stroke="{colour}"/><circle cx="{at:.1f}" cy="{y(share):.1f}" r="2" fill="{colour}"/>')
        out.append(f'<text x="{WIDTH - RIGHT - 130}" y="{TOP + 24 + 20 * i}" fill="{colour}">{fraction}: (1 - {fraction})^m</text>')
    print("\n".join(out + ["</svg>"]))


main()
