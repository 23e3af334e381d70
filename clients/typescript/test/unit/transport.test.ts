import assert from "node:assert/strict";
import { test } from "node:test";
import { AFFINITY_HEADER, ConstraintClient } from "../../src/index.js";
import { staysOnThisMachine, Targets } from "../../src/transport.js";

test("only Unix sockets and loopback addresses stay on this machine", () => {
  for (const target of [
    ...["unix:/tmp/a", "unix:a", "unix:///tmp/a", "unix-abstract:a"],
    ...["localhost:1", "127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "dns:///localhost:1", "ipv4:127.0.0.1:1", "localhost"],
  ]) {
    assert.ok(staysOnThisMachine(target), target);
  }
  for (const target of [
    ...[
      "example.org:1",
      "10.0.0.1:1",
      "127.0.0.1.example.org:1",
      "[::2]:1",
      "dns:///example.org:1",
      "localhost.evil:1",
    ],
    ...[
      "dns://127.0.0.1/example.org:1",
      "xds:///localhost:1",
      "127.1:1",
      "0.0.0.0:1",
      "ipv4:127.0.0.1:1,10.0.0.1:1",
      "",
    ],
  ]) {
    assert.ok(!staysOnThisMachine(target), target);
  }
});

test("a token is not taken along over plaintext, unless that is said", () => {
  const targets = ["unix:/tmp/a", "example.org:50051"];
  assert.throws(() => new Targets(targets, { token: "t" }), /the token would go to example.org:50051 unencrypted/);
  new Targets(targets, { token: "t", tls: {} });
  new Targets(targets, { token: "t", tokenOverPlaintext: true });
  new Targets("unix:/tmp/a", { token: "t" });
});

test("a token that would break the header is refused without being shown", () => {
  for (const token of ["", " secret", "secret\nsecret", "sécret secret"]) {
    assert.throws(
      () => new Targets("unix:/tmp/a", { token }),
      (error: Error) => {
        assert.match(error.message, /the token is no header value/);
        assert.ok(!error.message.includes("secret"));
        return true;
      },
    );
  }
});

test("the headers of a call: affinity always, the token as it is now", () => {
  const tokens = ["first", "second", "third"];
  const targets = new Targets("unix:/tmp/a", { token: () => tokens.shift() ?? "" });
  assert.deepEqual(targets.metadata().get("authorization"), ["Bearer second"]);
  assert.deepEqual(targets.metadata().get("authorization"), ["Bearer third"]);
  assert.deepEqual(new Targets("unix:/tmp/a", { affinity: "mine" }).metadata().get(AFFINITY_HEADER), ["mine"]);
  const affinity = () => new Targets("unix:/tmp/a", {}).metadata().get(AFFINITY_HEADER)[0];
  assert.match(String(affinity()), /^[0-9a-f]{32}$/);
  assert.notEqual(affinity(), affinity());
});

test("the next address is used once somebody has left the present one, and the first again after the last", () => {
  const client = new ConstraintClient(["unix:/tmp/a", "unix:/tmp/b"]);
  client.leave("unix:/tmp/b"); // nobody is there
  assert.equal(client.target, "unix:/tmp/a");
  client.leave("unix:/tmp/a");
  client.leave("unix:/tmp/a"); // the second who noticed
  assert.equal(client.target, "unix:/tmp/b");
  client.leave("unix:/tmp/b");
  assert.equal(client.target, "unix:/tmp/a");
});

test("unusable options are refused at once", () => {
  assert.throws(() => new ConstraintClient([]), /a target is needed/);
  assert.throws(() => new ConstraintClient(""), /a target is needed/);
  assert.throws(() => new ConstraintClient("a:1", { tls: { certificateFile: "x" } }), /one of them is missing/);
  assert.throws(() => new ConstraintClient("a:1", { tls: { caFile: "/no/such/file" } }), /ENOENT/);
});

test("a closed client calls nobody", async () => {
  const client = new ConstraintClient("unix:/tmp/a");
  client.close();
  await assert.rejects(client.serverInfo(), /the client is closed/);
});
