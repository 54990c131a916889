"""What the doctor asks for the archive: room for crawls, and what they may reach."""

from collections.abc import Sequence

from remuda.archive.pipelines import PipelineMachine
from remuda.archive.room import ArchiveConfig, archive_directory
from remuda.base.config import Config
from remuda.fleet.room import Check, CheckState, Question, Topic


def look_at_archive(config: Config) -> list[Check]:
    """Whether this machine can run jobs."""
    directory, options = archive_directory(config), config[ArchiveConfig]
    # What is not made yet will be made below this.
    there = next(path for path in (directory, *directory.parents) if path.exists())
    lack = PipelineMachine.look(there).find_lack(
        disk_megabytes=options.archive_min_free_megabytes,
        memory_megabytes=options.archive_min_memory_megabytes,
    )
    checks = [judge_lack(str(directory), lack)]
    if options.allow_private_addresses:
        checks.append(
            Check(
                "archive addresses",
                CheckState.WARN,
                "crawls may reach private addresses",
                "everybody who may start a job can read what is served in this network",
            )
        )
    return checks


def judge_lack(directory: str, lack: str) -> Check:
    """Whether there is room for a crawl."""
    if lack:
        return Check("archive", CheckState.WARN, lack, "jobs wait until there is room")
    return Check("archive", CheckState.OK, f"jobs run in {directory}")


QUESTIONS: Sequence[Question] = (Question(Topic.HERD, look_at_archive),)
