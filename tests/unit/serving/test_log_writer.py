"""Whoever logs never waits for whoever reads."""

from __future__ import annotations

import io
import logging
import threading
import time

from constraintd.serving.log_writer import LogWriter


class SlowReader(io.StringIO):
    """Takes its first line when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.reached = threading.Event()
        self.reads = threading.Event()

    def write(self, text: str) -> int:
        self.reached.set()
        assert self.reads.wait(10)
        return super().write(text)


class Gone(io.StringIO):
    def write(self, text: str) -> int:
        raise BrokenPipeError


def record(text: str) -> logging.LogRecord:
    return logging.LogRecord("test", logging.INFO, "", 0, text, None, None)


def test_lines_that_nobody_reads_are_kept_up_to_a_number_and_then_counted() -> None:
    reader = SlowReader()
    writer = LogWriter(reader, max_lines=3)
    writer.emit(record("first"))
    assert reader.reached.wait(10)
    began = time.monotonic()
    for number in range(10):
        writer.emit(record(f"line {number}"))
    assert time.monotonic() - began < 1
    reader.reads.set()
    writer.close()
    assert reader.getvalue().splitlines() == [
        "first",
        "line 0",
        "line 1",
        "line 2",
        "7 log lines were dropped, since nobody read them in time",
    ]


def test_closing_waits_for_a_reader_that_is_stuck_for_a_moment_only() -> None:
    reader = SlowReader()
    writer = LogWriter(reader)
    writer.emit(record("first"))
    began = time.monotonic()
    writer.close()
    assert time.monotonic() - began < 3
    reader.reads.set()


def test_a_reader_that_is_gone_harms_nobody() -> None:
    writer = LogWriter(Gone())
    writer.emit(record("first"))
    writer.emit(record("second"))
    writer.close()
    writer.close()
