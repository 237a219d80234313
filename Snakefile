"""fabricbench: does the network fabric matter for this work, on these machines, and by how much?

A contents page. The grid comes from config/config.yaml, or whole from another file:
    snakemake --profile profiles/local --configfile config/examples/host.yaml
"""

from snakemake.utils import min_version

min_version("9.27")

# Another --configfile replaces the default whole: merged, its grid would hold the default's fabrics as well.
if "fabrics" not in config:

    configfile: "config/config.yaml"


include: "workflow/rules/common.smk"
include: "workflow/rules/cells.smk"
include: "workflow/rules/collect.smk"
include: "workflow/rules/report.smk"


rule all:
    """Every cell's record, the tables, and the page."""
    default_target: True
    input:
        RECORDS,
        f"{REPORT}/index.html",
    message:
        f"the page: {REPORT}/index.html"


onerror:
    shell(PARTIAL_REPORT)
