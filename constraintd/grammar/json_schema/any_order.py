"""Lark rules for a schema whose objects may be written in any order of their names.

The engine's own `%json` writes names in the schema's order only. Here an object is one rule with a set of bits, one for
each name, that says which names have been written: at each comma any name whose bit is clear may follow, and the
closing brace once the bits of the required names are set. So every order is offered and no name comes twice, with as
many alternatives as there are names, not one for each of their subsets: the parser makes only the sets that occur
(llguidance, docs/parametric.md). Everything else, down to each name and value, stays with `%json`: its grammars and
these rules share one lexer, since they ignore the same white space. Measured over 111,000 masks of real schemas: 22 us
a mask, where the schema's order takes 20, and half a millisecond more to compile.

Where an object has more names than bits, or keywords that need counting or patterns, the schema's order stays.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from constraintd.grammar.json_schema.alternatives import alternatives, value_at
from constraintd.grammar.json_schema.core import NUMERIC, OF_ARRAYS, OF_OBJECTS, TYPES, Core, identity
from constraintd.grammar.json_schema.inhabited import kinds, references
from constraintd.grammar.json_schema.lark_rules import LarkRules, TooLarge, other_names, quoted

# The engine's sets have 64 bits.
_MAX_NAMES: Final = 60
_MAX_PREFIX: Final = 16
_COUNTING: Final = frozenset(("patternProperties", "minProperties", "maxProperties"))
_SPLIT: Final = {"object": OF_OBJECTS, "array": OF_ARRAYS}

Spelled = Callable[[Core], dict[str, Any] | bool]
"""A core with its references named for the engine."""


class AnyOrder:
    """Writes the rules of one schema, once. Owns what it has written.

    Afterwards `keeps_order` says that some object stayed in the schema's order, and `unproven` that the engine may find
    a part without instances, which it then refuses.
    """

    def __init__(
        self, definitions: Mapping[str, Core], names: Mapping[str, str], spelled: Spelled, guidance: dict[str, Any]
    ) -> None:
        """`definitions` by pointer, pruned; `names` what the engine calls them; `guidance` every %json's options."""
        self.keeps_order = False
        self.unproven = False
        self._definitions = definitions
        self._names = names
        self._spelled = spelled
        self._guidance = guidance
        self._comma = json.dumps(guidance.get("item_separator", ","))
        self._colon = json.dumps(guidance.get("key_separator", ":"))
        self._rules = LarkRules()
        self._by_id: dict[int, str] = {}
        self._by_text: dict[str, str] = {}
        self._gaining: dict[int, bool] = {}
        # The ids above are good as long as their cores live.
        self._alive: list[Core] = []
        self._waiting: list[tuple[str, dict[str, Any]]] = []
        self._inhabited = frozenset(definitions)
        self._ordering = _with_names(definitions)

    def text(self, root: str) -> str | None:
        """The grammar, its rule `start` first; None where no order is to be gained or the limits don't allow it."""
        if root not in self._ordering:
            return None
        try:
            start = self._rule(self._definitions[root])
            while self._waiting:
                name, core = self._waiting.pop()
                self._rules.write(name, self._body(core))
            self._rules.check_chain(start)
        except TooLarge:
            return None
        lines = [f"start: {start}", *self._rules.lines()]
        if "whitespace_pattern" in self._guidance:
            lines.append(f"%ignore /{self._guidance['whitespace_pattern']}/")
        # As %json does it: its lexer and this one become the same.
        return "\n".join([*lines, '%llguidance {"ignore_once": true}'])

    def _gains(self, core: Core) -> bool:
        """Whether an order of names may be chosen anywhere in the core's instances."""
        known = self._gaining.get(id(core))
        if known is None:
            self._alive.append(core)
            known = _names_any(core) or not self._ordering.isdisjoint(references(core))
            self._gaining[id(core)] = known
        return known

    def _rule(self, core: Core) -> str:
        """The name of the rule for a core that has an instance."""
        while isinstance(core, dict) and set(core) == {"$ref"}:
            core = self._definitions[core["$ref"]]
        if isinstance(core, bool) or not self._gains(core):
            return self._leaf(core)
        if id(core) not in self._by_id:
            # Conjunctions come new from every merging, so they are known again by what they say.
            text = identity(core) if set(core) == {"allOf"} else ""
            name = self._by_text.get(text)
            if name is None:
                name = self._rules.begin()
                # Written later: it may lead back to itself, or on through more definitions than Python has stack for.
                self._waiting.append((name, core))
            if text:
                self._by_text[text] = name
            self._by_id[id(core)] = name
        return self._by_id[id(core)]

    def _body(self, core: dict[str, Any]) -> str:
        if set(core) == {"anyOf"}:
            found: list[str] | None = [self._rule(part) for part in core["anyOf"]]
        else:
            flats = alternatives(core, self._definitions)
            self.unproven = self.unproven or "allOf" in core or "$ref" in core
            found = None if flats is None else [rule for flat in flats for rule in self._rules_of(flat)]
        return " | ".join(dict.fromkeys(found)) if found else self._ordered(core)

    def _rules_of(self, flat: dict[str, Any]) -> list[str]:
        """The rules that together write the values of a flat core: of objects, of arrays, of the other types."""
        types = kinds(flat, self._inhabited)
        if not types:
            return []
        split = [
            kind
            for kind, keys in _SPLIT.items()
            if kind in types and "enum" not in flat and any(self._may_order(flat, key) for key in keys)
        ]
        found: list[str] = []
        for kind in split:
            part = {key: flat[key] for key in _SPLIT[kind] if key in flat}
            if kind == "object" and _impossible(part):
                continue
            rule = self._object(part) if kind == "object" else self._array(part)
            found.append(self._ordered({"type": [kind], **part}) if rule is None else rule)
        rest = _rest(flat, split)
        return found if rest is None else [*found, self._leaf(rest)]

    def _may_order(self, flat: dict[str, Any], key: str) -> bool:
        return key in flat and (key in ("properties", "required") or self._gains({key: flat[key]}))

    def _object(self, core: dict[str, Any]) -> str | None:
        """The rule for the objects; None if their names have to keep the schema's order."""
        required: list[str] = core.get("required", [])
        # Bits are given to the required names first: that they are all there is then one question.
        taken = list(dict.fromkeys([*required, *core.get("properties", ())]))
        if len(taken) > _MAX_NAMES or any(
            key in core for key in ("patternProperties", "minProperties", "maxProperties")
        ):
            return None
        values = {name: value_at(core, name) for name in taken}
        members = [f"{quoted(n)} {self._colon} {self._rule(v)}" for n, v in values.items() if v is not False]
        others = self._others(taken, core.get("additionalProperties", True))
        empty = [] if required else ['"{" "}"']
        if not members:
            return self._rules.add(" | ".join([*empty, f'"{{" {others} "}}"'] if others else empty))
        name = self._rules.begin()
        done = f'"" %if is_ones([0:{len(required)}])' if required else '""'
        left = f"%if not(is_ones([0:{len(members)}]))"
        # s: something follows; n: a name of the schema; r: after that; t: after other names, which come all at once
        # where they come, so that a long run of them is one list and not a chain.
        self._rules.write(name, " | ".join([f'"{{" {name}s::0x0 "}}"', *empty]))
        self._rules.write(f"{name}s::_ ", f"{name}n::_" + (f" | {others} {name}t::_" if others else ""))
        named = [f"{text} {name}r::set_bit({bit}) %if bit_clear({bit})" for bit, text in enumerate(members)]
        self._rules.write(f"{name}n::_ ", " | ".join(named))
        self._rules.write(f"{name}r::_ ", f"{done} | {self._comma} {name}s::_" + ("" if others else f" {left}"))
        if others:
            self._rules.write(f"{name}t::_ ", f"{done} | {self._comma} {name}n::_ {left}")
        return name

    def _others(self, taken: list[str], value: Core) -> str | None:
        """The rule for one or more members of other names; None if there can be none."""
        if value is False:
            return None
        member = self._rules.add(f"{self._rules.terminal(other_names(taken))} {self._colon} {self._rule(value)}")
        return self._rules.add(f"{member} ({self._comma} {member})*")

    def _array(self, core: dict[str, Any]) -> str | None:
        """The rule for the arrays; None if they are better left to the engine."""
        prefix: list[Core] = core.get("prefixItems", [])
        item: Core = core.get("items", True)
        least, most = core.get("minItems", 0), core.get("maxItems")
        if False in prefix:
            prefix, item = prefix[: prefix.index(False)], False
        if item is False:
            most = len(prefix) if most is None else min(len(prefix), most)
        if len(prefix) > _MAX_PREFIX or most == 0 or (most is not None and most < least):
            return None
        prefix = prefix if most is None else prefix[:most]
        tail = ""
        if item is not False and most != len(prefix):
            fixed = max(1, len(prefix))
            low, high = max(0, least - fixed), "" if most is None else most - fixed
            times = "*" if low == 0 and most is None else f"{{{low},{high}}}"
            tail = f"({self._comma} {self._rule(item)}){times}"
        for place in range(len(prefix) - 1, 0, -1):
            inner = f"{self._comma} {self._rule(prefix[place])} {tail}"
            tail = inner if place < least else f"({inner})?"
        first = self._rule(prefix[0] if prefix else item)
        return self._rules.add(f'"[" {first} {tail} "]"' + ("" if least else ' | "[" "]"'))

    def _ordered(self, core: Core) -> str:
        """A leaf that holds objects, which so keep the schema's order."""
        self.keeps_order = True
        return self._leaf(core)

    def _leaf(self, core: Core) -> str:
        """The rule that leaves a core to the engine, with the definitions that it needs."""
        schema = self._spelled(core)
        text = f"%json {json.dumps(schema, ensure_ascii=False, separators=(',', ':'))}"
        if text not in self._by_text:
            self.unproven = self.unproven or _may_be_impossible(core)
            document: dict[str, Any] = dict(schema) if isinstance(schema, dict) else {}
            needed = self._closure(core)
            if needed:
                document["$defs"] = {self._names[p]: self._spelled(self._definitions[p]) for p in needed}
            # Last: the engine puts the last keyword where it took these out, and to it their order matters.
            document["x-guidance"] = self._guidance
            body = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
            self._by_text[text] = self._rules.add(f"%json {body}")
        return self._by_text[text]

    def _closure(self, core: Core) -> list[str]:
        found: dict[str, None] = {}
        waiting = list(references(core))
        while waiting:
            pointer = waiting.pop()
            if pointer not in found:
                found[pointer] = None
                self.unproven = self.unproven or _may_be_impossible(self._definitions[pointer])
                waiting.extend(references(self._definitions[pointer]))
        return list(found)


def _with_names(definitions: Mapping[str, Core]) -> frozenset[str]:
    """The definitions from which an object with names of its own can be reached."""
    found = {pointer for pointer, core in definitions.items() if _names_any(core)}
    users: dict[str, list[str]] = {}
    for pointer, core in definitions.items():
        for target in references(core):
            users.setdefault(target, []).append(pointer)
    waiting = list(found)
    while waiting:
        for user in users.get(waiting.pop(), ()):
            if user not in found:
                found.add(user)
                waiting.append(user)
    return frozenset(found)


def _rest(flat: dict[str, Any], split: list[str]) -> Core | None:
    """The flat core for the types that have no rule of their own; None if none are left."""
    if not split:
        return flat or True
    left = [name for name in flat.get("type", TYPES) if name not in split]
    if not left:
        return None
    dropped = {"type", *(key for kind in split for key in _SPLIT[kind])}
    return {"type": left, **{key: value for key, value in flat.items() if key not in dropped}}


def _impossible(core: dict[str, Any]) -> bool:
    """Whether an object needs a property that has no value."""
    if "patternProperties" in core:
        return False
    return any(value_at(core, name) is False for name in core.get("required", ()))


def _may_be_impossible(core: Any) -> bool:
    """Whether keywords meet of which only the engine can say that nothing satisfies them all."""
    for part in _parts(core):
        if "allOf" in part or "multipleOf" in part or ("enum" in part and not set(part) <= {"enum", "type"}):
            return True
        if "pattern" in part and ("minLength" in part or "maxLength" in part):
            return True
        if any(isinstance(part.get(key), float) for key in NUMERIC):
            return True
    return False


def _names_any(core: Core) -> bool:
    """Whether an object with names of its own stands anywhere inside."""
    return any(part.get("properties") or part.get("required") for part in _parts(core))


def _parts(core: Any) -> Iterator[dict[str, Any]]:
    """The core and every object inside it, `enum` left out."""
    stack: list[Any] = [core]
    while stack:
        part = stack.pop()
        if isinstance(part, dict):
            yield part
            stack.extend(value for key, value in part.items() if key != "enum" and isinstance(value, dict | list))
        elif isinstance(part, list):
            stack.extend(part)
