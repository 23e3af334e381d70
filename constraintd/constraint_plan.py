"""From a Constraint message to what a session starts with: which grammars to compile, then which parts to AND."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import cast

from constraintd.constraint import PartKind, PartSpec
from constraintd.engine.deferred import LazyGrammar, LazyOptions
from constraintd.engine.matcher import CompiledGrammar, Matcher, MatcherSource
from constraintd.engine.token_rules import AllowList, FixedMask, TokenRule, TokenSequence
from constraintd.engine.trigger import Trigger, TriggerKind
from constraintd.errors import InvalidField, TooLarge
from constraintd.grammar.source import Grammar, GrammarKind, GrammarSource
from constraintd.grammar.tools import wake_of
from constraintd.grammar.tools_wire import HERMES, LLAMA3_JSON, MISTRAL, MISTRAL_ARGS, WireFormat, wire_text
from constraintd.part_identity import grammar_identity, lazy_identity, rule_identity
from constraintd.reasoning import Reasoning
from constraintd.translate import grammar_source_of, schema_options_of
from constraintd.v1 import session_pb2
from constraintd.vocabulary.vocabulary import Vocabulary

_MAX_TRIGGERS = 64
_MAX_PARTS = 32
_WIRE_FORMATS = {
    session_pb2.TOOL_CALL_FORMAT_HERMES: HERMES,
    session_pb2.TOOL_CALL_FORMAT_LLAMA3_JSON: LLAMA3_JSON,
    session_pb2.TOOL_CALL_FORMAT_MISTRAL: MISTRAL,
    session_pb2.TOOL_CALL_FORMAT_MISTRAL_ARGS: MISTRAL_ARGS,
}


@dataclass(frozen=True, slots=True)
class GrammarRef:
    """A grammar of the constraint: by the id of a compiled one, or by its source, read already or not."""

    grammar_id: str
    source: GrammarSource | Grammar | None = None


@dataclass(frozen=True, slots=True)
class _Lazy:
    ref: int
    triggers: tuple[Trigger, ...]
    rearm: bool


@dataclass(frozen=True, slots=True)
class _Tools:
    """Tool calls: when their grammar (if any) is awake depends on which markers are special tokens."""

    ref: int | None
    choice: str
    wire: WireFormat
    parallel: bool


@dataclass(slots=True)
class ConstraintPlan:
    """A constraint, read and checked as far as that goes without its vocabulary.

    `refs` are to be compiled in this order; `parts` then makes the parts from what they became.
    """

    refs: list[GrammarRef] = field(default_factory=list)
    """The grammars to compile, in this order."""
    min_tokens: int = 0
    max_tokens: int | None = None
    _eager: list[int] = field(default_factory=list)
    _lazy: list[_Lazy] = field(default_factory=list)
    _tools: list[_Tools] = field(default_factory=list)
    _rules: list[tuple[str, Callable[[Vocabulary], Matcher]]] = field(default_factory=list)

    @property
    def eager(self) -> Sequence[int]:
        """Which of `refs` must hold for the whole text (or for what comes after the reasoning)."""
        return self._eager

    def parts(
        self, compiled: Sequence[CompiledGrammar], vocabulary: Vocabulary, reasoning: Reasoning | None
    ) -> list[PartSpec]:
        """The parts to AND, asleep behind `reasoning` if there is one. Raises InvalidField for ids and triggers."""
        specs = []
        for ref in self._eager:
            identity = grammar_identity(compiled[ref].grammar_id, vocabulary)
            name = part_name(compiled[ref])
            specs.append(_behind(reasoning, name, PartKind.GRAMMAR, identity, compiled[ref], vocabulary))
        for lazy in self._lazy:
            name = f"lazy grammar {compiled[lazy.ref].grammar_id[:12]}"
            specs.append(_lazy_part(name, compiled[lazy.ref], lazy.triggers, lazy.rearm, vocabulary, reasoning))
        for tools in self._tools:
            specs += _tool_parts(tools, compiled, vocabulary, reasoning)
        specs += [rule_part(name, cast(TokenRule, make(vocabulary)), vocabulary) for name, make in self._rules]
        return specs


def part_name(compiled: CompiledGrammar) -> str:
    """The name of a grammar that is not lazy, for people."""
    return f"grammar {compiled.grammar_id[:12]}"


def rule_part(name: str, rule: TokenRule, vocabulary: Vocabulary) -> PartSpec:
    """A token rule that begins as `rule` stands."""
    return PartSpec(name, PartKind.RULE, rule_identity(rule, vocabulary), rule.fork, rule.at)


def _lazy_part(
    name: str,
    compiled: CompiledGrammar,
    triggers: Sequence[Trigger],
    rearm: bool,
    vocabulary: Vocabulary,
    reasoning: Reasoning | None,
) -> PartSpec:
    options = LazyOptions(rearm=rearm)
    grammar = LazyGrammar(compiled, triggers, vocabulary, options)
    identity = lazy_identity(grammar_identity(compiled.grammar_id, vocabulary), triggers, options)
    return _behind(reasoning, name, PartKind.LAZY, identity, grammar, vocabulary)


def _tool_parts(
    tools: _Tools, compiled: Sequence[CompiledGrammar], vocabulary: Vocabulary, reasoning: Reasoning | None
) -> list[PartSpec]:
    specials = {spelling: token for token, spelling in vocabulary.special.items()}
    wake = wake_of(tools.choice, tools.wire, parallel_tool_calls=tools.parallel, special_token=specials.get)
    if tools.ref is None:
        if not wake.banned_tokens:
            return []
        rule = FixedMask.without_specials(wake.banned_tokens, vocabulary)
        return [rule_part("no tool calls", rule, vocabulary)]
    grammar = compiled[tools.ref]
    if wake.lazy:
        begin = tools.wire.begin
        mixed = next((spelling for spelling in specials if spelling and spelling in begin and spelling != begin), None)
        if mixed is not None:
            raise InvalidField(
                "constraint.tool_calls.template.begin",
                f"{begin!r} is the special token {mixed!r} and more text, on which nothing can wake; give the token",
            )
        return [_lazy_part("tool calls", grammar, wake.triggers, wake.rearm, vocabulary, reasoning)]
    identity = grammar_identity(grammar.grammar_id, vocabulary)
    return [_behind(reasoning, "tool calls", PartKind.GRAMMAR, identity, grammar, vocabulary)]


def plan_constraint(message: session_pb2.Constraint) -> ConstraintPlan:
    """Reads a constraint. Raises InvalidField, TooLarge with the place in the message."""
    plan = ConstraintPlan()
    parts = list(_flat(message, "constraint"))
    if len(parts) > _MAX_PARTS:
        raise TooLarge("constraint.all_of.constraints", limit=_MAX_PARTS, actual=len(parts), unit="constraints")
    for where, part in parts:
        _add(plan, where, part)
    if plan.max_tokens is not None and plan.min_tokens > plan.max_tokens:
        raise InvalidField(
            "constraint.token_rule.length", f"min {plan.min_tokens} is above max {plan.max_tokens}; no text fits"
        )
    return plan


def _flat(message: session_pb2.Constraint, where: str) -> Iterator[tuple[str, session_pb2.Constraint]]:
    if message.WhichOneof("kind") != "all_of":
        yield where, message
        return
    inner = message.all_of.constraints
    if not inner:
        raise InvalidField(f"{where}.all_of.constraints", "is empty; name what to satisfy, or say unconstrained")
    for index, part in enumerate(inner):
        place = f"{where}.all_of.constraints[{index}]"
        if part.WhichOneof("kind") == "all_of":
            raise InvalidField(place, "all_of inside all_of says nothing more; put its constraints beside the others")
        yield place, part


def _add(plan: ConstraintPlan, where: str, part: session_pb2.Constraint) -> None:
    match part.WhichOneof("kind"):
        case "grammar_id":
            plan._eager.append(len(plan.refs))
            plan.refs.append(GrammarRef(part.grammar_id))
        case "grammar":
            plan._eager.append(len(plan.refs))
            plan.refs.append(GrammarRef("", grammar_source_of(part.grammar)))
        case "lazy":
            source = part.lazy.WhichOneof("source")
            if source is None:
                raise InvalidField(f"{where}.lazy", "has no grammar; set grammar_id or grammar")
            plan._lazy.append(_Lazy(len(plan.refs), _triggers(part.lazy, f"{where}.lazy"), part.lazy.rearm))
            by_id = source == "grammar_id"
            plan.refs.append(
                GrammarRef(part.lazy.grammar_id) if by_id else GrammarRef("", grammar_source_of(part.lazy.grammar))
            )
        case "tool_calls":
            _add_tools(plan, f"{where}.tool_calls", part.tool_calls)
        case "token_rule":
            _add_rule(plan, f"{where}.token_rule", part.token_rule)
        case "unconstrained":
            pass
        case _:
            raise InvalidField(
                where, "is missing; set a grammar, a token rule, or unconstrained to say that there is none"
            )


def _add_tools(plan: ConstraintPlan, where: str, message: session_pb2.ToolCalls) -> None:
    choice = _utf8(message.tool_choice, f"{where}.tool_choice") or "auto"
    wire = _wire_format(where, message)
    parallel = not message.single
    constrained = wake_of(choice, wire, parallel_tool_calls=parallel).constrained
    plan._tools.append(_Tools(len(plan.refs) if constrained else None, choice, wire, parallel))
    if constrained:
        texts = [message.tools, choice.encode(), wire_text(wire, parallel=parallel).encode()]
        options = schema_options_of(message.json_options)
        plan.refs.append(GrammarRef("", GrammarSource(GrammarKind.TOOLS, texts, options)))


def _wire_format(where: str, message: session_pb2.ToolCalls) -> WireFormat:
    if message.WhichOneof("wire_format") == "template":
        template = message.template
        texts = {
            name: _utf8(getattr(template, name), f"{where}.template.{name}")
            for name in ("begin", "end", "name_key", "arguments_key", "separator")
        }
        if not texts["begin"]:
            raise InvalidField(f"{where}.template.begin", "is empty; name the text that begins a call")
        return WireFormat(
            texts["begin"],
            texts["end"],
            name_key=texts["name_key"] or "name",
            arguments_key=texts["arguments_key"] or "arguments",
            separator=texts["separator"],
        )
    if message.format not in _WIRE_FORMATS:
        raise InvalidField(f"{where}.format", "is missing or unknown; say how the model writes calls")
    return _WIRE_FORMATS[message.format]


def _triggers(lazy: session_pb2.LazyGrammar, where: str) -> tuple[Trigger, ...]:
    if len(lazy.triggers) > _MAX_TRIGGERS:
        raise TooLarge(f"{where}.triggers", limit=_MAX_TRIGGERS, actual=len(lazy.triggers), unit="triggers")
    if not lazy.triggers:
        raise InvalidField(f"{where}.triggers", "a lazy grammar without triggers would never wake; name one")
    triggers = []
    for index, message in enumerate(lazy.triggers):
        name = message.WhichOneof("kind")
        place = f"{where}.triggers[{index}]"
        if name is None:
            raise InvalidField(place, "is empty; set word, pattern, pattern_full or token")
        kind = TriggerKind(name)
        text = "" if kind is TriggerKind.TOKEN else _utf8(getattr(message, name), f"{place}.{name}")
        triggers.append(
            Trigger(
                kind,
                text=text,
                token=message.token if kind is TriggerKind.TOKEN else -1,
                at_start=message.at_start,
                exclusive=message.exclusive,
            )
        )
    return tuple(triggers)


def _add_rule(plan: ConstraintPlan, where: str, rule: session_pb2.TokenRule) -> None:
    match rule.WhichOneof("rule"):
        case "allowed":
            ids = tuple(rule.allowed.ids)
            plan._rules.append(("allowed tokens", lambda vocabulary: FixedMask.allowed(ids, vocabulary)))
        case "allow_list":
            sequences = tuple(tuple(sequence.ids) for sequence in rule.allow_list.sequences)
            plan._rules.append(("allow-list", lambda vocabulary: AllowList.start(sequences, vocabulary)))
        case "sequence":
            target = tuple(rule.sequence.ids)
            plan._rules.append(("token sequence", lambda vocabulary: TokenSequence.start(target, vocabulary)))
        case "deny_ranges":
            ranges = tuple((r.first, r.end) for r in rule.deny_ranges.ranges)
            plan._rules.append(("deny ranges", lambda vocabulary: FixedMask.without_ranges(ranges, vocabulary)))
        case "banned_specials":
            banned = tuple(rule.banned_specials.ids)
            plan._rules.append(("banned specials", lambda vocabulary: FixedMask.without_specials(banned, vocabulary)))
        case "length":
            plan.min_tokens = max(plan.min_tokens, rule.length.min)
            if rule.length.HasField("max"):
                most = rule.length.max
                plan.max_tokens = most if plan.max_tokens is None else min(plan.max_tokens, most)
        case _:
            raise InvalidField(where, "is empty, or of a kind that this server does not know; set one rule")


def _behind(
    reasoning: Reasoning | None,
    name: str,
    kind: PartKind,
    identity: bytes,
    source: MatcherSource,
    vocabulary: Vocabulary,
) -> PartSpec:
    """The part, asleep until the reasoning has ended."""
    if reasoning is None:
        return PartSpec(name, kind, identity, source.start, source.at)
    # A grammar that isn't lazy has to be satisfied, so the text can't end before it is awake.
    options = LazyOptions(eog_legal=kind is PartKind.LAZY)
    sleeping = LazyGrammar(source, reasoning.triggers, vocabulary, options)
    identity = lazy_identity(identity, reasoning.triggers, options)
    return PartSpec(name, kind, identity, sleeping.start, sleeping.at)


def _utf8(text: bytes, where: str) -> str:
    try:
        return text.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidField(where, f"not UTF-8 at byte {error.start}") from None
