"""Writes the bill of materials that every wheel carries: the crates of Cargo.lock that the extension is made of.

    python scripts/bill.py

The bill is CycloneDX, in crates/burtorch-py/burtorch.cdx.json. It lists what any platform needs, and what only builds
need, not what only tests need. It names no folder and no date, so that it is the same wherever it is written.
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BILL = ROOT / "crates" / "burtorch-py" / "burtorch.cdx.json"


def checksums() -> dict[tuple[str, str], str]:
    """The SHA-256 of the archive of each crate."""
    found = re.findall(
        r'name = "(.*)"\nversion = "(.*)"\nsource = ".*"\nchecksum = "(.*)"', (ROOT / "Cargo.lock").read_text()
    )
    return {(name, version): checksum for name, version, checksum in found}


def bill() -> str:
    """The text of the bill."""
    command = ["cargo", "metadata", "--format-version", "1", "--locked"]
    facts = json.loads(subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout)
    packages = {package["id"]: package for package in facts["packages"]}
    needs = {
        node["id"]: [dep["pkg"] for dep in node["deps"] if any(kind["kind"] != "dev" for kind in dep["dep_kinds"])]
        for node in facts["resolve"]["nodes"]
    }
    (root,) = (key for key, package in packages.items() if package["name"] == "burtorch-py")
    reached, waiting = set(), [root]
    while waiting:
        if (key := waiting.pop()) not in reached:
            reached.add(key)
            waiting += needs[key]
    known = checksums()

    def reference(key: str) -> str:
        return f"pkg:cargo/{packages[key]['name']}@{packages[key]['version']}"

    def component(key: str) -> dict[str, object]:
        package = packages[key]
        entry = {"type": "library", "bom-ref": reference(key), "name": package["name"], "version": package["version"]}
        entry |= {"licenses": [{"expression": package["license"].replace("/", " OR ")}]}
        if checksum := known.get((package["name"], package["version"])):
            entry |= {"purl": reference(key), "hashes": [{"alg": "SHA-256", "content": checksum}]}
        return entry

    ordered = sorted(reached, key=reference)
    crates = [component(key) for key in ordered if key != root]
    links = [{"ref": reference(key), "dependsOn": sorted({reference(need) for need in needs[key]})} for key in ordered]
    head = {"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1, "metadata": {"component": component(root)}}
    # A line for each crate, so that a changed one is a changed line.
    parts = [json.dumps(head)[:-1]]
    for name, rows in (("components", crates), ("dependencies", links)):
        lines = ",\n".join(json.dumps(row) for row in rows)
        parts.append(f'"{name}": [\n{lines}\n]')
    return ",\n".join(parts) + "}\n"


if __name__ == "__main__":
    BILL.write_text(bill(), "utf-8")
