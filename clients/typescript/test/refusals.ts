import assert from "node:assert/strict";
import { ConstraintdError } from "../src/index.js";

/** Whether an error is ours, with this reason. */
export function because(reason: string): (error: unknown) => boolean {
  return (error) => {
    assert.ok(error instanceof ConstraintdError, `expected ${reason}, not ${error}`);
    assert.equal(error.reason, reason, error.message);
    return true;
  };
}
