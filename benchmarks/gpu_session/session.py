"""Runs the parts of a session within their limits and writes a JSON file after each.

FOLDER/NAME.json is the outcome of a part, NAME.numbers.json what its program measured, NAME.txt
what it printed. FOLDER/work holds shards and run folders and may be removed.
"""

import json
import math
import shutil
import sys
import textwrap
import time
from collections.abc import Container, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import child
from findings import Finding
from parts import Part
from summary import write_summary

FAILED, LEFT_OUT = 1, 3  # exit status
WIDTH = 80
POLL_SECONDS = 0.2
# A result holds for the same of these.
IDENTITY = ("dry_run", "device", "code", "versions")


class Session:
    """What one call does."""

    def __init__(
        self, folder: Path, machine: dict[str, Any], *, budget: float | None, limit: float | None
    ) -> None:
        """Begin; the clock starts here.

        Args:
            folder: of the results.
            machine: as machine.py describes it.
            budget: seconds for all parts together; None: no limit.
            limit: seconds for each part, instead of its own.
        """
        self.folder, self.machine, self._limit = folder, machine, limit
        self._budget = math.inf if budget is None else budget
        self._end = time.monotonic() + self._budget

    def run(self, parts: Sequence[Part], only: Container[str] | None = None) -> int:
        """Run those that have not passed yet, and return the exit status.

        Those that were never tried come first: one that fails again must not take their time.

        Args:
            parts: of the session, in their order.
            only: names of those to run; None: all.
        """
        outcomes = {part.name: self._earlier(part) for part in parts}
        passed = [n for n, found in outcomes.items() if found and found["status"] == "passed"]
        wanted = [part for part in parts if only is None or part.name in only]
        todo = [part for part in wanted if part.name not in passed]
        todo.sort(key=lambda part: outcomes[part.name] is not None)
        print_wrapped(f"{self.machine['device']}; results in {self.folder}")
        if passed:
            print_wrapped(f"passed before with this code on this machine: {', '.join(passed)}")
        for part in todo:
            outcomes[part.name] = self._run(part)
            write_summary(self.folder, self.machine, parts, outcomes)
        write_summary(self.folder, self.machine, parts, outcomes)
        return self._conclude({name: found for name, found in outcomes.items() if found})

    def _earlier(self, part: Part) -> dict[str, Any] | None:
        """Return the outcome of an earlier call, if it holds here."""
        file = self.folder / f"{part.name}.json"
        try:
            outcome: dict[str, Any] = json.loads(file.read_text())
            return outcome if outcome["identity"] == self._identity() else None
        except (OSError, ValueError, KeyError):
            return None

    def _identity(self) -> dict[str, Any]:
        return {name: self.machine[name] for name in IDENTITY}

    def _run(self, part: Part) -> dict[str, Any]:
        limit = self._limit or part.seconds
        reason = part.obstacle(self.machine)
        if reason is not None:
            return self._report(part, "skipped", reason)
        rest = self._end - time.monotonic()
        if rest < limit:
            # Not written: the next call begins with it.
            more = f"; give --minutes {math.ceil(limit / 60)}" if limit > self._budget else ""
            return self._report(
                part,
                "left out",
                f"may take {limit} s, {max(0, round(rest))} s were left{more}",
                write=False,
            )
        print_wrapped(f"{part.name}: {part.title} (at most {limit:.0f} s)", gap=True)
        started = time.monotonic()
        problem = self._execute(part, limit)
        findings, unreadable = self._findings(part)
        problem = problem or unreadable
        status = "failed" if problem or any(f.verdict == "failed" for f in findings) else "passed"
        return self._report(part, status, problem, findings, time.monotonic() - started)

    def _execute(self, part: Part, limit: float) -> str | None:
        """Run the program of a part; return why it did not end well."""
        log, work = self.folder / f"{part.name}.txt", self.folder / "work"
        written = (f"{part.name}.xml", f"{part.name}/profile.json")
        for old in (log, self.numbers_file(part), *(self.folder / name for name in written)):
            old.unlink(missing_ok=True)
        work.mkdir(exist_ok=True)
        places = {"numbers": self.numbers_file(part), "folder": self.folder, "work": work}
        words = part.small if self.machine["dry_run"] else part.words
        filled = [word.format(**places) for word in words]
        variables = {"PYTHONUNBUFFERED": "1"}
        process = child.start([sys.executable, *filled], log, variables=variables)
        deadline = time.monotonic() + limit
        try:
            while process.poll() is None and time.monotonic() < deadline:
                time.sleep(POLL_SECONDS)
            is_late = process.poll() is None
        finally:
            child.end(process)
        if is_late:
            return f"over its limit of {limit:.0f} s; what it measured before counts"
        if process.returncode:
            return f"status {process.returncode}: {child.last_line(log)}"
        return None

    def _findings(self, part: Part) -> tuple[list[Finding], str | None]:
        """Return what the program wrote, also one that was stopped, and why it is unreadable."""
        try:
            return part.findings(self.folder, self.machine), None
        except FileNotFoundError as error:
            return [], f"it has written no {Path(str(error.filename)).name}"
        except (ValueError, KeyError, IndexError, TypeError, ElementTree.ParseError) as error:
            return [], f"its numbers cannot be read: {type(error).__name__}: {error}"

    def _report(
        self,
        part: Part,
        status: str,
        reason: str | None,
        findings: list[Finding] | None = None,
        seconds: float = 0.0,
        *,
        write: bool = True,
    ) -> dict[str, Any]:
        """Print and write the outcome of a part."""
        outcome = {
            "part": part.name,
            "status": status,
            "reason": reason,
            "seconds": round(seconds, 1),
            "findings": [finding._asdict() for finding in findings or []],
            "identity": self._identity(),
            "machine": self.machine,
        }
        for finding in findings or []:
            limit = f" (limit: {finding.limit})" if finding.limit else ""
            print_wrapped(f"{finding.verdict}: {finding.measured}: {finding.result}{limit}")
        if status in ("skipped", "left out"):
            print_wrapped(f"{status}: {part.name}: {reason}", gap=True)
        else:
            print_wrapped(
                f"{part.name} {status} in {seconds:.0f} s{f': {reason}' if reason else ''}"
            )
        if write:
            file = self.folder / f"{part.name}.json"
            partial = file.with_suffix(".partial")
            partial.write_text(json.dumps(outcome, indent=1) + "\n")
            partial.replace(file)
        return outcome

    def numbers_file(self, part: Part) -> Path:
        """Return where the program of a part writes its numbers."""
        return self.folder / f"{part.name}.numbers.json"

    def _conclude(self, outcomes: dict[str, Any]) -> int:
        """Print the last lines and return the exit status."""
        by_status: dict[str, list[str]] = {}
        for name, outcome in outcomes.items():
            by_status.setdefault(outcome["status"], []).append(name)
        print()
        for status, names in by_status.items():
            print_wrapped(f"{status}: {', '.join(names)}")
        print(f"table: {self.folder / 'summary.md'}")
        if "left out" in by_status:
            print_wrapped("call it again for the parts that were left out")
        elif "failed" not in by_status:
            shutil.rmtree(self.folder / "work", ignore_errors=True)
        if "failed" in by_status:
            return FAILED
        return LEFT_OUT if "left out" in by_status else 0


def print_wrapped(text: str, *, gap: bool = False) -> None:
    """Print a paragraph, not wider than a terminal."""
    print("\n" * gap + textwrap.fill(text, WIDTH, subsequent_indent="    "), flush=True)
