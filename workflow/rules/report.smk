"""From tables to the page."""

import shlex


rule report:
    """One self-contained HTML page; it takes the place of a partial one."""
    input:
        tables=rules.collect.output,
        grid=f"{RESULTS}/grid.json",
        templates=TEMPLATES,
        code=CAMPAIGN.report_code,
    output:
        f"{REPORT}/index.html",
    log:
        f"{RESULTS}/logs/report.log",
    localrule: True
    conda:
        "../envs/fabricbench.yaml"
    params:
        tables=folder_of_tables,
        templates=folder_of_templates,
        command=CAMPAIGN.command,
        partial=[f"{REPORT}/partial.html", f"{RESULTS}/partial"],
    message:
        "render {output}"
    shell:
        "python -m fabricbench render --grid {input.grid:q} --tables {params.tables:q} --templates {params.templates:q}"
        " --command {params.command:q} --page {output:q} > {log:q} 2>&1 && rm -rf {params.partial:q}"


# Never a rule's declared output: a page so made would count as up to date later. The page comes first, and not
# from tables: a full disk may be why cells failed.
PARTIAL_REPORT = (
    f"{CAMPAIGN.partial}python -m fabricbench render --grid {RESULTS}/grid.json --command {shlex.quote(CAMPAIGN.command)}"
    f" --templates {shlex.quote(str(Path(TEMPLATES[0]).parent))} --page {REPORT}/partial.html --partial"
    f" && echo 'Not all cells could be measured. What there is, and why: {REPORT}/partial.html'"
    f" && python -m fabricbench collect --grid {RESULTS}/grid.json --tables {RESULTS}/partial"
)
