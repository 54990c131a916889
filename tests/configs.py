"""Configs under test: every section, with these options and the defaults of all others."""

from typing import Any

from remuda.base.config import Config, load_config
from remuda.cli.rooms import SECTIONS


def make_config(**options: Any) -> Config:
    return load_config(SECTIONS, options, environ={})
