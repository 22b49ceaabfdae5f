"""Helpers for the tests of subcommands."""

import json

import torch
from typer.testing import CliRunner

import likewise as lw
from likewise.cli import app


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def answer(*arguments):
    """The JSON object that a command prints."""
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output or result.exception
    assert result.stderr == ""
    assert result.stdout.count("\n") == 1
    return json.loads(result.stdout)


def refusal(code, *arguments):
    """What a command says on stderr when it ends with that code."""
    result = run(*arguments)
    assert result.exit_code == code, result.output
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    return result.stderr


def sequences(seed, count, channels=2, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    items = [torch.randn(5 + i, channels, generator=generator, dtype=dtype) for i in range(count)]
    return lw.Batch.from_list(items)
