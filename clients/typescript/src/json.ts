/** Text as it is, or UTF-8 bytes, which stay as they are for the daemon to judge. */
export type Text = string | Uint8Array;

/**
 * A JSON document: its text, UTF-8 bytes, or a value. Member order is meaning, and JavaScript puts members whose names
 * are whole numbers first: give a document that has such names as text.
 */
export type JsonDocument = Text | boolean | readonly unknown[] | { readonly [key: string]: unknown };

const encoder = new TextEncoder();

/** The text's bytes. Throws TypeError for what is no text, or has half of a surrogate pair in it. */
export function utf8(text: Text): Uint8Array {
  if (text instanceof Uint8Array) return text;
  if (typeof text !== "string") throw new TypeError(`expected a string or a Uint8Array, not ${kindOf(text)}`);
  const bytes = encoder.encode(text);
  // The encoder writes U+FFFD for half a pair: another text than the caller's.
  if (bytes.length >= 3 && /\p{Surrogate}/u.test(text)) {
    throw new TypeError("the text has half of a surrogate pair in it, which UTF-8 can't hold");
  }
  return bytes;
}

/** A list's texts as bytes. Throws TypeError for one text in place of a list. */
export function utf8List(texts: Iterable<Text>, name: string): Uint8Array[] {
  if (typeof texts === "string" || texts instanceof Uint8Array) {
    throw new TypeError(`${name} takes a list of texts, not one text`);
  }
  return Array.from(texts, utf8);
}

/**
 * A JSON document's text as it is, or written from a value. Throws TypeError for a value that JSON can't hold: what
 * JSON.stringify would leave out (undefined, functions) or change (NaN becomes null) is refused.
 */
export function documentBytes(document: JsonDocument): Uint8Array {
  if (typeof document === "string" || document instanceof Uint8Array) return utf8(document);
  const text = JSON.stringify(document, refuseWhatJsonLacks);
  if (text === undefined) throw new TypeError(`a JSON document can't be ${kindOf(document)}`);
  return utf8(text);
}

function refuseWhatJsonLacks(this: unknown, key: string, value: unknown): unknown {
  const lacking = value === undefined || typeof value === "function" || typeof value === "symbol";
  if (lacking || (typeof value === "number" && !Number.isFinite(value))) {
    throw new TypeError(
      `JSON can't hold ${lacking ? kindOf(value) : String(value)}, which is at ${JSON.stringify(key)}`,
    );
  }
  return value;
}

function kindOf(value: unknown): string {
  if (value === null) return "null";
  return typeof value === "object" ? value.constructor?.name || "an object" : typeof value;
}
