package constraintd

import (
	"context"
	"time"

	"google.golang.org/grpc"

	runnerpb "github.com/constraintd/constraintd/clients/go/gen/constraintd/runner/v1"
)

const defaultResumeTimeout = 30 * time.Second

// Runner is a connection to a runner. Any number of goroutines may use it.
type Runner struct {
	settings *settings
	targets  *targets
}

// NewRunner connects to "unix:/path" or "host:port", or to several, of runners of the same model: the next is used when
// one can't be reached. Nothing is sent before the first call.
func NewRunner(targets []string, options ...Option) (*Runner, error) {
	settings, all, err := connect(targets, options)
	if err != nil {
		return nil, err
	}
	return &Runner{settings, all}, nil
}

// Close ends the connection and every generation on it.
func (r *Runner) Close() error { return r.targets.close() }

// GenerateRequest asks for one completion.
type GenerateRequest struct {
	// Prompt: see [TextPrompt], [TokenPrompt], [ChatPrompt] and [ChatPromptWithTools]. Required.
	Prompt Prompt
	// Constraint is what the text must satisfy. Required: say [Unconstrained] for nothing.
	Constraint Constraint
	// Sampler is how tokens are picked. Default: by draw from the masked logits, as far as the context reaches.
	Sampler *SamplerConfig
	// ReasoningEnd is where the model's reasoning ends. Default: it does not reason.
	ReasoningEnd *ReasoningEnd
	// Logprobs asks for log probabilities, with so many, 0 to 20, of the most probable tokens at each position (0: the
	// taken token's alone). Default: none.
	Logprobs *uint32
	// Resumable generations outlive their runner. When it can't be reached any more, the next target goes on, and the
	// events go on without a gap or a repetition. The session stays until CloseGeneration, or until the daemon closes it
	// as idle.
	Resumable bool
	// ResumeTimeout is how long one break of a resumable generation may last. Default: 30 s.
	ResumeTimeout time.Duration
	// SessionID is the session's. Default: a random one.
	SessionID SessionID
}

// Generate starts a generation at once. ctx bounds the whole of it, resumes included: its deadline is that of the
// generation, and its cancellation frees the place at the runner. What is wrong with the request shows when iterating.
//
// Iterate to the end, or close the generation.
func (r *Runner) Generate(ctx context.Context, request GenerateRequest) *Generation {
	id := request.SessionID.orNew()
	message := &runnerpb.GenerateRequest{
		Constraint: constraintMessage(request.Constraint), Sampler: request.Sampler,
		ReasoningEnd: request.ReasoningEnd.message(), Logprobs: request.Logprobs, Resumable: request.Resumable,
		SessionId: id[:],
	}
	if request.Prompt != nil {
		request.Prompt.writeTo(message)
	}
	first := func(ctx context.Context, client runnerpb.GenerationServiceClient) (events, error) {
		return client.Generate(ctx, message)
	}
	generation := newGeneration(ctx, r, id, first, message)
	generation.fromBeginning, generation.resumable = true, request.Resumable
	generation.logprobs = request.Logprobs
	generation.resumeTimeout = orDefault(request.ResumeTimeout)
	generation.begin(first)
	return generation
}

// ResumeRequest goes on with a resumable generation.
type ResumeRequest struct {
	// SessionID is the generation's. Required.
	SessionID SessionID
	// SeenTokens and SeenTextBytes (of UTF-8) are what the caller has seen; events begin behind them.
	SeenTokens, SeenTextBytes uint64
	// Exact repeats the forward passes that made the tokens: bit by bit as if it had not been interrupted, at the price of
	// a slow start.
	Exact bool
	// Logprobs as in GenerateRequest; tokens from before the resume have none.
	Logprobs *uint32
	// ResumeTimeout as in GenerateRequest.
	ResumeTimeout time.Duration
}

// Resume goes on with a resumable generation, whichever runner began it. Whoever still runs it gets STALE_EPOCH.
func (r *Runner) Resume(ctx context.Context, request ResumeRequest) *Generation {
	generation := newGeneration(ctx, r, request.SessionID, nil, nil)
	generation.resumable, generation.exact, generation.logprobs = true, request.Exact, request.Logprobs
	generation.seenTokens, generation.seenTextBytes = request.SeenTokens, request.SeenTextBytes
	generation.resumeTimeout = orDefault(request.ResumeTimeout)
	generation.begin(generation.resume)
	return generation
}

// CloseGeneration forgets a resumable generation. False if there was none.
func (r *Runner) CloseGeneration(ctx context.Context, id SessionID) (bool, error) {
	answer, err := call(ctx, r.settings, r.targets, func(ctx context.Context, connection *grpc.ClientConn) (
		*runnerpb.CloseGenerationResponse, error,
	) {
		request := &runnerpb.CloseGenerationRequest{SessionId: id[:]}
		return runnerpb.NewGenerationServiceClient(connection).CloseGeneration(ctx, request)
	})
	return answer.GetClosed(), err
}

// ModelInfo tells what this runner runs.
func (r *Runner) ModelInfo(ctx context.Context) (*runnerpb.GetModelInfoResponse, error) {
	return call(ctx, r.settings, r.targets, func(ctx context.Context, connection *grpc.ClientConn) (
		*runnerpb.GetModelInfoResponse, error,
	) {
		return runnerpb.NewGenerationServiceClient(connection).GetModelInfo(ctx, &runnerpb.GetModelInfoRequest{})
	})
}

func orDefault(timeout time.Duration) time.Duration {
	if timeout <= 0 {
		return defaultResumeTimeout
	}
	return timeout
}
