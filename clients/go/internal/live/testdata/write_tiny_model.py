"""Writes the folder of a tiny random decoder, for this client's tests: `python write_tiny_model.py FOLDER`."""

import sys

from tests.tiny_decoder import write_genai_folder

write_genai_folder(sys.argv[1])
