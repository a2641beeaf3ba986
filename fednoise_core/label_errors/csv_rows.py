"""Readers of suspects.csv, sites.csv and other CSV files of a run. Every cell is checked."""

from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fednoise_core.io import ArtifactError, read_texts

Count = Annotated[int, Field(ge=0)]
Amount = Annotated[float, Field(ge=0)]


class CsvRow(BaseModel):
    """One row of a CSV. Columns without a field are ignored. where: file and line, for messages."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)

    where: str


R = TypeVar("R", bound=CsvRow)


class Site(CsvRow):
    """One row of sites.csv. wrong, wrong_low, wrong_high: estimated number of wrong labels and its 90 % interval.

    verdict_wrong, verdict_check: samples with that verdict. estimated: False if the number cannot be estimated.
    """

    client: Count
    site: str
    samples: Count
    wrong: Amount
    wrong_low: Amount
    wrong_high: Amount
    verdict_wrong: Count
    verdict_check: Count
    estimated: bool


def read_rows(path: Path, kind: type[R]) -> list[R]:
    """Read all rows of a CSV, in the order of the file.

    Args:
        path: Path of the file.
        kind: Model of a row.

    Raises:
        ArtifactError: A cell does not fit. The message names file, line and column of the first one.
    """
    rows = []
    for line, cells in enumerate(read_texts(path).to_dict("records"), 2):
        where = f"{path}, line {line}"
        try:
            rows.append(kind.model_validate({**cells, "where": where}))
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            column = first["loc"][0]
            problem = first["msg"].replace("Input should be", "expected")
            raise ArtifactError(f"{where}: {column}: {problem}, got {str(cells.get(column))[:40]!r}") from None
    return rows
