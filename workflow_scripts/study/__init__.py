"""One study file becomes planned runs, tables, figures, and what Snakemake makes of them."""
