"""Run the Python of the README outside of the clone, as with an installed library."""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        for code in re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL):
            subprocess.run([sys.executable, "-c", code], cwd=folder, check=True)
