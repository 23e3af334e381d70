"""The samplers that depend on a model's own habits, on the real one: SmolLM2, 8 bits, with a daemon beside it."""

import json

import numpy as np
import pytest
from constraintd_client import ConstraintClient, greedy, mirostat_v2, ngram_penalty, sampler_config
from constraintd_runner.model import Decoder, ModelFolder
from tokenizers import Tokenizer

from tests.toy_runner import generate

STEPS = 2000
TAU = 3.0


class Model:
    """The model's logits behind any tokens that go on from those before."""

    def __init__(self, path):
        self._decoder = Decoder.open(ModelFolder.open(path), slots=1, max_length=STEPS + 200)
        self.tokenizer = Tokenizer.from_file(str(path / "tokenizer.json"))
        self.width = self._decoder.logits_width
        self._slot = None
        self._fed = 0

    def begin(self):
        if self._slot is not None:
            self._decoder.release(self._slot)
        self._slot, self._fed = self._decoder.acquire(), 0

    def logits(self, tokens):
        fresh = tokens[self._fed :]
        self._fed = len(tokens)
        if len(fresh) == 1:
            return self._decoder.decode([self._slot], fresh)[0]
        return self._decoder.prefill(self._slot, np.array(fresh, dtype=np.int64))


@pytest.fixture(scope="module")
def model(smollm2_folder):
    return Model(smollm2_folder)


@pytest.fixture
def client(daemon):
    with ConstraintClient(daemon) as client:
        yield client


def run(client, model, folder, prompt, sampler, count):
    """The tokens, and their surprisals as the daemon keeps them."""
    vocabulary = client.register_vocabulary(
        "tokenizer_json",
        folder / "tokenizer.json",
        logits_width=model.width,
        tokenizer_config=folder / "tokenizer_config.json",
    )
    tokens = model.tokenizer.encode(prompt).ids
    session = client.open_session(vocabulary.vocabulary_id, None, sampler=sampler, prompt_tokens=tokens)
    model.begin()
    taken = generate(client, session, tokens, count, model.logits)
    kept = client.get_session(session.session_id)
    client.close_session(session.session_id)
    assert list(kept.tokens) == taken
    return taken, list(kept.surprisals)


def test_mirostat_holds_the_mean_surprisal_at_tau(client, model, smollm2_folder):
    # min_tokens bans EOG for the whole run. All tokens are kept: this model's 100 most probable ones, the default, have
    # 1.8 to 2.9 bits in the long run, whatever mu is.
    stage = mirostat_v2(tau=TAU, max_keep=model.width)
    sampler = sampler_config(stage, seed=1, min_tokens=STEPS, max_tokens=STEPS)
    tokens, surprisals = run(client, model, smollm2_folder, "Once upon a time", sampler, STEPS)
    assert len(tokens) == STEPS
    assert abs(np.mean(surprisals) - TAU) <= 0.02 * TAU


def loops(tokens):
    """Whether the text ends in some run of up to 40 tokens three times over."""
    return any(tokens[-n:] == tokens[-2 * n : -n] == tokens[-3 * n : -2 * n] for n in range(1, 41))


def test_the_ngram_penalty_breaks_a_loop_of_greedy_decoding(client, model, smollm2_folder):
    prompt = "I love you because"
    plain = sampler_config(greedy(), min_tokens=150, max_tokens=150)
    mended = sampler_config(greedy(), min_tokens=150, max_tokens=150, ngram_penalty=ngram_penalty())
    (looping, _), (free, _) = (run(client, model, smollm2_folder, prompt, each, 150) for each in (plain, mended))
    print(json.dumps([model.tokenizer.decode(looping), model.tokenizer.decode(free)], indent=1))
    assert loops(looping)
    assert not loops(free)
