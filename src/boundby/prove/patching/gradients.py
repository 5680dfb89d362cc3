"""Writes `with torch.no_grad():` around calls of models in evaluation mode."""

from __future__ import annotations

import libcst as cst

from boundby.prove.patching.process_settings import require_torch
from boundby.prove.patching.program import Program
from boundby.prove.patching.source_file import CannotWriteError
from boundby.prove.sites import ChosenFix


def write_no_grad(program: Program, fix: ChosenFix) -> None:
    models = fix.objects or program.sites.models
    trained = {site for model in models for site in model.trained}
    evaluations = dict.fromkeys(site for model in models for site in model.recorded_evaluations)
    if not evaluations:
        raise CannotWriteError("no call of a model in evaluation mode was seen in the user's files")
    for site in evaluations:
        if site in trained:
            raise CannotWriteError(f"{site.where} calls a model in training mode too")
        file = program.file_of(site)
        statement = file.statements_at(site.line)
        if not isinstance(statement, cst.SimpleStatementLine):
            raise CannotWriteError(f"the call of the model at {site.where} is in a condition")
        require_torch(file)
        file.wrap(statement, statement, "torch.no_grad()")
