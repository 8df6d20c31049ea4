"""Findings: the one record of pre-flight, clinic, probes, alarms and a reward held against labels, and its files."""

import xml.etree.ElementTree as ET
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from workbench.files import encode

Level = Literal["ok", "check", "stop"]
LEVELS: tuple[Level, ...] = ("ok", "check", "stop")


@dataclass(frozen=True)
class Finding:
    """One line: ``value`` is the measured number as text, ``meaning`` what it says, ``advice`` what to do ("" if fine).

    ``level``: ``ok``; ``check``, worth a look; ``stop``, nothing would be learnt: every advantage is 0, or a reward
    function fails. ``where`` is what to look at: curves of a run, a reward, an edit. ``since`` is the training step
    from which it has been so, None where that is not known.
    """

    name: str
    level: Level
    value: str
    meaning: str
    advice: str = ""
    where: tuple[str, ...] = ()
    since: int | None = None

    @property
    def text(self) -> str:
        return f"{self.level}: {self.meaning}" + (f"; {self.advice}" if self.advice else "")


def worst_level(findings: Iterable[Finding]) -> Level:
    return max((finding.level for finding in findings), key=LEVELS.index, default="ok")


def write_report(path: Path | None, data: Any, suites: Mapping[str, Sequence[Finding]]) -> None:
    """Write a report where a file is given: as JUnit's XML (findings by what they are about) if its name ends so, else
    ``data`` as JSON.
    """
    if path is None:
        return
    if path.suffix != ".xml":
        path.write_bytes(encode(data))
        return
    root = ET.Element("testsuites")
    for name, findings in suites.items():
        failures = sum(finding.level != "ok" for finding in findings)
        suite = ET.SubElement(root, "testsuite", name=name, tests=f"{len(findings)}", failures=f"{failures}")
        for finding in findings:
            case = ET.SubElement(suite, "testcase", classname=name, name=finding.name)
            if finding.level != "ok":
                text = "; ".join(filter(None, (finding.meaning, finding.advice)))
                ET.SubElement(case, "failure", message=text, type=finding.level)
    path.write_text(ET.tostring(root, encoding="unicode", xml_declaration=True), encoding="utf-8")
