"""Planning: from a study's file to runs, tables, figures, and the targets of Snakemake."""
