"""The browsers of this machine that WebDriver can drive: how each family works (`families`), which of them
are here (`survey`). Programs are found and asked for their version by `base/programs.py`."""

from remuda.base.programs import Program, parse_version, probe, search
from remuda.grid.browsers.families import FAMILIES, Browser, Family
from remuda.grid.browsers.survey import Finding, Survey, find_browsers, match, survey_browsers

__all__ = [
    "FAMILIES",
    "Browser",
    "Family",
    "Finding",
    "Program",
    "Survey",
    "find_browsers",
    "match",
    "parse_version",
    "probe",
    "search",
    "survey_browsers",
]
