import type {
  ConstraintClient,
  DecodeStream,
  Generation,
  GenerationClient,
  GenerationEvent,
  Session,
} from "../src/index.js";

/** A mistake of the case, or of this adapter: nothing that the client said. */
export class AdapterError extends Error {}

/** A generation and its one iteration. */
export interface Running {
  readonly generation: Generation;
  readonly events: AsyncGenerator<GenerationEvent, void, undefined>;
}

/** What stands between two lines, each under the name that the case gave it. */
export class Held {
  readonly daemons = new Map<string, ConstraintClient>();
  readonly runners = new Map<string, GenerationClient>();
  readonly streams = new Map<string, DecodeStream>();
  readonly sessions = new Map<string, Session>();
  readonly generations = new Map<string, Running>();

  daemon({ client = "main" }: { readonly client?: string }): ConstraintClient {
    return named(this.daemons, client);
  }

  runner({ runner = "main" }: { readonly runner?: string }): GenerationClient {
    return named(this.runners, runner);
  }

  session({ session }: { readonly session: string }): Session {
    return named(this.sessions, session);
  }

  stream({ stream }: { readonly stream: string }): DecodeStream {
    return named(this.streams, stream);
  }

  running({ generation }: { readonly generation: string }): Running {
    return named(this.generations, generation);
  }

  /** Ends and forgets everything. */
  reset(): void {
    for (const { generation } of this.generations.values()) generation.cancel();
    for (const each of [...this.streams.values(), ...this.daemons.values(), ...this.runners.values()]) each.close();
    for (const all of [this.daemons, this.runners, this.streams, this.sessions, this.generations]) all.clear();
  }
}

function named<T>(all: ReadonlyMap<string, T>, name: string): T {
  const found = all.get(name);
  if (found === undefined) throw new AdapterError(`nothing is held under the name ${name}`);
  return found;
}
