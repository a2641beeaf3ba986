"""One study: its planned runs, and the tables and figures that show them."""

from typing import Any

from fednoise_core.io import Problems
from workflow_scripts.config.project import Project
from workflow_scripts.study import outputs, paper_settings, paper_tables
from workflow_scripts.study.grid import StudyGrid


class Study(StudyGrid):
    """One study at the project's scale, checked as a whole when it is made."""

    def __init__(self, project: Project, name: str) -> None:
        super().__init__(project, name)
        problems, tables = Problems(), None
        with problems.catch():
            paper_settings.read_sources(self)
        with problems.catch():
            tables = outputs.check_outputs(self, "tables")
            paper_tables.check_claims(self, tables)
        with problems.catch():
            self.figures = outputs.check_outputs(self, "figures", tables)
        problems.raise_all()
        self.tables = tables or {}

    def check_present(self, part: str) -> None:
        """Check that a table or figure that is asked for by its own name can show something.

        Args:
            part: Its id.

        Raises:
            SpecError: It shows no data set that is here, or nothing at this scale.
        """
        paper_tables.check_present(self, {"tables": self.tables, "figures": self.figures}, part)

    def page_metadata(self) -> dict[str, Any]:
        """Describe the study for its page: every id that its runs use, with its settings."""
        return outputs.page_metadata(self, self.tables, self.figures)
