"""What the doctor asks for the grid: browsers with their drivers, ffmpeg, and what browsers are kept from.

The `judge_*` functions decide, purely; the others look.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path

from remuda.base.config import Config
from remuda.base.confinement import Protection, protection_of
from remuda.base.errors import Misconfigured
from remuda.base.filters import can_close
from remuda.base.programs import Program, probe
from remuda.base.reach import is_open_to_all, open_path
from remuda.fleet.room import Check, CheckState, Question, Topic
from remuda.grid.browsers import Survey, survey_browsers


def look_at_browsers(config: Config) -> list[Check]:
    """What WebDriver sessions can have, and what stands in the way of more."""
    return judge_browsers(survey_browsers(config))


def judge_browsers(survey: Survey) -> list[Check]:
    """A browser and a driver each; an obstacle is fatal only when no browser is left."""
    offered = []
    for browser in survey.browsers:
        offered += [
            Check("browser", CheckState.OK, f"{browser.name} {browser.version} ({browser.binary})"),
            Check("driver", CheckState.OK, f"{browser.name} {browser.driver_version} ({browser.driver})"),
        ]
    severity = CheckState.WARN if survey.browsers else CheckState.FAIL
    obstacles = [
        Check("browser", severity, f"{finding.subject}: {finding.problem}", finding.advice)
        for finding in survey.findings
    ]
    return offered + obstacles


def look_at_ffmpeg(_config: Config) -> list[Check]:
    """Whether sessions can be recorded."""
    path = shutil.which("ffmpeg")
    # ffmpeg knows no --version.
    return [judge_ffmpeg(probe([Path(path)], flag="-version")[0] if path else None)]


def judge_ffmpeg(ffmpeg: Program | None) -> Check:
    """ffmpeg is there, or what one cannot do without it."""
    advice = "needed for recording: apt-get install ffmpeg"
    if ffmpeg is None:
        return Check("ffmpeg", CheckState.WARN, "not found", advice)
    if ffmpeg.problem:
        return Check("ffmpeg", CheckState.WARN, f"{ffmpeg.path}: {ffmpeg.problem}", advice)
    return Check("ffmpeg", CheckState.OK, f"{ffmpeg.version} ({ffmpeg.path})")


def look_at_protection(config: Config) -> list[Check]:
    """What keeps browsers from the rest of the machine."""
    try:
        protection = protection_of(config)
    except Misconfigured as error:
        return [Check("protection", CheckState.FAIL, error.message)]
    browsers = survey_browsers(config).browsers if protection.uids else ()
    closed = [browser.binary for browser in browsers if not is_open_to_all(open_path(browser.binary))]
    unusable = [f"{path} cannot be run by browsers' users" for path in closed]
    return [
        judge_protection(protection),
        judge_reach(can_close=can_close()),
        *(Check("protection", CheckState.WARN, found, "move it to /opt") for found in unusable),
    ]


def judge_protection(protection: Protection) -> Check:
    """Browsers have nothing worth stealing, or what would keep them from it."""
    if protection.is_root and not protection.uids:
        advice = "browsers run as root: leave browser_uids at its default, or run Remuda as another user"
        return Check("protection", CheckState.WARN, str(protection), advice)
    if protection.shares_display:
        advice = (
            "browsers see all that your display shows, type into it and can connect to Unix sockets: turn "
            "share_display off, unless every client may do that"
        )
        return Check("protection", CheckState.WARN, str(protection), advice)
    if not protection.has_fence:
        cure = "user namespaces for ordinary users" if protection.landlock else "Linux 5.13 with Landlock"
        advice = f"only the list of allowed options protects this machine; {cure} would protect it better"
        return Check("protection", CheckState.WARN, str(protection), advice)
    if not protection.has_closed_sockets:
        advice = "allow filters of system calls (seccomp): a client can reach Docker's socket, for instance"
        return Check("protection", CheckState.WARN, str(protection), advice)
    if not protection.has_sandbox:
        advice = "allow user namespaces: in Docker with a seccomp profile, elsewhere with sysctl"
        return Check("protection", CheckState.WARN, str(protection), advice)
    return Check("protection", CheckState.OK, str(protection))


def judge_reach(*, can_close: bool) -> Check:
    """Pages and clients do not reach the drivers and browsers of others, or which of them they do."""
    if can_close:
        return Check("driver ports", CheckState.OK, "reachable only by their own nodes")
    advice = (
        "allow pidfd_getfd: in Docker with --cap-add SYS_PTRACE, elsewhere with kernel.yama.ptrace_scope "
        "below 2; and leave net.ipv4.ip_default_ttl below 255"
    )
    problem = (
        "pages on localhost can reach ChromeDriver's WebSocket, and clients each other's drivers and browsers"
    )
    return Check("driver ports", CheckState.WARN, problem, advice)


QUESTIONS: Sequence[Question] = (
    Question(Topic.BROWSERS, look_at_browsers),
    Question(Topic.RECORDING, look_at_ffmpeg),
    Question(Topic.PROTECTION, look_at_protection),
)
