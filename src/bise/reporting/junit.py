"""Verdicts as a JUnit file, which the usual services for builds show: a test case for each limit."""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree import ElementTree

from bise.base.output import visible
from bise.measure.limits import Verdict


def junit(verdicts: Sequence[Verdict], name: str) -> bytes:
    """XML of one suite: a limit that isn't kept is a failure, and one that nobody can decide counts as skipped."""
    outcomes = [verdict.outcome for verdict in verdicts]
    counts = {"tests": len(outcomes), "failures": outcomes.count("fails"), "skipped": outcomes.count("undecided")}
    suites = ElementTree.Element("testsuites")
    about = {key: str(value) for key, value in counts.items()} | {"errors": "0", "name": visible(name)}
    suite = ElementTree.SubElement(suites, "testsuite", about)
    for verdict in verdicts:
        least = "at most" if verdict.is_gap else "at least"
        case = f"{verdict.figure} {least} {verdict.limit:g}"
        made = ElementTree.SubElement(suite, "testcase", {"classname": "bise.audit", "name": case})
        said = visible(str(verdict))
        if verdict.outcome == "fails":
            ElementTree.SubElement(made, "failure", {"message": said, "type": "limit"})
        elif verdict.outcome == "undecided":
            ElementTree.SubElement(made, "skipped", {"message": said})
        else:
            ElementTree.SubElement(made, "system-out").text = said
    ElementTree.indent(suites)
    return ElementTree.tostring(suites, encoding="utf-8", xml_declaration=True) + b"\n"
