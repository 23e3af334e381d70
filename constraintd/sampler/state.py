"""The SamplerState: everything that a session's generation mutates, as a fold over its tokens.

On every token the stops are asked first. A terminal token is counted and moves mu, but never advances the constraint or
the penalties' statistics (the tip invariant): what it ends is judged as it stood before.

Source: drama_llama's SamplerState. There the state also held the logits' adjusted candidates and a random generator;
here nothing in it needs logits, and draws are a function of seed and position.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from constraintd.constraint import Constraint, MaskView, carried
from constraintd.encoding import Reader, Writer
from constraintd.engine.region import Region
from constraintd.sampler.adjustments import Adjustments
from constraintd.sampler.finish import Finish, FinishReason, read_finish, write_finish
from constraintd.sampler.ngrams import NGramStats
from constraintd.sampler.penalties import Penalties
from constraintd.sampler.settings import Settings
from constraintd.sampler.stops import OutputTail, StopScanner


class SamplerState:
    """One session's state. Only `advance` and `advance_all` change it; every other method computes, or gives a new one.

    `advance` is a function of state, token and surprisal alone: two equal states stay equal, byte for byte.
    """

    __slots__ = (
        "_begun",
        "_constraint",
        "_eog",
        "_mu",
        "_output",
        "_penalties",
        "_region",
        "_scanner",
        "_settings",
        "_stop_ids",
        "_turn_offset",
        "_turn_position",
        "finish",
        "position",
    )

    def __init__(
        self,
        settings: Settings,
        constraint: Constraint,
        penalties: Penalties,
        *,
        mu: float | None = None,
        position: int = 0,
        output: OutputTail | None = None,
        begun: tuple[int, ...] | None = None,
        turn_position: int = 0,
        turn_offset: int = 0,
        finish: Finish | None = None,
    ) -> None:
        """For `start`, `resumed_from`, `reset_constraints` and `from_bytes`; callers use those."""
        self._settings = settings
        self._constraint = constraint
        self._penalties = penalties
        self._eog = frozenset(settings.vocabulary.eog_ids)
        self._stop_ids = frozenset(settings.config.stop_ids)
        self._scanner = StopScanner(settings.config.stop_strings)
        mirostat = settings.config.mirostat
        self._mu = None if mirostat is None else 2 * mirostat.tau if mu is None else mu
        self.position = position
        self._output = output or OutputTail()
        # Where in the text each part of the constraint began, in bytes.
        self._begun = (0,) * len(settings.parts) if begun is None else begun
        self._turn_position = turn_position
        self._turn_offset = turn_offset
        self.finish = finish  # set by a terminal token
        self._region = constraint.region() if penalties.needs_region else Region.PROSE

    @classmethod
    def start(cls, settings: Settings, prompt: tuple[int, ...] = ()) -> SamplerState:
        """Before the first token, `prompt` behind it. Raises LimitExceeded."""
        penalties = Penalties.start(settings.config, settings.vocabulary)
        penalties.prompt(prompt)
        return cls(settings, Constraint.start(settings.parts, settings.vocabulary), penalties)

    @classmethod
    def resumed_from(cls, cached: SamplerState, settings: Settings) -> SamplerState:
        """The state that goes on from `cached` under other settings, at the same position of the same turn.

        A part that the cached constraint has too (the same grammar, with the same triggers if it is lazy) takes over
        its place, every other starts at its root. mu and statistics carry; the ignored n-grams are resolved anew.
        """
        pairs = carried(cached._settings.parts, settings.parts)
        begun = tuple(cached._output.total if old is None else cached._begun[old] for old in pairs)
        return cls(
            settings,
            Constraint.resumed(settings.parts, cached._constraint, settings.vocabulary),
            cached._penalties.reconfigured(settings.config, settings.vocabulary),
            mu=cached._mu,
            position=cached.position,
            output=cached._output,
            begun=begun,
            turn_position=cached._turn_position,
            turn_offset=cached._turn_offset,
            finish=cached.finish,
        )

    def reset_constraints(self, settings: Settings, prompt: tuple[int, ...] = ()) -> SamplerState:
        """The state at the beginning of a new turn, `prompt` behind it: constraints at their roots, stops forgotten.

        Statistics of constrained regions are dropped; the text's own, and mu, go on.
        """
        penalties = self._penalties.reconfigured(settings.config, settings.vocabulary)
        penalties.new_turn()
        penalties.prompt(prompt)
        offset = self._output.total if self.finish is None else self.finish.cut_offset
        return SamplerState(
            settings,
            Constraint.start(settings.parts, settings.vocabulary),
            penalties,
            mu=self._mu,
            position=self.position,
            output=OutputTail(offset),
            begun=(offset,) * len(settings.parts),
            turn_position=self.position,
            turn_offset=offset,
        )

    def advance(self, token: int, surprisal: float) -> Finish | None:
        """Counts a legal token and moves the constraint over it; a Finish if the token is terminal.

        `surprisal` in bits, >= 0. Raises LimitExceeded; the state is then undefined and must be folded anew.
        """
        self._move_mu(surprisal)
        self.position += 1
        self.finish = self._terminal(token)
        if self.finish is None:
            self._go_on(token)
        return self.finish

    def advance_all(self, tokens: Sequence[int], surprisals: Sequence[float]) -> None:
        """`advance` over one token after the other, for a fold: most of what a token costs is shared by all.

        Raises LimitExceeded; the state is then undefined.
        """
        ending = self._eog | self._stop_ids
        quiet = len(tokens) if ending.isdisjoint(tokens) else next(i for i, t in enumerate(tokens) if t in ending)
        output, match = self._scanner.append(self._output, self._settings.vocabulary.text_of(tokens[:quiet]))
        # What may be a stop, or needs the mask at its own place, is looked at where it stands.
        if match is not None or (self._mu is not None and 0 in surprisals):
            quiet = 0
        elif quiet:
            self.position += quiet
            self.finish = None
            self._output = output
            for surprisal in surprisals[:quiet] if self._mu is not None else ():
                self._move_mu(surprisal)
            config = self._settings.config
            if config.ngram_penalty is None and config.window_penalty is None:
                self._constraint.consume_all(tokens[:quiet])
            else:
                for token in tokens[:quiet]:
                    self._go_on(token)
        for token, surprisal in zip(tokens[quiet:], surprisals[quiet:], strict=True):
            self.advance(token, surprisal)

    def _go_on(self, token: int) -> None:
        """Moves constraint and statistics over a token that is not terminal."""
        self._constraint.consume(token)
        if self._penalties.needs_region:
            self._region = self._constraint.region()
        self._penalties.advance(token, self._region)

    def _move_mu(self, surprisal: float) -> None:
        mirostat = self._settings.config.mirostat
        if mirostat is None or self._mu is None:
            return
        # A token that nothing could stand in for tells nothing of the model. Only a surprisal of 0 can be such a one's,
        # which spares a fold most masks.
        if surprisal == 0 and self._is_only_choice():
            return
        self._mu -= mirostat.eta * (surprisal - mirostat.tau)

    def _is_only_choice(self) -> bool:
        return int.from_bytes(self._view().dense, "little").bit_count() == 1

    def _terminal(self, token: int) -> Finish | None:
        """The Finish that a token brings; else its bytes are added to the output."""
        config = self._settings.config
        if token in self._eog:
            return self._finish(FinishReason.EOG, complete=self._constraint.is_complete(), stop_id=token)
        stops = self.position - self._turn_position >= self._settings.min_tokens
        piece = self._settings.vocabulary.bytes_of(token)
        if stops and token in self._stop_ids:
            kept = len(piece) if config.include_stop else 0
            return self._finish(FinishReason.STOP_ID, complete=self._complete_at(token), stop_id=token, more=kept)
        output, match = self._scanner.append(self._output, piece)
        if stops and match is not None:
            return Finish(
                FinishReason.STOP_STRING,
                cut_offset=match.start + (len(match.stop) if config.include_stop else 0),
                constraint_incomplete=not self._complete_at(token),
                stop_string=match.stop,
            )
        self._output = output
        return None

    def mask(self) -> MaskView | Finish:
        """What may come at this position: a mask (perhaps a dead end), or the Finish of a session that is done."""
        if self.finish is not None:
            return self.finish
        view = self._view()
        if view.exhausted:
            return self._finish(FinishReason.GRAMMAR_EXHAUSTED, complete=True)
        settings = self._settings
        if self.position - self._turn_position >= settings.max_tokens or self.position >= settings.max_position:
            return self._finish(FinishReason.LENGTH, complete=view.complete)
        return view

    def _view(self) -> MaskView:
        return self._constraint.mask(may_end=self.position - self._turn_position >= self._settings.min_tokens)

    def adjustments(self) -> Adjustments | None:
        """What the penalties change at this position."""
        return self._penalties.adjustments(self._region, self._constraint.stays_within)

    @property
    def settings(self) -> Settings:
        """What it is folded under."""
        return self._settings

    @property
    def mu(self) -> float | None:
        """Mirostat's mu in bits; None without a mirostat stage."""
        return self._mu

    @property
    def turn_position(self) -> int:
        """Where the present turn begins."""
        return self._turn_position

    @property
    def turn_offset(self) -> int:
        """Where the present turn's text begins, in bytes."""
        return self._turn_offset

    @property
    def step(self) -> int:
        """Passes over the text's own n-gram statistics, those of a counted prompt included."""
        return self._penalties.step

    @property
    def constrained_step(self) -> int:
        """Passes over the statistics of constrained regions, this turn's."""
        return self._penalties.constrained_step

    @property
    def ngram_stats(self) -> NGramStats:
        """The text's own n-gram statistics, to look at."""
        return self._penalties.ngram_stats

    @property
    def constrained_ngram_stats(self) -> NGramStats:
        """The n-gram statistics of constrained regions, to look at."""
        return self._penalties.constrained_ngram_stats

    @property
    def grammar_complete(self) -> bool:
        """Whether some grammar that is awake accepts; what halts a session is `complete`, of all."""
        return self._constraint.any_complete()

    @property
    def complete(self) -> bool:
        """Whether the text so far satisfies every grammar."""
        return self._constraint.is_complete()

    @property
    def grammar_exhausted(self) -> bool:
        """Whether it does, and nothing but EOG can follow. Raises LimitExceeded."""
        return self._constraint.mask().exhausted

    @property
    def constraint_incomplete_at_end(self) -> bool:
        """Whether an end here would be a violation: no eager grammar complete, or an awakened lazy one unfinished.

        A terminal token that completes it is not seen here: see `completes_with_terminal`.
        """
        return self._constraint.incomplete_at_end()

    def completes_with_terminal(self, token: int) -> bool:
        """Whether this legal token's bytes would satisfy every grammar. Changes nothing. Raises LimitExceeded."""
        return self._complete_at(token)

    def begins_at(self, name: str) -> int:
        """Where in the text a part's own text begins, in bytes."""
        parts = self._settings.parts
        begun = next((b for part, b in zip(parts, self._begun, strict=True) if part.name == name), self._turn_offset)
        return begun + self._constraint.begins_at(name)

    @property
    def constraint_names(self) -> tuple[str, ...]:
        """The parts of its constraint, for people."""
        return self._constraint.names

    @property
    def awaiting_trigger(self) -> bool:
        """Whether some lazy grammar still sleeps."""
        return self._constraint.awaiting_trigger

    def settled_bytes(self) -> int:
        """Text bytes from position 0 that no later token can take back."""
        return self._scanner.settled(self._output)

    def __eq__(self, other: object) -> bool:
        return self.to_bytes() == other.to_bytes() if isinstance(other, SamplerState) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __repr__(self) -> str:
        return f"SamplerState(position={self.position}, {', '.join(self.constraint_names) or 'unconstrained'})"

    def fork(self) -> SamplerState:
        """The same state, to go on from independently."""
        twin = object.__new__(SamplerState)
        for name in self.__slots__:
            setattr(twin, name, getattr(self, name))
        twin._constraint = self._constraint.fork()
        twin._penalties = self._penalties.fork()
        return twin

    def to_bytes(self) -> bytes:
        """The state in the canonical encoding: the same state gives the same bytes, everywhere."""
        writer = Writer()
        for number in (self.position, self._turn_position, self._turn_offset, self._output.total):
            writer.unsigned(number)
        writer.data(self._output.tail)
        writer.flag(self._mu is not None)
        if self._mu is not None:
            writer.float(self._mu)
        writer.flag(self.finish is not None)
        if self.finish is not None:
            write_finish(writer, self.finish)
        writer.numbers(self._begun)
        for identity, place in self._constraint.places():
            writer.data(identity)
            writer.data(place)
        self._penalties.write(writer)
        return writer.getvalue()

    @classmethod
    def from_bytes(cls, data: bytes, settings: Settings) -> SamplerState:
        """The state that `to_bytes` wrote under equal settings.

        Raises InvalidEnvelope, ReplayDiverged, LimitExceeded.
        """
        reader = Reader(data, "state")
        position, turn_position, turn_offset, total = (reader.unsigned() for _ in range(4))
        tail = reader.data()
        mu = reader.float() if reader.flag() else None
        finish = read_finish(reader) if reader.flag() else None
        begun = reader.numbers()
        if len(begun) != len(settings.parts):
            raise reader.error(f"{len(begun)} places for the {len(settings.parts)} parts of the constraint")
        if not (turn_position <= position and turn_offset <= total and len(tail) <= total - turn_offset):
            raise reader.error("its positions contradict each other")
        if (mu is None) != (settings.config.mirostat is None) or not math.isfinite(mu or 0.0):
            raise reader.error("mu is not that of the config")
        places = [(reader.data(), reader.data()) for _ in begun]
        penalties = Penalties.read(reader, settings.config, settings.vocabulary)
        reader.end()
        return cls(
            settings,
            Constraint.at(settings.parts, places, settings.vocabulary),
            penalties,
            mu=mu,
            position=position,
            output=OutputTail(total, tail),
            begun=begun,
            turn_position=turn_position,
            turn_offset=turn_offset,
            finish=finish,
        )

    def _complete_at(self, token: int) -> bool:
        return self._constraint.is_complete() or self._constraint.completes_with_terminal(token)

    def _finish(self, reason: FinishReason, *, complete: bool, stop_id: int | None = None, more: int = 0) -> Finish:
        cut = self._output.total + more
        return Finish(reason, cut_offset=cut, constraint_incomplete=not complete, stop_id=stop_id)
