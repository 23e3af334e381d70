"""Writes the model folder of a tiny random decoder: `write_tiny_model.py FOLDER`."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT))

from tests.tiny_decoder import write_genai_folder  # noqa: E402 - found on the path above

write_genai_folder(sys.argv[1])
