/** A generated enum: names to numbers, and back. */
type NumericEnum = { readonly [name: string]: string | number };

/** The enum's value of that name in lower case. Throws TypeError for one that there is not, and names those there are. */
export function named<E extends NumericEnum>(values: E, name: string, what: string): E[keyof E] {
  const value = typeof name === "string" && /^[a-z]/.test(name) ? values[name.toUpperCase()] : undefined;
  if (typeof value === "number" && value !== 0) return value as E[keyof E];
  const known = Object.keys(values).filter((key) => /^[A-Z]/.test(key) && values[key] !== 0);
  throw new TypeError(`${what} is ${JSON.stringify(name)}; expected one of ${known.join(", ").toLowerCase()}`);
}

/** The name of an enum's value; of one that is newer than these stubs, its number. */
export function nameOf(values: NumericEnum, value: number): string {
  const name = values[value];
  return typeof name === "string" ? name : String(value);
}
