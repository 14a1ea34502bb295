"""``burtorch info``: information for bug reports."""

from __future__ import annotations

import argparse

import burtorch


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "info",
        help="print the version, the CPU level in use, the dtypes",
        description="Print information for bug reports: version, CPU level in use, dtypes, Python, platform.",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    import platform

    facts = {
        "burtorch": burtorch.__version__,
        "cpu_level": burtorch.system.cpu_level(),
        "available_cpu_levels": list(burtorch.system.available_cpu_levels()),
        "dtypes": list(burtorch.system.DTYPES),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "platform": platform.platform(),
    }
    if args.json:
        import json

        print(json.dumps(facts, indent=2))
        return 0
    for name, fact in facts.items():
        text = ", ".join(fact) if isinstance(fact, list) else fact
        print(f"{name.replace('_', ' '):<22}{text}")
    return 0
