"""One run on the real model: SmolLM2, 8 bits, two processes."""

from __future__ import annotations

import json

import jsonschema
from constraintd_client import GenerationClient, greedy, json_schema, sampler_config

from tests.daemon_process import daemon_process
from tests.runner_process import runner_process

SCHEMA = {
    "type": "object",
    "properties": {
        "capital": {"type": "string", "minLength": 1, "maxLength": 30},
        "population": {"type": "integer", "minimum": 0},
        "in_europe": {"type": "boolean"},
    },
    "required": ["capital", "population", "in_europe"],
    "additionalProperties": False,
}


def test_a_real_model_answers_in_valid_json_and_knows_the_capital_of_france(smollm2_folder):
    question = "What is the capital of France? Answer as JSON with capital, population and in_europe."
    with daemon_process() as daemon, runner_process(smollm2_folder, daemon) as address:
        with GenerationClient(address) as client:
            generation = client.generate(
                [{"role": "user", "content": question}],
                constraint=json_schema(SCHEMA),
                sampler=sampler_config(greedy(), max_tokens=200),
                timeout=120,
            ).wait()
    answer = json.loads(generation.text)
    jsonschema.validate(answer, SCHEMA)
    assert answer["capital"] == "Paris"
    assert not generation.finish.constraint_incomplete
