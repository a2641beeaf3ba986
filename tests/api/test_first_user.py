"""Problems that the first user reported and no other test covers."""

from pathlib import Path

import numpy as np
import pytest

import fednoise_core as fn
from workflow_scripts.steps import setting_page

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("clean_known", [True, False])
def test_no_picture_of_flips_where_truth_is_unknown(tmp_path: Path, clean_known: bool) -> None:
    y = np.arange(60) % 3
    x = np.random.default_rng(0).integers(0, 255, (60, 8, 8), dtype=np.uint8)
    np.savez(tmp_path / "mine.npz", x_train=x, y_train=y, client=np.arange(60) % 2, x_test=x[:6], y_test=y[:6])
    data = fn.dataset({"source": "npz", "path": str(tmp_path / "mine.npz"), "clean_known": clean_known})
    data.save(tmp_path / "arrays.npz")
    noise = {"kind": "symmetric", "rate": 0.3} if clean_known else {"kind": "given"}
    fn.inject(data, noise, 0).save(tmp_path / "labels.npz")
    fn.partition_of(data, {"kind": "natural"}, 0).save(tmp_path / "partition.npz")
    files = [f"--{name}={tmp_path / name}.npz" for name in ("arrays", "labels", "partition")]
    assert setting_page.main([*files, "--out", str(tmp_path / "page.html")]) == 0
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "Who holds which class" in page
    assert ("How labels were flipped" in page) == clean_known
