import assert from "node:assert/strict";
import { readdirSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { PACKAGE, run, Served, tinyModel } from "../processes.js";

describe("the examples", () => {
  let model: string;
  let daemon: Served;
  let runner: Served;

  before(async () => {
    model = tinyModel();
    daemon = await Served.daemon();
    runner = await Served.runner(model, daemon.address);
  });
  after(async () => {
    await runner.clear();
    await daemon.clear();
    rmSync(model, { recursive: true });
  });

  const example = (name: string, target: string) =>
    run(process.execPath, [join(PACKAGE, "build/examples", `${name}.js`), target]);

  test("JSON under a schema is streamed from a runner", () => {
    const [text = "", end] = example("stream_json", runner.address).split("\n");
    // A model of random weights may not have closed its string by the hundredth token.
    if (end?.startsWith("LENGTH")) assert.match(text, /^\{"name":/);
    else assert.deepEqual(Object.keys(JSON.parse(text)), ["name", "age"]);
    assert.match(end ?? "", /^[A-Z_]+, \d+ tokens$/);
  });

  test("a runner of one's own writes dates", () => {
    const dates = example("own_runner", daemon.address).trim().split("\n");
    assert.equal(dates.length, 3);
    for (const date of dates) assert.match(date, /^(19|20)\d\d-\d\d-\d\d$/);
  });

  test("the README's code is the examples' own", () => {
    const examples = readdirSync(join(PACKAGE, "examples")).map((name) =>
      readFileSync(join(PACKAGE, "examples", name), "utf8"),
    );
    const blocks = readFileSync(join(PACKAGE, "README.md"), "utf8").matchAll(/```ts\n(.*?)```/gs);
    const code = [...blocks].map(([, block = ""]) => block);
    assert.ok(code.length >= 2);
    for (const block of code)
      assert.ok(
        examples.some((text) => text.includes(block)),
        `in no example: ${block}`,
      );
  });
});
