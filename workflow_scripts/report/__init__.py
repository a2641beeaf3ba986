"""Tables, figures and pages from run folders and artifacts. Never imports torch.

runs (read, checked) -> frames (tidy) -> tables -> layout -> render: CSV, Markdown, LaTeX
                                      -> result_figures
artifacts                             -> setting_figures         -> page: one HTML file of all of them
"""
