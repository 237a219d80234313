"""From records to tables."""


rule collect:
    """One row per cell and one per sample. The grid is an input, so that a cell left out renews the tables."""
    input:
        grid=f"{RESULTS}/grid.json",
        records=RECORDS,
        code=CAMPAIGN.analysis_code,
    output:
        expand("{results}/tables/{table}", results=RESULTS, table=CAMPAIGN.tables),
    log:
        f"{RESULTS}/logs/collect.log",
    localrule: True  # seconds of work, which aren't worth a wait in a queue
    conda:
        "../envs/fabricbench.yaml"
    params:
        tables=folder_of_outputs,
    message:
        "gather all records into {params.tables}"
    shell:
        "python -m fabricbench collect --grid {input.grid:q} --tables {params.tables:q} > {log:q} 2>&1"
