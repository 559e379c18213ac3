"""Asks a public database for known holes in what is locked: `make audit`.

It owns what is said where the database can't be reached, so that silence is never taken for a clean result.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
LOCKS: Final = (
    ROOT / "requirements" / "runtime.lock",
    ROOT / "requirements" / "dev.lock",
    ROOT / "deploy" / "embedded" / "requirements.lock",
)


def audit(pip_audit: str, lock: Path) -> int:
    """0 where nothing is known against this lock, 1 where something is, 2 where not all of it could be asked for.

    The tool itself counts a package that the database does not have as one without holes; a mirror may have none.
    """
    command = [
        pip_audit,
        "--require-hashes",
        "--disable-pip",
        "--progress-spinner",
        "off",
        "-f",
        "json",
        "-r",
        str(lock),
    ]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - what make installed
    name = lock.relative_to(ROOT)
    try:
        packages = json.loads(ran.stdout)["dependencies"]
    except (ValueError, LookupError):
        print(f"{name}: NOT CHECKED, the database of holes can't be reached: {_last(ran.stderr)}", file=sys.stderr)
        return 2
    holes = [f"{each['name']} {each['version']}: {hole['id']}" for each in packages for hole in each.get("vulns", ())]
    skipped = [each["name"] for each in packages if "skip_reason" in each]
    for hole in holes:
        print(f"{name}: {hole}", file=sys.stderr)
    if skipped:
        print(
            f"{name}: NOT CHECKED, the database that is reached from here knows nothing of {len(skipped)} of "
            f"{len(packages)} packages ({', '.join(skipped[:3])}, …)",
            file=sys.stderr,
        )
    if not holes and not skipped:
        print(f"{name}: no known holes in {len(packages)} packages")
    return 1 if holes else 2 if skipped else 0


def _last(text: str) -> str:
    return (text.strip().splitlines() or [""])[-1][:200]


def main() -> int:
    """Audit every lock; the worst result counts."""
    results = [audit(sys.argv[1], lock) for lock in LOCKS]
    return 1 if 1 in results else max(results)


if __name__ == "__main__":
    sys.exit(main())
