"""Binds functions of src/fabricbench to wildcards, and nothing else."""

import os
import sys
from pathlib import Path

from snakemake.exceptions import WorkflowError
from snakemake.logging import logger

CHECKOUT = Path(workflow.basedir)
sys.path.insert(0, str(CHECKOUT / "src"))  # this checkout's code, whatever is installed

from fabricbench import workflow as campaign_of

campaign_of.use_this_python(CHECKOUT)

try:
    if workflow.is_main_process:
        CAMPAIGN = campaign_of.prepare(
            config,
            [os.path.relpath(file) for file in workflow.configfiles],
            Path("results"),
            campaign_of.this_call(sys.argv[1:]),
            logger.warning,
        )
    else:
        CAMPAIGN = campaign_of.prepare_job(config, Path("results"), sys.argv)
except campaign_of.UserError as error:
    raise WorkflowError(str(error)) from None

RESULTS = f"results/{CAMPAIGN.name}"
REPORT = f"reports/{CAMPAIGN.name}"
RECORDS = [f"{RESULTS}/{cell}.json" for cell in CAMPAIGN.wanted]
TEMPLATES = campaign_of.files_of(CHECKOUT / "reports" / "templates")


def canonical_cell(wildcards):
    return CAMPAIGN.cell(wildcards.cell).cell.canonical()


def priority_of(wildcards):
    return CAMPAIGN.priorities.get(wildcards.cell, 0)


def folder_of_outputs(wildcards, output):
    return str(Path(output[0]).parent)


def folder_of_tables(wildcards, input):
    return str(Path(input.tables[0]).parent)


def folder_of_templates(wildcards, input):
    return str(Path(input.templates[0]).parent)
