"""The copy between device addresses, run on the one device that every machine has."""

from __future__ import annotations

import numpy as np
from constraintd_runner.model.kv_buffer import identity_session


def test_an_identity_graph_copies_between_addresses() -> None:
    memory = np.arange(24, dtype=np.float32).reshape(2, 3, 2, 2)  # two rows
    session = identity_session("cpu", np.float32)
    binding = session.io_binding()
    binding.bind_input("x", "cpu", 0, np.float32, (3, 2, 2), memory[1].ctypes.data)
    binding.bind_output("y", "cpu", 0, np.float32, (3, 2, 2), memory[0].ctypes.data)
    session.run_with_iobinding(binding)
    assert memory[0].reshape(-1).tolist() == [12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23]
