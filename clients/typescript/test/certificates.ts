import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { run } from "./processes.js";

const NEW_KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout"];

/** An authority of a test's own, and what it signs. Files are PEM. */
export class Authority {
  readonly #folder = mkdtempSync(join(tmpdir(), "constraintd-ts-ca-"));

  constructor() {
    this.#openssl("req", "-x509", ...NEW_KEY, this.key("ca"), "-out", this.certificate("ca"), "-subj", "/CN=test ca");
  }

  /** Signs a certificate for a host name; its files are then `certificate(name)` and `key(name)`. */
  sign(name: string, host: string): void {
    const [request, extensions] = [join(this.#folder, `${name}.csr`), join(this.#folder, `${name}.ext`)];
    writeFileSync(extensions, `subjectAltName=DNS:${host}\n`);
    this.#openssl("req", ...NEW_KEY, this.key(name), "-out", request, "-subj", `/CN=${host}`);
    const authority = ["-CA", this.certificate("ca"), "-CAkey", this.key("ca"), "-CAcreateserial", "-days", "2"];
    this.#openssl("x509", "-req", "-in", request, ...authority, "-extfile", extensions, "-out", this.certificate(name));
  }

  certificate(name: string): string {
    return join(this.#folder, `${name}.pem`);
  }

  key(name: string): string {
    return join(this.#folder, `${name}.key`);
  }

  clear(): void {
    rmSync(this.#folder, { recursive: true });
  }

  #openssl(...args: string[]): void {
    run("openssl", args);
  }
}
