"""Statistics of the n-grams that a session's tokens form, within a window of passes (see NGramPenalty in the proto).

A pass has a position, counted from 0; it records the n-grams that end in the newest token, and what was recorded
`window` passes ago or more is gone. The window's content is a function of the tokens alone. The table's order and its
weights' last bits also depend on what has left the window, so they are written down with it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import islice

from constraintd.encoding import Reader, Writer
from constraintd.sampler.adjustments import Adjustments
from constraintd.sampler.ngram_rule import NGramRule
from constraintd.sampler.ngram_table import NGramTable
from constraintd.sampler.ngrams import NGram, NGramCount, NGramStats


class NGramStatistics:
    """One history's statistics. Mutated only by `append`, `record` and `prompt`; `fork` gives an independent copy."""

    __slots__ = ("_passes", "_rule", "_slots", "_table", "_tail", "step")

    def __init__(self, rule: NGramRule) -> None:
        self._rule = rule
        self._tail: NGram = ()  # the history's last max_size tokens
        self._passes: deque[tuple[NGram, ...]] = deque()  # what each pass of the window recorded, oldest first
        # Column in the table, or where an n-gram that came once has none: ~position, which is negative.
        self._slots: dict[NGram, int] = {}
        self._table = NGramTable(rule.targets.fields)
        self.step = 0

    def append(self, token: int) -> None:
        """One more token of the history."""
        self._tail = (*self._tail, token)[-self._rule.penalty.max_size :]

    def record(self) -> None:
        """A pass: evicts what leaves the window, and records the n-grams that end in the newest token."""
        rule = self._rule
        penalty = rule.penalty
        if len(self._passes) == penalty.window:
            self._evict(self._passes.popleft(), self.step - penalty.window)
        tail = self._tail
        end = len(tail)
        ignored = rule.ignored
        self._count(
            tuple(
                [
                    ngram
                    for size in range(penalty.min_size, min(penalty.max_size, end) + 1)
                    if (ngram := tail[end - size :]) not in ignored
                ]
            )
        )

    def prompt(self, tokens: Sequence[int]) -> None:
        """Appends and records each token in turn."""
        penalty = self._rule.penalty
        skipped = len(tokens) - penalty.window
        if skipped > 0:
            # Of these and of all before them nothing would be left.
            self._tail = (*self._tail, *tokens[max(0, skipped - penalty.max_size) : skipped])[-penalty.max_size :]
            self._passes.clear()
            self._slots.clear()
            self._table = NGramTable(self._rule.targets.fields)
            self.step += skipped
            tokens = tokens[skipped:]
        for token in tokens:
            self.append(token)
            self.record()

    def adjustments(self) -> Adjustments | None:
        """What the penalty comes to behind the history, as of the last pass."""
        return self._rule.adjustments(self._table, self.step - 1, self._tail)

    def stats(self) -> NGramStats:
        """All of it, for looking at."""
        first = self.step - len(self._passes)
        positions: dict[NGram, list[int]] = {}
        for position, ngrams in enumerate(self._passes, first):
            for ngram in ngrams:
                positions.setdefault(ngram, []).append(position)
        powers = self._rule.powers
        now = self.step - 1
        entries = {}
        for ngram, at in positions.items():
            slot = self._slots[ngram]
            weight = 1.0 if slot < 0 else self._table.weights.item(slot)
            entries[ngram] = NGramCount(tuple(at), weight * powers.item(now - at[-1]))
        return NGramStats(self.step, entries)

    def reconfigured(self, rule: NGramRule) -> NGramStatistics:
        """What the other rule makes of the recordings: those of other sizes, past its window or ignored are gone."""
        if rule.same_as(self._rule):
            return self.fork()
        twin = NGramStatistics(rule)
        penalty = rule.penalty
        twin._tail = self._tail[-penalty.max_size :]
        dropped = max(0, len(self._passes) - penalty.window)
        twin.step = self.step - len(self._passes) + dropped
        for ngrams in islice(self._passes, dropped, None):
            twin._count(
                tuple(
                    ngram
                    for ngram in ngrams
                    if penalty.min_size <= len(ngram) <= penalty.max_size and ngram not in rule.ignored
                )
            )
        return twin

    def fork(self) -> NGramStatistics:
        """The same statistics, to go on from independently."""
        twin = object.__new__(NGramStatistics)
        twin._rule = self._rule
        twin._tail = self._tail
        twin._passes = self._passes.copy()
        twin._slots = self._slots.copy()
        twin._table = self._table.fork()
        twin.step = self.step
        return twin

    def write(self, writer: Writer) -> None:
        """Step, passes, tail, table."""
        writer.unsigned(self.step)
        writer.unsigned(len(self._passes))
        stream: NGram = ()
        newest: dict[NGram, int] = {}
        for age, ngrams in enumerate(self._passes):
            writer.unsigned(sum(1 << len(ngram) - 1 for ngram in ngrams))
            stream = _write_behind(writer, stream, ngrams[-1] if ngrams else ())
            newest.update(dict.fromkeys(ngrams, age))
        writer.unsigned(len(self._tail))
        _write_behind(writer, stream, self._tail)
        table = self._table
        writer.unsigned(table.size)
        for ngram in table.ngrams:
            writer.unsigned(newest[ngram])
            writer.unsigned(len(ngram))
        writer.floats(table.weights[: table.size].tolist())

    @classmethod
    def read(cls, reader: Reader, rule: NGramRule) -> NGramStatistics:
        """What `write` wrote under the same rule. Raises InvalidEnvelope."""
        self = cls(rule)
        step = reader.unsigned(below=1 << 63)
        held = reader.unsigned(below=min(step, rule.penalty.window) + 1)
        self.step = step - held
        stream: NGram = ()
        for _ in range(held):
            stream, ngrams = _read_pass(reader, rule, stream)
            self._count(ngrams)
        size = reader.unsigned(below=rule.penalty.max_size + 1)
        stream = _read_behind(reader, rule, stream, size)
        self._tail = stream[len(stream) - size :]
        self._read_table(reader)
        return self

    def _read_table(self, reader: Reader) -> None:
        """Puts the table that the passes gave into the order, and gives it the weights, that were written down."""
        table = self._table
        if reader.count() != table.size:
            raise reader.error("the table has another size than its passes give")
        ordered = NGramTable(self._rule.targets.fields)
        first = self.step - len(self._passes)
        for _ in range(table.size):
            age = reader.unsigned(below=len(self._passes))
            newest = first + age
            size = reader.unsigned()
            ngram = next((ngram for ngram in self._passes[age] if len(ngram) == size), ())
            slot = self._slots.get(ngram, -1)
            if slot < 0 or newest != table.newest.item(slot):
                raise reader.error("the table names an n-gram that has no column")
            cells = table.cells[:, slot].tolist()
            weight = table.weights.item(slot)
            ordered.add(ngram, cells, count=table.counts[slot], newest=newest, weight=weight)
        if len(set(ordered.ngrams)) != table.size:
            raise reader.error("the table names an n-gram twice")
        weights = reader.floats()
        if len(weights) != table.size:
            raise reader.error("the table has another number of weights than of n-grams")
        for at, weight in enumerate(weights):
            exact = ordered.weights.item(at)
            # Evictions leave rounding behind, at its worst of 65,536 recordings that came and went on one that stays.
            if not (weight >= 1.0 and abs(weight - exact) <= _ROUNDING * exact):
                raise reader.error(f"weight {at} is not that of its recordings")
            ordered.weights[at] = weight
        self._table = ordered
        self._slots.update((ngram, at) for at, ngram in enumerate(ordered.ngrams))

    def _count(self, ngrams: tuple[NGram, ...]) -> None:
        """The next pass, with what it records."""
        rule = self._rule
        slots = self._slots
        table = self._table
        position = self.step
        for ngram in ngrams:
            slot = slots.get(ngram)
            if slot is None:
                slots[ngram] = ~position if rule.tabled_from > 1 else self._tabled(ngram, 1, 1.0)
            elif slot < 0:
                slots[ngram] = self._tabled(ngram, 2, 1.0 + rule.powers.item(position - ~slot))
            else:
                age = position - table.newest.item(slot)
                table.weights[slot] = 1.0 + table.weights.item(slot) * rule.powers.item(age)
                table.newest[slot] = position
                table.counts[slot] += 1
        self._passes.append(ngrams)
        self.step = position + 1

    def _tabled(self, ngram: NGram, count: int, weight: float) -> int:
        cells = self._rule.targets.cells(ngram)
        return self._table.add(ngram, cells, count=count, newest=self.step, weight=weight)

    def _evict(self, ngrams: tuple[NGram, ...], position: int) -> None:
        slots = self._slots
        table = self._table
        for ngram in ngrams:
            slot = slots[ngram]
            if slot < 0:
                del slots[ngram]
                continue
            count = table.counts[slot] - 1
            if count >= self._rule.tabled_from:
                table.counts[slot] = count
                gone = self._rule.powers.item(table.newest.item(slot) - position)
                # The newest recording alone weighs 1; rounding may not take that.
                table.weights[slot] = 1.0 if count == 1 else max(1.0, table.weights.item(slot) - gone)
                continue
            if count:
                slots[ngram] = ~table.newest.item(slot)
            else:
                del slots[ngram]
            moved = table.remove(slot)
            if moved is not None:
                slots[moved] = slot


_ROUNDING = 1e-4  # relative
_STREAM = 7  # tokens back that a pass is written against


def _write_behind(writer: Writer, stream: NGram, tokens: NGram) -> NGram:
    """Writes those last ones of `tokens` that don't follow from the stream; the stream with them."""
    new = _new(stream, tokens)
    writer.numbers(tokens[len(tokens) - new :])
    return (*stream, *tokens[len(tokens) - new :])[-_STREAM:]


def _read_behind(reader: Reader, rule: NGramRule, stream: NGram, size: int) -> NGram:
    """The stream behind the `size` tokens that `_write_behind` wrote."""
    new = reader.numbers(below=rule.id_limit)
    longer = (*stream, *new)
    tokens = longer[len(longer) - size :] if len(longer) >= size else None
    if tokens is None or len(new) != _new(stream, tokens):
        raise reader.error(f"{len(new)} new tokens don't make {size}")
    return longer[-_STREAM:]


def _new(stream: NGram, tokens: NGram) -> int:
    """How few of the last tokens must be appended to the stream for it to end in `tokens`."""
    size = len(tokens)
    return next(new for new in range(size + 1) if size - new == 0 or stream[-(size - new) :] == tokens[: size - new])


def _read_pass(reader: Reader, rule: NGramRule, stream: NGram) -> tuple[NGram, tuple[NGram, ...]]:
    penalty = rule.penalty
    sizes = reader.unsigned(below=1 << penalty.max_size)
    longest = sizes.bit_length()
    stream = _read_behind(reader, rule, stream, longest)
    ngrams = tuple(stream[len(stream) - size :] for size in range(1, longest + 1) if sizes >> size - 1 & 1)
    if any(len(ngram) < penalty.min_size or ngram in rule.ignored for ngram in ngrams):
        raise reader.error("a pass recorded an n-gram of another size, or one that is ignored")
    return stream, ngrams
