#!/usr/bin/env python3
"""Prints the table of docs/partial-mac.md, with the CPU and the command, from the report of

    sealane bench --only partial-mac --out FOLDER
    python3 bench/partial_mac_table.py FOLDER/data.json
"""

import json
import sys

NARROW = "\u202f"


def number(cell):
    return float(cell.split(" ")[0].replace(NARROW, ""))


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        report = json.load(file)
    part = next(part for part in report["parts"] if part["id"] == "partial-mac")
    table = part["tables"][0]
    machine, run = report["machine"], report["run"]
    print(f"{machine['cpu']}; Linux {machine['kernel']}; `{run['command']}`, Sealane {run['version']}\n")
    print("| " + " | ".join(table["columns"] + ["1/4 to whole", "1/4 to fastest"]) + " |")
    print("|---" * (len(table["columns"]) + 2) + "|")
    quarter = table["columns"].index("partial, 1/4")
    for row in table["rows"]:
        shares = [f"{number(row[quarter]) / number(row[other]):.2f}" for other in (2, -1)]
        print("| " + " | ".join(cell.replace(NARROW, ",") for cell in row + shares) + " |")


main()
