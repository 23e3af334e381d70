import { randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import { isIP } from "node:net";
import { type ChannelCredentials, type ChannelOptions, Client, credentials, Metadata } from "@grpc/grpc-js";

/** By its value a proxy in front of several daemons keeps a client's stream and unary calls at one of them. */
export const AFFINITY_HEADER = "x-constraintd-affinity";

/** How to encrypt. Files hold PEM. */
export interface TlsOptions {
  /** Certificates of the authorities that may have signed the server's. Default: those that Node trusts. */
  readonly caFile?: string;
  /** This client's own certificate chain, for mutual TLS; with `keyFile`. */
  readonly certificateFile?: string;
  /** The key of `certificateFile`. */
  readonly keyFile?: string;
  /** The name that the server's certificate must have. Default: the target's host. */
  readonly serverName?: string;
}

/** How every client of this package connects. */
export interface ConnectOptions {
  /** Encrypts, except to Unix sockets. Default: plaintext. */
  readonly tls?: TlsOptions;
  /**
   * Sent with every call as `authorization: Bearer ...`; a function is asked for each call, for tokens that change. A
   * target that is neither encrypted nor a Unix socket or loopback is refused, unless `tokenOverPlaintext`.
   */
  readonly token?: string | (() => string);
  /** In place of `token`: the file that holds it, read for each call, so that it can be renewed there. */
  readonly tokenFile?: string;
  /** Says out loud that the token may be read on the way. Default: false. */
  readonly tokenOverPlaintext?: boolean;
  /** The value of the header x-constraintd-affinity. Default: a random one, one a client. */
  readonly affinity?: string;
  /** gRPC channel options; they override this client's by name. */
  readonly channelOptions?: ChannelOptions;
}

const CHANNEL_OPTIONS: ChannelOptions = {
  // The server's own limits are smaller and answer with a typed error; the transport's would only break the call.
  "grpc.max_send_message_length": -1,
  "grpc.max_receive_message_length": -1,
  // A daemon that restarts is back within a second; gRPC's defaults would look again after up to two minutes.
  "grpc.initial_reconnect_backoff_ms": 100,
  "grpc.max_reconnect_backoff_ms": 1000,
  // A machine that vanished without a word is noticed, whether or not a call is running.
  "grpc.keepalive_time_ms": 30_000,
  "grpc.keepalive_timeout_ms": 10_000,
  "grpc.keepalive_permit_without_calls": 1,
  // Each client has its own connection, so that one that is broken or busy is no other's concern.
  "grpc.use_local_subchannel_pool": 1,
  // Nobody publishes a service config for us in DNS.
  "grpc.service_config_disable_resolution": 1,
};

/** One address with what is open to it. */
export interface Wire {
  readonly target: string;
  readonly client: Client;
}

/** The addresses of one service, one of them the present one. What was opened for each stays open until `close`. */
export class Targets {
  readonly #targets: readonly string[];
  readonly #open: (target: string) => Client;
  readonly #token: (() => string) | undefined;
  readonly #affinity: string;
  readonly #wires = new Map<string, Wire>();
  readonly #running = new Set<() => void>();
  #present = 0;
  #closed = false;

  /**
   * One address or several, to be tried in this order and round again. Throws TypeError for none, for an unusable
   * header, and for a token that would go over plaintext; a system error for a file that can't be read.
   */
  constructor(targets: string | readonly string[], options: ConnectOptions) {
    this.#targets = typeof targets === "string" ? [targets] : [...targets];
    if (this.#targets.length === 0 || this.#targets.includes("")) {
      throw new TypeError('a target is needed, as "unix:/path" or "host:port"');
    }
    this.#token = tokenSource(options);
    if (this.#token && !options.tls && !options.tokenOverPlaintext) {
      for (const target of this.#targets.filter((each) => !staysOnThisMachine(each))) {
        throw new TypeError(
          `the token would go to ${target} unencrypted: give tls, or say tokenOverPlaintext if that is meant`,
        );
      }
    }
    this.#affinity = options.affinity ?? randomBytes(16).toString("hex");
    this.metadata(); // an unusable token or affinity shows here, not at the first call
    const channelCredentials = credentialsOf(options.tls);
    const channelOptions = { ...CHANNEL_OPTIONS, ...serverNameOptions(options.tls), ...options.channelOptions };
    // Servers don't encrypt on Unix sockets.
    const credentialsFor = (target: string) => (isSocket(target) ? credentials.createInsecure() : channelCredentials);
    this.#open = (target) => new Client(target, credentialsFor(target), channelOptions);
  }

  /** The address in use. */
  get present(): string {
    return this.#targets[this.#present] as string;
  }

  /** What is open to the present address; opened on the first use. Throws once the client is closed. */
  wire(): Wire {
    if (this.#closed) throw new Error("the client is closed");
    const target = this.present;
    let wire = this.#wires.get(target);
    if (!wire) {
      wire = { target, client: this.#open(target) };
      this.#wires.set(target, wire);
    }
    return wire;
  }

  /** Whether `close` was called. */
  get closed(): boolean {
    return this.#closed;
  }

  /** Goes on to the next address, unless somebody else has left this one already. */
  leave(target: string): void {
    if (this.present === target) this.#present = (this.#present + 1) % this.#targets.length;
  }

  /** The headers of a call. Throws TypeError for a token that can't be one. */
  metadata(): Metadata {
    const metadata = new Metadata();
    metadata.set(AFFINITY_HEADER, headerValue(this.#affinity, "affinity"));
    if (this.#token) metadata.set("authorization", `Bearer ${headerValue(this.#token(), "token")}`);
    return metadata;
  }

  /** Has `close` cancel a call, too; gives what is to be called when that has ended. */
  track(cancel: () => void): () => void {
    const entry = () => cancel();
    this.#running.add(entry);
    return () => this.#running.delete(entry);
  }

  /** Ends all calls and connections, for good. */
  close(): void {
    this.#closed = true;
    for (const cancel of [...this.#running]) cancel(); // gRPC's own close would let them run on
    for (const { client } of this.#wires.values()) client.close();
    this.#wires.clear();
  }
}

/** Whether what is sent to a target can be read on this machine alone: a Unix socket or a loopback address. */
export function staysOnThisMachine(target: string): boolean {
  if (isSocket(target)) return true;
  const address = target.replace(/^(dns|ipv4|ipv6):(\/\/\/?)?/, "");
  const host = address.match(/^\[([^\]]*)\](:\d+)?$/)?.[1] ?? address.replace(/:\d+$/, "");
  return host === "localhost" || host === "::1" || (isIP(host) === 4 && host.startsWith("127."));
}

function isSocket(target: string): boolean {
  return /^unix(-abstract)?:/.test(target);
}

function tokenSource({ token, tokenFile }: ConnectOptions): (() => string) | undefined {
  if (token !== undefined && tokenFile !== undefined) throw new TypeError("give either token or tokenFile, not both");
  if (tokenFile !== undefined) return () => readFileSync(tokenFile, "utf8").trim();
  return typeof token === "string" ? () => token : token;
}

function headerValue(value: string, name: string): string {
  // Whitespace at either end would be taken off on the way; the rest is what HTTP/2 carries unchanged.
  if (typeof value !== "string" || !/^[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?$/.test(value)) {
    throw new TypeError(`the ${name} is no header value: expected printable ASCII, not empty, no space at its ends`);
  }
  return value;
}

function credentialsOf(tls: TlsOptions | undefined): ChannelCredentials {
  if (!tls) return credentials.createInsecure();
  const read = (path: string | undefined) => (path === undefined ? null : readFileSync(path));
  if ((tls.certificateFile === undefined) !== (tls.keyFile === undefined)) {
    throw new TypeError("mutual TLS takes certificateFile and keyFile; one of them is missing");
  }
  return credentials.createSsl(read(tls.caFile), read(tls.keyFile), read(tls.certificateFile));
}

function serverNameOptions(tls: TlsOptions | undefined): ChannelOptions {
  if (tls?.serverName === undefined) return {};
  return { "grpc.ssl_target_name_override": tls.serverName, "grpc.default_authority": tls.serverName };
}
