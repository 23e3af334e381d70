"""The named sets of texts that the n-gram penalty leaves alone: English function words, and the punctuation of JSON."""

from __future__ import annotations

_WORDS = tuple(
    # articles, determiners
    "the a an this that these those some any each no "  # noqa: SIM905
    # pronouns
    "i you he she it we they me him her us them my your his its our their who which what "
    # prepositions
    "of to in on at by for from with into over under about after before between through as than "
    # conjunctions, particles
    "and or but if so because while when where how not then there "
    # auxiliaries
    "is are was were be been am has have had do does did will would can could should may might must".split()
)

COMMON_WORDS: tuple[str, ...] = tuple(
    form for word in _WORDS for form in (word, " " + word, word.capitalize(), " " + word.capitalize())
)
"""Each word as it stands inside and at the beginning of a line and of a sentence."""

_PUNCTUATION = (
    *["{", "}", "[", "]", ":", ",", '"'],
    *['""', "{}", "[]", "{{", "}}", "[[", "]]", "[{", "}]", "},", "],", "},{", "],["],
    *['{"', '["', '[{"', '"}', '"]', '"}]', '"},', '"],', '"},{"', '},{"'],
    *['":', '": ', '":"', '": "', '":{', '":{"', '":[', '":["', '": {', '": [', '": {"', '": ["'],
    *['",', '", ', '","', '", "', ', "', ',"', ": ", ", ", ': "', ':"'],
)

JSON_PUNCTUATION: tuple[str, ...] = tuple(form for text in _PUNCTUATION for form in (text, " " + text))
"""Each piece with and without a space before it."""
