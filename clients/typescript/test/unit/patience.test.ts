import assert from "node:assert/strict";
import { test } from "node:test";
import { Backoff, Cancelled, ConstraintdError, retrying, Unavailable } from "../../src/index.js";
import { Patience, pause } from "../../src/patience.js";
import { because } from "../refusals.js";

test("pauses double up to the cap, and begin anew after a success", () => {
  const backoff = new Backoff({ firstMs: 10, capMs: 50, random: () => 0.5 });
  assert.deepEqual(
    [1, 2, 3, 4, 5].map(() => backoff.nextPauseMs()),
    [5, 10, 20, 25, 25],
  );
  backoff.reset();
  assert.equal(backoff.nextPauseMs(), 5);
});

test("pauses are spread over the whole range", () => {
  const backoff = new Backoff({ firstMs: 100, capMs: 100 });
  const pauses = Array.from({ length: 500 }, () => backoff.nextPauseMs());
  assert.ok(Math.min(...pauses) < 10 && Math.max(...pauses) > 90 && Math.max(...pauses) < 100);
});

test("patience ends after its time, and is whole again after a success", () => {
  let now = 0;
  const backoff = new Backoff({ firstMs: 10, capMs: 10, random: () => 1 - Number.EPSILON });
  const patience = new Patience(100, { backoff, now: () => now });
  const error = new Unavailable("away");
  assert.ok(patience.nextPauseMs(error));
  now = 95;
  assert.equal(patience.nextPauseMs(error), undefined);
  patience.restore();
  assert.ok(patience.nextPauseMs(error));
});

test("the server's own delay is kept to, if it fits", () => {
  const patience = new Patience(1000, { now: () => 0 });
  assert.equal(patience.nextPauseMs(new ConstraintdError("full", { reason: "LIMIT_REACHED", retryDelayMs: 700 })), 700);
  assert.equal(
    patience.nextPauseMs(new ConstraintdError("full", { reason: "LIMIT_REACHED", retryDelayMs: 2000 })),
    undefined,
  );
});

test("a call is made again only for what passes by itself", async () => {
  const failures = [new Unavailable("away", { code: 14 }), new ConstraintdError("busy", { reason: "STEP_IN_FLIGHT" })];
  const call = async () => {
    const failure = failures.shift();
    if (failure) throw failure;
    return "there";
  };
  assert.equal(await retrying(call), "there");
  let calls = 0;
  const refused = async () => {
    calls += 1;
    throw new ConstraintdError("no", { reason: "STALE_EPOCH" });
  };
  await assert.rejects(retrying(refused), because("STALE_EPOCH"));
  const away = async () => {
    calls += 1;
    throw new Unavailable("away", { code: 14 });
  };
  await assert.rejects(retrying(away, { giveUp: () => true }), Unavailable);
  assert.equal(calls, 2);
});

test("waiting ends when its signal is aborted", async () => {
  const controller = new AbortController();
  const waiting = pause(60_000, controller.signal);
  controller.abort("enough");
  await assert.rejects(waiting, (error: Cancelled) => error instanceof Cancelled && error.cause === "enough");
  await assert.rejects(pause(60_000, AbortSignal.abort()), Cancelled);
});
