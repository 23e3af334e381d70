import {
  create,
  type DescMessage,
  type DescMethod,
  type DescMethodBiDiStreaming,
  type DescMethodClientStreaming,
  type DescMethodServerStreaming,
  type DescMethodUnary,
  fromBinary,
  type MessageInitShape,
  type MessageShape,
  toBinary,
} from "@bufbuild/protobuf";
import {
  type CallOptions,
  type Client,
  type ClientDuplexStream,
  type ServiceError,
  type StatusObject,
  status,
} from "@grpc/grpc-js";
import {
  Cancelled,
  type ConstraintdError,
  fromServiceError,
  lostItsServer,
  MalformedAnswer,
  Unavailable,
} from "./errors.js";
import { LONGEST_TIMER_MS } from "./patience.js";
import type { Targets, Wire } from "./transport.js";

/** What every call takes. */
export interface AskOptions {
  /** Milliseconds for the whole call. */
  readonly timeoutMs?: number | undefined;
  /** Cancels it. */
  readonly signal?: AbortSignal | undefined;
}

/** gRPC gives us bytes and takes bytes, so that a message that can't be written or read is our error and not its. */
const asBuffer = (bytes: Uint8Array) => Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
const asIs = (bytes: Buffer) => bytes;

/** Asks once and gives the answer. Rejects with a `ConstraintdError`; with what protobuf throws for a bad request. */
export function ask<I extends DescMessage, O extends DescMessage>(
  targets: Targets,
  method: DescMethodUnary<I, O>,
  request: MessageInitShape<I>,
  options: AskOptions,
): Promise<MessageShape<O>> {
  return promised(targets, method, options, (client, done) => {
    const bytes = toBinary(method.input, create(method.input, request));
    return client.makeUnaryRequest(
      pathOf(method),
      asBuffer,
      asIs,
      bytes,
      targets.metadata(),
      callOptions(options),
      done,
    );
  });
}

/** Sends all the requests and gives the answer to them. */
export function upload<I extends DescMessage, O extends DescMessage>(
  targets: Targets,
  method: DescMethodClientStreaming<I, O>,
  requests: Iterable<MessageInitShape<I>>,
  options: AskOptions,
): Promise<MessageShape<O>> {
  return promised(targets, method, options, (client, done) => {
    const messages = Array.from(requests, (request) => toBinary(method.input, create(method.input, request)));
    const metadata = targets.metadata();
    const call = client.makeClientStreamRequest(pathOf(method), asBuffer, asIs, metadata, callOptions(options), done);
    for (const message of messages) call.write(message);
    call.end();
    return call;
  });
}

/** A stream of answers that runs already: iterate over it once, or cancel it. */
export interface Answers<T> extends AsyncIterable<T> {
  /** Where it runs. */
  readonly target: string;
  /** Ends it; whoever iterates gets `Cancelled`. */
  cancel(): void;
}

/** Asks once and gives the answers as they come. They wait here for their reader, who never holds the server back. */
export function askForStream<I extends DescMessage, O extends DescMessage>(
  targets: Targets,
  method: DescMethodServerStreaming<I, O>,
  request: MessageInitShape<I>,
  options: AskOptions,
): Answers<MessageShape<O>> {
  const bytes = toBinary(method.input, create(method.input, request));
  const { client, target } = targets.wire();
  const { signal } = options;
  const call = client.makeServerStreamRequest(
    pathOf(method),
    asBuffer,
    asIs,
    bytes,
    targets.metadata(),
    callOptions(options),
  );
  const arrived: Buffer[] = [];
  let over: { readonly error: ConstraintdError | undefined } | undefined;
  let wake = () => {};
  let stopped = false;
  const stop = () => {
    stopped = true;
    call.cancel();
  };
  const untrack = targets.track(stop);
  call.on("data", (message: Buffer) => {
    arrived.push(message);
    wake();
  });
  onceOver(call, (error) => {
    signal?.removeEventListener("abort", stop);
    untrack();
    over = { error: error && failed(error, signal, targets, target, stopped) };
    wake();
  });
  if (signal?.aborted) stop();
  else signal?.addEventListener("abort", stop, { once: true });
  async function* iterate(): AsyncGenerator<MessageShape<O>, void, undefined> {
    try {
      for (;;) {
        const next = arrived.shift();
        if (next) yield readMessage(method.output, next);
        else if (over?.error) throw over.error;
        else if (over) return;
        else {
          await new Promise<void>((resolve) => {
            wake = resolve;
          });
        }
      }
    } finally {
      stop(); // changes nothing once it has ended
    }
  }
  return { target, cancel: stop, [Symbol.asyncIterator]: iterate };
}

/** A two-way stream of bytes. */
export function openStream(
  wire: Wire,
  targets: Targets,
  method: DescMethodBiDiStreaming,
): ClientDuplexStream<Uint8Array, Buffer> {
  return wire.client.makeBidiStreamRequest(pathOf(method), asBuffer, asIs, targets.metadata());
}

/** Calls back once the call has ended and all that came of it was given out: with its error, or undefined for OK. */
export function onceOver(
  call: {
    on(event: "end", listener: () => void): unknown;
    on(event: "error", listener: (error: ServiceError) => void): unknown;
    on(event: "status", listener: (status: StatusObject) => void): unknown;
  },
  over: (error: ConstraintdError | undefined) => void,
): void {
  let ended = false;
  let finished = false;
  let failure: ConstraintdError | undefined;
  const check = () => {
    if (ended && finished) over(failure);
  };
  call.on("end", () => {
    ended = true;
    check();
  });
  call.on("error", (error) => {
    // What Node's streams say themselves, such as of a write behind the end, has no gRPC code.
    const told = typeof error.code === "number" ? fromServiceError(error) : broken(error);
    failure ??= told;
  });
  call.on("status", () => {
    finished = true;
    check();
  });
}

function broken(cause: Error): Unavailable {
  return new Unavailable(cause.message, { code: status.UNAVAILABLE, cause });
}

/** Reads a message. Throws `MalformedAnswer` if it can't be read. */
export function readMessage<O extends DescMessage>(schema: O, bytes: Uint8Array): MessageShape<O> {
  try {
    return fromBinary(schema, bytes);
  } catch (error) {
    throw new MalformedAnswer(`the answer can't be read as ${schema.typeName}: ${String(error)}`, { cause: error });
  }
}

function promised<O extends DescMessage>(
  targets: Targets,
  method: { readonly output: O },
  { signal }: AskOptions,
  start: (client: Client, done: (error: ServiceError | null, answer?: Buffer) => void) => { cancel(): void },
): Promise<MessageShape<O>> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) throw new Cancelled("the call was cancelled", { cause: signal.reason });
    const stop = () => call.cancel();
    const { client, target } = targets.wire();
    const call = start(client, (error, answer) => {
      signal?.removeEventListener("abort", stop);
      untrack();
      try {
        if (error) throw failed(fromServiceError(error), signal, targets, target);
        resolve(readMessage(method.output, answer ?? new Uint8Array()));
      } catch (failure) {
        reject(failure);
      }
    });
    const untrack = targets.track(stop);
    signal?.addEventListener("abort", stop, { once: true });
  });
}

/**
 * The error of a call at a target, which is left if another one may do better. What this side ended itself is told
 * apart from what a server cancelled: nobody need try that again.
 */
function failed(
  error: ConstraintdError,
  signal: AbortSignal | undefined,
  targets: Targets,
  target: string,
  stopped = false,
): ConstraintdError {
  if (error instanceof Cancelled && signal?.aborted) {
    return new Cancelled("the call was cancelled", { cause: signal.reason });
  }
  if (error instanceof Cancelled && targets.closed) return new Cancelled("the client was closed");
  const byThisSide = stopped && error instanceof Cancelled; // which tells nothing of the address
  if (lostItsServer(error) && !byThisSide) targets.leave(target);
  return error;
}

function pathOf(method: DescMethod): string {
  return `/${method.parent.typeName}/${method.name}`;
}

function callOptions({ timeoutMs }: AskOptions): CallOptions {
  if (timeoutMs === undefined || timeoutMs > LONGEST_TIMER_MS) return {};
  return { deadline: Date.now() + Math.max(timeoutMs, 0) };
}
