import assert from "node:assert/strict";
import { test } from "node:test";
import { create, toBinary } from "@bufbuild/protobuf";
import { anyPack, durationFromMs } from "@bufbuild/protobuf/wkt";
import { Metadata, type ServiceError, status } from "@grpc/grpc-js";
import { fromServiceError, fromStepError } from "../../src/errors.js";
import { ErrorReason } from "../../src/gen/constraintd/v1/error_pb.js";
import { StepErrorSchema } from "../../src/gen/constraintd/v1/session_pb.js";
import { ErrorInfoSchema, RetryInfoSchema } from "../../src/gen/google/rpc/error_details_pb.js";
import { StatusSchema } from "../../src/gen/google/rpc/status_pb.js";
import { Cancelled, ConstraintdError, DeadlineExceeded, Unavailable } from "../../src/index.js";

interface Details {
  reason?: string;
  domain?: string;
  metadata?: Record<string, string>;
  retryMs?: number;
}

function refusal(code: status, details?: Details): ServiceError {
  const metadata = new Metadata();
  if (details) {
    const { reason = "", domain = "constraintd", retryMs } = details;
    const packed = [
      anyPack(ErrorInfoSchema, create(ErrorInfoSchema, { reason, domain, metadata: details.metadata ?? {} })),
    ];
    if (retryMs !== undefined) {
      packed.push(anyPack(RetryInfoSchema, create(RetryInfoSchema, { retryDelay: durationFromMs(retryMs) })));
    }
    const bytes = toBinary(StatusSchema, create(StatusSchema, { code, details: packed }));
    metadata.set("grpc-status-details-bin", Buffer.from(bytes));
  }
  return Object.assign(new Error("told"), { code, details: "told", metadata });
}

test("reason, metadata and delay come from the details", () => {
  const metadata = { field: "sampler.seed", location: "1:2", expected_position: "7" };
  const error = fromServiceError(
    refusal(status.RESOURCE_EXHAUSTED, { reason: "LIMIT_REACHED", metadata, retryMs: 250 }),
  );
  assert.equal(error.reason, "LIMIT_REACHED");
  assert.equal(error.code, status.RESOURCE_EXHAUSTED);
  assert.equal(error.message, "LIMIT_REACHED: told");
  assert.equal(error.retryDelayMs, 250);
  assert.deepEqual([error.field, error.location, error.expectedPosition], ["sampler.seed", "1:2", 7]);
});

test("a reason that this client does not know is told as it is", () => {
  const error = fromServiceError(refusal(status.FAILED_PRECONDITION, { reason: "MOON_TOO_FULL" }));
  assert.deepEqual([error.reason, error.constructor, error.retryable], ["MOON_TOO_FULL", ConstraintdError, false]);
  assert.equal(fromStepError(create(StepErrorSchema, { reason: 999 as ErrorReason, message: "?" })).reason, "999");
});

test("somebody else's details are not taken for ours", () => {
  const error = fromServiceError(refusal(status.INTERNAL, { reason: "INTERNAL", domain: "example.org" }));
  assert.deepEqual([error.reason, error.constructor, error.retryable], ["", Unavailable, true]);
  const garbled = refusal(status.INVALID_ARGUMENT);
  garbled.metadata.set("grpc-status-details-bin", Buffer.from([255, 255, 255]));
  assert.equal(fromServiceError(garbled).reason, "");
});

test("the transport's own failures are classes", () => {
  const classOf = (code: status) => fromServiceError(refusal(code)).constructor;
  assert.equal(classOf(status.UNAVAILABLE), Unavailable);
  assert.equal(classOf(status.INTERNAL), Unavailable);
  assert.equal(classOf(status.DEADLINE_EXCEEDED), DeadlineExceeded);
  assert.equal(classOf(status.CANCELLED), Cancelled);
  assert.equal(classOf(status.UNIMPLEMENTED), ConstraintdError);
  assert.equal(
    fromServiceError(refusal(status.UNAVAILABLE, { reason: "DAEMON_UNAVAILABLE" })).constructor,
    Unavailable,
  );
});

test("which errors are worth the same call again", () => {
  const retryable = (code: status, reason?: string) =>
    fromServiceError(refusal(code, reason === undefined ? undefined : { reason })).retryable;
  assert.ok(retryable(status.UNAVAILABLE));
  assert.ok(retryable(status.UNAVAILABLE, "STORE_UNAVAILABLE"));
  assert.ok(retryable(status.UNAVAILABLE, "SOMETHING_NEW"));
  assert.ok(retryable(status.CANCELLED));
  assert.ok(retryable(status.ABORTED, "STEP_IN_FLIGHT"));
  assert.ok(retryable(status.RESOURCE_EXHAUSTED, "LIMIT_REACHED"));
  assert.ok(retryable(status.INTERNAL));
  assert.ok(!retryable(status.INTERNAL, "INTERNAL"));
  assert.ok(!retryable(status.INTERNAL, "MODEL_FAILED"));
  assert.ok(!retryable(status.ABORTED, "STALE_EPOCH"));
  assert.ok(!retryable(status.DEADLINE_EXCEEDED));
  assert.ok(!retryable(status.RESOURCE_EXHAUSTED));
  assert.ok(!new Cancelled("by the caller").retryable);
});

test("a refused step has its particulars", () => {
  const conflict = fromStepError(
    create(StepErrorSchema, { reason: ErrorReason.POSITION_CONFLICT, message: "other", loggedTokens: [17, 4] }),
  );
  assert.deepEqual(
    [conflict.reason, conflict.code, [...conflict.loggedTokens]],
    ["POSITION_CONFLICT", undefined, [17, 4]],
  );
  const gap = fromStepError(
    create(StepErrorSchema, {
      reason: ErrorReason.POSITION_GAP,
      message: "gap",
      expectedPosition: 0n,
      illegalIndex: 0,
    }),
  );
  assert.deepEqual([gap.expectedPosition, gap.illegalIndex, [...gap.loggedTokens]], [0, 0, []]);
  assert.equal(fromStepError(create(StepErrorSchema, {})).reason, "");
});
