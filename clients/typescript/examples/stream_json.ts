import { ConstraintdError, GenerationClient, jsonSchema, retrying, samplerConfig, temperature } from "constraintd";

const target = process.argv[2] ?? "unix:/tmp/runner.sock";
using runner = new GenerationClient(target.split(","));
await retrying(() => runner.modelInfo(), { patienceMs: 60_000 }); // it may be loading its model yet

const person = {
  type: "object",
  properties: { name: { type: "string", maxLength: 40 }, age: { type: "integer", minimum: 0, maximum: 120 } },
  required: ["name", "age"],
  additionalProperties: false,
};
const generation = runner.generate([{ role: "user", content: "Invent a person." }], {
  constraint: jsonSchema(person, { whitespace: "compact", propertyOrder: "declared" }),
  sampler: samplerConfig([temperature(0.7)], { maxTokens: 100 }),
  resumable: true, // it goes on when its runner dies, at the next one of the list or when it is back
});
try {
  for await (const piece of generation) process.stdout.write(piece);
  console.log(`\n${generation.finish?.reason}, ${generation.usage?.completionTokens} tokens`);
} catch (error) {
  if (!(error instanceof ConstraintdError)) throw error;
  console.error(`\n${error.reason || error.name}: ${error.message}; the text so far is no whole one`);
  process.exitCode = 1;
} finally {
  if (generation.sessionId) await runner.closeGeneration(generation.sessionId);
}
