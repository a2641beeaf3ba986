"""Snakemake's plugins, for which every start of it looks through the folders of Python's path: found once."""

from snakemake.cli import get_argument_parser

get_argument_parser()
