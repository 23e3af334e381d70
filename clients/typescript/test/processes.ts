import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";

/** The package's folder; tests are run from there. */
export const PACKAGE = process.cwd();
/** Where `constraintd`, `constraintd-runner` and their `python` are. */
export const PROGRAMS = resolve(PACKAGE, process.env["CONSTRAINTD_BIN"] ?? "../../.venv/bin");

const LISTENS_WITHIN_MS = 60_000;
const STOPS_WITHIN_MS = 30_000;

/** A program of ours on a Unix socket: started, killed and started again as often as it takes. */
export class Served {
  readonly folder = mkdtempSync(join(tmpdir(), "constraintd-ts-"));
  readonly #folders = [this.folder];
  /** Where it listens: a Unix socket in its folder, or what it was told, with the port that it found. */
  address: string;
  readonly #command: readonly string[];
  #process: ChildProcess | undefined;

  private constructor(program: string, args: readonly string[], listen: string | undefined) {
    this.address = listen ?? `unix:${join(this.folder, "socket")}`;
    this.#command = [join(PROGRAMS, program), "serve", "--listen", this.address, ...args];
  }

  /** A daemon; `keeping`: its sessions outlive it. */
  static async daemon({ keeping = false, listen = "", args = [] as readonly string[] } = {}): Promise<Served> {
    const kept = keeping ? mkdtempSync(join(tmpdir(), "constraintd-ts-store-")) : undefined;
    const store = kept ? `sqlite:${join(kept, "sessions")}` : "memory";
    const served = new Served(
      "constraintd",
      ["--drain-seconds", "0.5", "--store", store, ...args],
      listen || undefined,
    );
    if (kept) served.#folders.push(kept);
    await served.start();
    return served;
  }

  /** A runner of a model folder. */
  static async runner(model: string, daemon: string): Promise<Served> {
    const args = ["--model", model, "--daemon", daemon, "--threads", "1"];
    const served = new Served("constraintd-runner", args, undefined);
    await served.start();
    return served;
  }

  /** What it has said to stderr so far. */
  get log(): string {
    return readFileSync(join(this.folder, "log"), "utf8");
  }

  /** Starts it, and waits until it listens. */
  async start(): Promise<void> {
    const [program = "", ...args] = this.#command;
    const started = spawn(program, args, { stdio: ["ignore", "pipe", "pipe"] });
    this.#process = started;
    writeFileSync(join(this.folder, "log"), "", { flag: "a" });
    started.stderr.on("data", (said) => writeFileSync(join(this.folder, "log"), said, { flag: "a" }));
    const line = await new Promise<string>((resolve, reject) => {
      const late = setTimeout(() => reject(new Error(`${program} does not listen: ${this.log}`)), LISTENS_WITHIN_MS);
      createInterface(started.stdout)
        .once("line", resolve)
        .once("line", () => clearTimeout(late));
      started.once("error", reject);
      started.once("exit", (code) => reject(new Error(`${program} ended with ${code}: ${this.log}`)));
    });
    if (!line.startsWith("listening on ")) throw new Error(`${program} said ${line}`);
    this.address = line.slice("listening on ".length);
  }

  /** SIGKILL: nothing is said or written any more. */
  async kill(): Promise<void> {
    await this.#end("SIGKILL");
  }

  /** SIGTERM; gives the exit status. */
  async stop(): Promise<number | null> {
    return await this.#end("SIGTERM");
  }

  /** Ends it if it runs, and removes its files. */
  async clear(): Promise<void> {
    await this.kill();
    for (const folder of this.#folders) rmSync(folder, { recursive: true, force: true });
  }

  async #end(signal: NodeJS.Signals): Promise<number | null> {
    const ending = this.#process;
    this.#process = undefined;
    if (!ending || ending.exitCode !== null || ending.signalCode !== null) return ending?.exitCode ?? null;
    const ended = new Promise<number | null>((resolve) => ending.once("exit", resolve));
    ending.kill(signal);
    const late = setTimeout(() => ending.kill("SIGKILL"), STOPS_WITHIN_MS);
    const code = await ended;
    clearTimeout(late);
    return code;
  }
}

/** Writes the folder of a tiny random decoder with a real tokenizer; gives its path. */
export function tinyModel(): string {
  const folder = mkdtempSync(join(tmpdir(), "constraintd-ts-model-"));
  run(join(PROGRAMS, "python"), [join(PACKAGE, "test", "write_tiny_model.py"), folder]);
  return folder;
}

/** Runs a program to its end; gives its standard output. Throws if it fails. */
export function run(program: string, args: readonly string[]): string {
  const { status, error, stdout, stderr } = spawnSync(program, args, { encoding: "utf8" });
  if (error || status !== 0) throw error ?? new Error(`${program} ended with ${status}: ${stderr}`);
  return stdout;
}
