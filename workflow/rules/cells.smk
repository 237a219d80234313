"""One job per cell of the grid; the digest in its record's path says which measurement it is."""


rule cell:
    """Measure one cell. On failure the reason stands beside the record's place, and the job fails."""
    output:
        f"{RESULTS}/{{cell}}.json",
    log:
        f"{RESULTS}/logs/{{cell}}.log",
    wildcard_constraints:
        cell=r"[^/]+/[^/]+-[0-9a-f]{8}",
    priority: priority_of
    conda:
        "../envs/fabricbench.yaml"
    envmodules:
        *CAMPAIGN.cluster.modules,
    resources:
        **CAMPAIGN.resources,
    params:
        cell=canonical_cell,
    message:
        "{wildcards.cell}"
    shell:
        "exec python -m fabricbench run-cell --cell {params.cell:q} --record {output:q} --timeout {resources.timeout_s}"
        " --accept-failures {resources.accept_failures} --neighbours {resources.neighbours:q}"
        " --bootstrap={resources.bootstrap:q} --nodelist={resources.nodelist:q} --exclude={resources.exclude:q}"
        " > {log:q} 2>&1"
