"""Programs that run inside ranks; they know nothing of Snakemake."""
