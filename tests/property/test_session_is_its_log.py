"""A session is its log: after any sequence of operations, the fold of the log is the live state, byte for byte.

A plain model keeps lists and says what must have come of them; the session is driven through the service's own calls.
`CONSTRAINTD_SEQUENCES` sets how many random sequences are run; `make test-long` runs 10,000.
"""

import os

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from constraintd.errors import IllegalStep
from constraintd.sampler.draws import draw
from constraintd.sampler.finish import TERMINAL
from constraintd.sampler.state import SamplerState
from constraintd.session.directive import DenseMask
from constraintd.session.log import fold
from constraintd.v1 import grammar_pb2, sampler_pb2, session_pb2
from tests.daemon_process import EOG, HOLE
from tests.plain_daemon import PlainDaemon

SEQUENCES = int(os.environ.get("CONSTRAINTD_SEQUENCES", "300"))
STEPS = 12


def grammar(**source):
    return session_pb2.Constraint(grammar=grammar_pb2.Grammar(**source))


def lazy(trigger, **source):
    return session_pb2.Constraint(
        lazy=session_pb2.LazyGrammar(
            grammar=grammar_pb2.Grammar(**source), triggers=[session_pb2.Trigger(word=trigger)], rearm=True
        )
    )


CONSTRAINTS = [
    session_pb2.Constraint(unconstrained=session_pb2.Unconstrained()),
    grammar(regex=b"(ab|b)*a?"),
    grammar(json_schema=b'{"type":"object","properties":{"a":{"type":"string"}},"required":["a"]}'),
    grammar(gbnf=grammar_pb2.Gbnf(text=b'root ::= ("a" root "b") | [abc]*')),
    lazy(b"<a>", regex=b"<a>[ab]{1,3}</a>"),
    session_pb2.Constraint(
        all_of=session_pb2.AllOf(
            constraints=[
                grammar(regex=b"[a-z]*"),
                session_pb2.Constraint(
                    token_rule=session_pb2.TokenRule(allow_list={"sequences": [{"ids": [97, 98, 97]}, {"ids": [97]}]})
                ),
            ]
        )
    ),
]
SAMPLERS = [
    sampler_pb2.SamplerConfig(),
    sampler_pb2.SamplerConfig(stages=[{"mirostat_v2": {}}], stop_strings=[b"ba", b"abab"]),
    sampler_pb2.SamplerConfig(
        stages=[{"temperature": {"temperature": 0.7}}],
        seed=11,
        ngram_penalty={"window": 8, "decay": 0.9, "max_count": 0.5, "ignored": {"ngrams": [{"ids": [98]}]}},
    ),
    sampler_pb2.SamplerConfig(
        stages=[{"mirostat_v1": {"tau": 2.0}}],
        window_penalty={"repetition": 1.2, "frequency": 0.5, "window": 6, "frequency_counts_prompt": True},
        ngram_penalty={"mode": "PENALTY_MODE_BROAD", "max_size": 2},
        min_tokens=2,
        include_stop=True,
        stop_ids=[99],
    ),
    sampler_pb2.SamplerConfig(stages=[{"deny_ranges": {"ranges": [{"first": 110, "end": 123}]}}], max_tokens=5),
]
# Few letters, so that n-grams, stops and triggers come up.
LIKELY = [*b'ab<>/c{"}: ', EOG, 260, 261, 262]
SURPRISALS = [0.0, 0.5, 1.25, 7.0]


class SessionMachine(RuleBasedStateMachine):
    """One session, its plain model, and a second daemon to hand it to."""

    def __init__(self):
        super().__init__()
        self.daemons = [PlainDaemon(), PlainDaemon()]
        self.session = None

    def teardown(self):
        for daemon in self.daemons:
            daemon.close()

    @property
    def daemon(self):
        return self.daemons[0]

    @initialize(
        constraint=st.sampled_from(CONSTRAINTS),
        sampler=st.sampled_from(SAMPLERS),
        prompt=st.lists(st.sampled_from(b"ab"), max_size=12),
    )
    def open(self, constraint, sampler, prompt):
        self.session = self.daemon.open(constraint, sampler=sampler, prompt_tokens=prompt)
        self.tokens, self.surprisals = [], []
        self.turns = [(0, prompt)]
        self.seeds = [(0, self.session.log.seed)]
        self.seeded = [(0, sampler.HasField("seed"))]
        self.epoch = self.session.epoch

    def legal(self):
        outcome = self.session.directive.outcome
        if not isinstance(outcome, DenseMask):
            return []
        likely = [token for token in LIKELY if outcome.allows(token)]
        if likely:
            return likely
        bits = np.unpackbits(np.frombuffer(outcome.words, np.uint8), bitorder="little")
        return np.flatnonzero(bits)[:3].tolist()

    @precondition(lambda self: self.legal())
    @rule(
        data=st.data(), surprisals=st.lists(st.sampled_from(SURPRISALS), min_size=1, max_size=6), report=st.booleans()
    )
    def accept(self, data, surprisals, report):
        for surprisal in surprisals:
            if self.legal():
                self.accept_one(data.draw(st.sampled_from(self.legal())), surprisal, report)

    def accept_one(self, token, surprisal, report):
        length = self.session.log.input_length()
        due = length - self.session.log.passes.fed
        passes = [due] if report and due else [length] if report and length else []
        self.daemon.step(self.session, [token], [surprisal], passes)
        self.tokens.append(token)
        self.surprisals.append(surprisal)

    @precondition(lambda self: len(self.legal()) > 1)
    @rule(data=st.data())
    def accept_several(self, data):
        """Tokens that are each legal behind the ones before, found on a fork."""
        ahead = self.daemon.fork(self.session, len(self.tokens))
        tokens = []
        for _ in range(3):
            outcome = ahead.directive.outcome
            legal = [t for t in LIKELY if isinstance(outcome, DenseMask) and outcome.allows(t) and t != EOG]
            if not legal:
                break
            token = data.draw(st.sampled_from(legal))
            self.daemon.step(ahead, [token], [1.0])
            tokens.append(token)
        self.daemon.close_session(ahead)
        if tokens:
            self.daemon.step(self.session, tokens, [1.0] * len(tokens))
            self.tokens += tokens
            self.surprisals += [1.0] * len(tokens)

    @precondition(lambda self: self.legal())
    @rule(data=st.data())
    def refuse_a_step_whose_last_token_is_illegal(self, data):
        token = data.draw(st.sampled_from(self.legal()))
        with pytest.raises(IllegalStep):
            self.daemon.step(self.session, [token, HOLE], [1.0, 1.0])

    @rule(data=st.data(), seed=st.none() | st.integers(0, 3))
    def rollback(self, data, seed):
        to = data.draw(st.integers(0, len(self.tokens)))
        self.daemon.rollback(self.session, to, **({} if seed is None else {"seed": seed}))
        del self.tokens[to:], self.surprisals[to:]
        self.turns = [turn for turn in self.turns if turn[0] <= to]
        self.seeds = [entry for entry in self.seeds if entry[0] <= to]
        self.seeded = [entry for entry in self.seeded if entry[0] <= to]
        self.expect_seed(to, seed)
        self.expect_new_epoch()

    @precondition(lambda self: not (self.session.finish and self.session.finish.reason in TERMINAL))
    @rule(constraint=st.none() | st.sampled_from(CONSTRAINTS), sampler=st.none() | st.sampled_from(SAMPLERS))
    def update(self, constraint, sampler):
        self.daemon.update(self.session, constraint=constraint, sampler=sampler)
        position = len(self.tokens)
        if sampler is not None and sampler.HasField("seed"):
            self.seeds.append((position, sampler.seed))
            self.seeded.append((position, True))
        else:
            self.seeds.append((position, self.seeds[-1][1]))
        self.expect_new_epoch()

    @rule(prompt=st.lists(st.sampled_from(b"ab"), max_size=5), constraint=st.none() | st.sampled_from(CONSTRAINTS))
    def new_turn(self, prompt, constraint):
        self.daemon.update(self.session, new_turn={"prompt_tokens": prompt}, constraint=constraint)
        self.turns.append((len(self.tokens), prompt))
        self.expect_seed(len(self.tokens), None)
        self.expect_new_epoch()

    @rule()
    def resume(self):
        request = session_pb2.ResumeSessionRequest(session_id=self.session.identity.session_id)
        answer = self.daemon.run(self.daemon.calls.resume(request))
        assert list(answer.tokens) == self.tokens
        assert [(turn.position, list(turn.prompt_tokens)) for turn in answer.turns] == self.turns
        self.expect_new_epoch()

    @rule(data=st.data())
    def go_on_in_a_fork(self, data):
        position = data.draw(st.integers(0, len(self.tokens)))
        parent = self.session
        before = parent.snapshot()[1]
        seed = parent.log.seed
        child = self.daemon.fork(parent, position, seed=seed)
        assert parent.snapshot()[1] == before
        self.daemon.close_session(parent)
        self.session = child
        del self.tokens[position:], self.surprisals[position:]
        self.turns = [turn for turn in self.turns if turn[0] <= position]
        self.seeds = [*(entry for entry in self.seeds if entry[0] <= position), (position, seed)]
        self.seeded = [entry for entry in self.seeded if entry[0] <= position]
        self.epoch = child.epoch

    @rule()
    def move_to_another_daemon(self):
        envelope = self.daemon.export(self.session)
        self.daemon.close_session(self.session)
        self.daemons.reverse()
        before = self.session
        self.session = self.daemon.import_(envelope)
        assert self.daemon.export(self.session) == envelope
        assert_same_directive(self.session.directive, before.directive)
        self.epoch = self.session.epoch

    @rule()
    def passivate(self):
        """Only the log is left, in the store; the next call revives it."""
        before = self.session.directive
        self.daemon.table.drop(self.session.identity.session_id)
        self.session = self.daemon.session(self.session.identity.session_id)
        assert_same_directive(self.session.directive, before)
        assert self.session.epoch == self.epoch

    def expect_seed(self, position, given):
        """The seed after a change that draws anew."""
        now = self.session.log.seed
        if given is not None:
            assert now == given
        elif self.seeded[-1][1]:
            assert now == self.seeds[-1][1]
        else:
            assert now != self.seeds[-1][1]
        self.seeds.append((position, now))

    def expect_new_epoch(self):
        assert self.session.epoch != self.epoch
        self.epoch = self.session.epoch

    @precondition(lambda self: self.session is not None)
    @invariant()
    def the_fold_of_the_log_is_the_live_state(self):
        log, live = self.session.snapshot()
        folded = fold(log)
        assert folded.to_bytes() == live
        restored = SamplerState.from_bytes(live, log.settings.sampling)
        assert restored.to_bytes() == live
        assert restored.mask() == folded.mask()

    @precondition(lambda self: self.session is not None)
    @invariant()
    def the_session_is_what_the_model_says(self):
        session = self.session
        assert list(session.log.tokens) == self.tokens
        assert list(session.log.surprisals) == self.surprisals
        assert session.position == session.directive.position == len(self.tokens)
        assert session.turn_position == self.turns[-1][0]
        assert session.log.seed == self.seeds[-1][1]
        assert session.directive.draw == draw(self.seeds[-1][1], len(self.tokens))
        assert session.log.input_length() == len(self.tokens) + sum(len(prompt) for _, prompt in self.turns)
        assert session.log.passes.fed <= session.log.input_length()


def assert_same_directive(one, other):
    assert (one.position, one.outcome, one.draw, one.settled_bytes, one.standing, one.mu) == (
        other.position,
        other.outcome,
        other.draw,
        other.settled_bytes,
        other.standing,
        other.mu,
    )
    assert (one.adjustments is None) == (other.adjustments is None)
    if one.adjustments is not None:
        for name in ("ids", "scales", "offsets"):
            assert np.array_equal(getattr(one.adjustments, name), getattr(other.adjustments, name))


TestSession = SessionMachine.TestCase
TestSession.settings = settings(
    max_examples=SEQUENCES,
    stateful_step_count=STEPS,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize="CONSTRAINTD_SEQUENCES" not in os.environ,
)
