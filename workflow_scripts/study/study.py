"""One study: its planned runs, and the tables and figures that show them."""

from typing import Any

from fednoise_core.io import Problems
from fednoise_core.settings.declare import did_you_mean
from workflow_scripts.config.project import Project
from workflow_scripts.study import outputs, paper_settings, paper_tables
from workflow_scripts.study.grid import SELECTORS, StudyGrid


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
        """Check that a table or figure that the user requests by its name can show something.

        Args:
            part: Its id.

        Raises:
            SpecError: All of its data sets are missing, or it shows nothing at this scale.
        """
        key = "tables" if part in self.full.get("tables", {}) else "figures"
        checked = getattr(self, key)
        outputs = {**self.full.get(key, {}), **checked}
        if part not in outputs:
            names = [*self.tables, *self.figures]
            raise self.place.error(f"no table or figure is named {part!r}{did_you_mean(part, names)}")
        if absent := paper_tables.missing_datasets(self, outputs[part]):
            raise (self.place / key / part).error(
                f"shows only {', '.join(absent)}, which is missing. {self.missing_data_message()}"
            )
        if part not in checked:
            raise (self.place / key / part).error(f"has no run at scale {self.project.scale}")

    def page_metadata(self) -> dict[str, Any]:
        """Describe the study for its page: every id that its runs use, with its settings."""
        used = {field: dict.fromkeys(getattr(run, field) for run in self.runs) for field in SELECTORS}
        return {
            "id": self.name,
            "title": self.data["title"] + (f" ({', '.join(self.project.set)})" if self.project.set else ""),
            "text": self.data.get("text", ""),
            "scale": self.project.scale,
            "datasets": {name: self.project.datasets[name] for name in used["dataset"]},
            "noises": {name: self.find_definition("noises", name)[1] for name in used["noise"]},
            "partitions": {name: self.find_definition("partitions", name)[1] for name in used["partition"]},
            "methods": {name: self.find_definition("methods", name)[1] for name in used["method"]},
            "train": self.data["train"],
            **({"set": self.project.set} if self.project.set else {}),
            **({"blocks": blocks} if (blocks := self._own_training()) else {}),
            **({"tuned": self._tuned_settings()} if "tuned" in self.data else {}),
            "tables": self.tables,
            "figures": {name: {key: spec[key] for key in spec if key != "of"} for name, spec in self.figures.items()},
            "left_out": paper_tables.skipped_figures(self, self.figures),
            **({"paper": paper_settings.settings_provenance(self)} if self.name in self.project.paper_names else {}),
        }

    def _own_training(self) -> list[dict[str, Any]]:
        """List the grid's blocks that change training settings, with the values that their runs have."""
        blocks = []
        for number, block in enumerate(self.data["grid"]):
            if block.get("train"):
                settings = self.train_settings(number)
                blocks.append({**block, "train": {key: settings[key] for key in block["train"]}})
        return blocks

    def _tuned_settings(self) -> list[tuple[str, str, Any]]:
        """List the settings that `tuned` or an entry sets in each block of the grid: (data set, method, settings)."""
        blocks = [block for block in self.data["grid"] if "settings" in block]
        rows = [(block, id_, block["settings"].get(id_)) for block in blocks for id_ in block["methods"]]
        used = self.dataset_substitutes
        return [(used.get(block["datasets"][0], block["datasets"][0]), id_, spec) for block, id_, spec in rows if spec]
