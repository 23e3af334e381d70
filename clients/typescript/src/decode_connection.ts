import type { ClientDuplexStream } from "@grpc/grpc-js";
import { onceOver, openStream } from "./calls.js";
import type { ConstraintdError } from "./errors.js";
import { ConstraintService } from "./gen/constraintd/v1/constraint_service_pb.js";
import type { Targets } from "./transport.js";

/** One Decode call, of perhaps several that make up a `DecodeStream`. */
export class DecodeConnection {
  /** Where it leads. */
  readonly target: string;
  /** Whether the daemon has said that it reads no more here. */
  draining = false;
  readonly #call: ClientDuplexStream<Uint8Array, Buffer>;

  /**
   * Opens the call at the present address and sends its first message. `receive` gets every message, and may throw to
   * end the call; `over` is called once, with the call's error, or undefined for OK.
   */
  constructor(
    targets: Targets,
    hello: Uint8Array,
    receive: (message: Uint8Array) => void,
    over: (error: ConstraintdError | undefined) => void,
  ) {
    const wire = targets.wire();
    this.target = wire.target;
    this.#call = openStream(wire, targets, ConstraintService.method.decode);
    let unreadable: ConstraintdError | undefined;
    this.#call.on("data", (message: Buffer) => {
      try {
        if (!unreadable) receive(message);
      } catch (error) {
        unreadable = error as ConstraintdError;
        this.end();
      }
    });
    onceOver(this.#call, (error) => over(unreadable ?? error));
    this.write(hello);
  }

  /** Sends a message; on a call that has ended it goes nowhere. */
  write(message: Uint8Array): void {
    this.#call.write(message);
  }

  /** Ends the call. */
  end(): void {
    this.#call.cancel();
  }
}
