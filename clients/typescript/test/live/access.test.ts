import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { type ClientOptions, ConstraintClient, Unavailable, unconstrained } from "../../src/index.js";
import { BYTE_VOCABULARY } from "../../toy/byte_vocabulary.js";
import { Authority } from "../certificates.js";
import { PROGRAMS, run, Served } from "../processes.js";
import { because } from "../refusals.js";

describe("a daemon with TLS that asks for a client certificate and a token", () => {
  const folder = mkdtempSync(join(tmpdir(), "constraintd-ts-tokens-"));
  const tokens = join(folder, "tokens");
  const ours = new Authority();
  const strangers = new Authority();
  let daemon: Served;
  let token: string;
  let expired: string;

  const newToken = (name: string, ...args: string[]) =>
    run(join(PROGRAMS, "constraintd"), ["token", name, "--append", tokens, ...args]).trim();

  before(async () => {
    ours.sign("server", "daemon.test");
    for (const authority of [ours, strangers]) authority.sign("client", "client.test");
    token = newToken("mine");
    const until = new Date(Date.now() + 3000);
    expired = newToken("old", "--until", `${until.toISOString().slice(0, 19)}Z`);
    const tls = ["--tls-cert", ours.certificate("server"), "--tls-key", ours.key("server")];
    const asked = ["--tls-client-ca", ours.certificate("ca"), "--tokens-file", tokens];
    daemon = await Served.daemon({ listen: "127.0.0.1:0", args: [...tls, ...asked] });
    await new Promise((resolve) => setTimeout(resolve, Math.max(0, until.getTime() - Date.now())));
  });
  after(async () => {
    await daemon.clear();
    ours.clear();
    strangers.clear();
    rmSync(folder, { recursive: true });
  });

  const certificateOf = (authority: Authority) => ({
    certificateFile: authority.certificate("client"),
    keyFile: authority.key("client"),
  });
  const right = () => ({ caFile: ours.certificate("ca"), serverName: "daemon.test", ...certificateOf(ours) });

  async function ask(options: ClientOptions): Promise<string> {
    using client = new ConstraintClient(daemon.address, { timeoutMs: 10_000, ...options });
    return (await client.serverInfo()).version;
  }

  test("serves who has all of it, unary calls and streams", async () => {
    using client = new ConstraintClient(daemon.address, { tls: right(), token });
    const vocabulary = await client.registerTokenTable(BYTE_VOCABULARY);
    const session = await client.openSession({ vocabularyId: vocabulary.vocabularyId, constraint: unconstrained() });
    using stream = await client.decodeStream(vocabulary);
    stream.send([{ session, tokens: [1, 2], surprisals: [0, 0] }]);
    assert.equal((await stream.take(session)).position, 2);
  });

  test("refuses a missing, unknown or expired token with its reason, on streams at once", async () => {
    for (const wrong of [{}, { token: "unknown" }, { token: expired }]) {
      await assert.rejects(ask({ tls: right(), ...wrong }), because("UNAUTHENTICATED"));
    }
    let present = token;
    using client = new ConstraintClient(daemon.address, { tls: right(), token: () => present });
    const vocabulary = await client.registerTokenTable(BYTE_VOCABULARY);
    const session = await client.openSession({ vocabularyId: vocabulary.vocabularyId, constraint: unconstrained() });
    using stream = await client.decodeStream(vocabulary);
    present = expired;
    stream.send([{ session, tokens: [1], surprisals: [0] }]);
    await assert.rejects(stream.take(session), because("UNAUTHENTICATED"));
    present = token;
    stream.reconnect();
    assert.equal((await stream.take(session)).position, 1);
  });

  test("takes a token out of a file, as it stands there now", async () => {
    const tokenFile = join(folder, "token");
    writeFileSync(tokenFile, `${expired}\n`);
    using client = new ConstraintClient(daemon.address, { tls: right(), tokenFile });
    await assert.rejects(client.serverInfo(), because("UNAUTHENTICATED"));
    writeFileSync(tokenFile, `${token}\n`);
    assert.match((await client.serverInfo()).version, /^\d/);
    assert.throws(() => new ConstraintClient(daemon.address, { tokenFile, token }), /either token or tokenFile/);
  });

  test("is not trusted if another authority signed it, nor under another name", async () => {
    const { serverName: _, ...nameless } = right();
    for (const tls of [{ ...right(), caFile: strangers.certificate("ca") }, nameless]) {
      await assert.rejects(ask({ tls, token }), Unavailable);
    }
  });

  test("turns away who has no certificate, a stranger's, or speaks plaintext", async () => {
    const { certificateFile: _c, keyFile: _k, ...without } = right();
    await assert.rejects(ask({ tls: without, token }), Unavailable);
    await assert.rejects(ask({ tls: { ...without, ...certificateOf(strangers) }, token }), Unavailable);
    await assert.rejects(ask({ token }), Unavailable);
  });
});
