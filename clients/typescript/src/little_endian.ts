import { endianness } from "node:os";

const HOST_IS_LITTLE = endianness() === "LE";

/**
 * Little-endian uint32 numbers, copied out: what gRPC gives lies at any offset, and in a Buffer, whose `slice` would not
 * copy. `bytes`: 4 for each.
 */
export function uint32Array(bytes: Uint8Array): Uint32Array {
  if (HOST_IS_LITTLE) return new Uint32Array(Uint8Array.from(bytes).buffer);
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  return Uint32Array.from({ length: bytes.length / 4 }, (_, index) => view.getUint32(4 * index, true));
}

/** Little-endian float64 numbers, copied out. `bytes`: 8 for each. */
export function float64Array(bytes: Uint8Array): Float64Array {
  if (HOST_IS_LITTLE) return new Float64Array(Uint8Array.from(bytes).buffer);
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  return Float64Array.from({ length: bytes.length / 8 }, (_, index) => view.getFloat64(8 * index, true));
}
