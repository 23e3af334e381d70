import { Chain, ConstraintClient, regex, samplerConfig, spell, temperature, topP } from "constraintd";

using daemon = new ConstraintClient(process.argv[2] ?? "unix:/tmp/constraintd.sock");
const bytes = Array.from({ length: 256 }, (_, byte) => Uint8Array.of(byte));
const vocabulary = await daemon.registerTokenTable({ tokens: bytes, special: new Map([[256, "</s>"]]), eogIds: [256] });
const { vocabularyId, logitsWidth } = vocabulary;
const model = () => Float32Array.from({ length: logitsWidth }, () => 4 * Math.random()); // yours goes here

const dates = regex("(19|20)[0-9]{2}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])");
const sampler = samplerConfig([temperature(0.8), topP(0.95)]);
const sessions = await Promise.all(
  [1, 2, 3].map(() => daemon.openSession({ vocabularyId, constraint: dates, sampler })),
);
const tokens = sessions.map((): number[] => []);

using stream = await daemon.decodeStream(vocabulary); // one for all sessions; it mends itself when it breaks
for (;;) {
  const reports = sessions.flatMap((session, index) => {
    if (session.directive.kind !== "mask") return []; // it has finished, or nothing may come next
    const { token, surprisal } = Chain.of(session.sampler).pick(model(), session.directive);
    tokens[index]?.push(token);
    return [{ session, tokens: [token], surprisals: [surprisal] }];
  });
  if (reports.length === 0) break;
  stream.send(reports); // before the forward pass of these tokens
  await Promise.all(reports.map(({ session }) => stream.take(session))); // behind it
}
const table = await daemon.tokenTable(vocabularyId);
for (const ids of tokens) console.log(Buffer.from(spell(table, ids)).toString());
await Promise.all(sessions.map(({ id }) => daemon.closeSession(id)));
