// Package constraintd is the client of constraintd, which does structured generation as a service.
//
// There are two ways in. [Runner] asks a runner, which holds a model, for text that satisfies a constraint:
//
//	runner, err := constraintd.NewRunner([]string{"unix:/tmp/runner.sock"})
//	...
//	generation := runner.Generate(ctx, constraintd.GenerateRequest{
//		Prompt:     constraintd.TextPrompt("When was the first Moon landing? "),
//		Constraint: constraintd.Regex(`(19|20)[0-9]{2}`),
//	})
//	defer generation.Close()
//	for text, err := range generation.Texts() {
//		...
//	}
//
// [Daemon] asks the daemon for masks, to drive a model of one's own: register a vocabulary, open sessions, and step all
// of them over one [DecodeStream]. Package sampling applies a mask to logits and picks tokens.
//
// Every refusal is an [*Error], whose [Reason] errors.Is finds: errors.Is(err, constraintd.ReasonStaleEpoch).
package constraintd

// Version of this client.
const Version = "0.1.0"
