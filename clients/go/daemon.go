package constraintd

import (
	"context"
	"math"
	"time"

	"google.golang.org/grpc"

	pb "github.com/constraintd/constraintd/clients/go/gen/constraintd/v1"
)

// Daemon is a connection to the daemon. Any number of goroutines may use it.
//
// Its methods fail with an [*Error], or with an error that wraps [ErrMalformedAnswer]. A call that finds its target
// gone makes the next call go to the next target; it is not repeated by itself (see [Retry]).
type Daemon struct {
	settings *settings
	targets  *targets
}

// NewDaemon connects to "unix:/path" or "host:port", or to several, of daemons on the same store: the first is used
// until it can't be reached. Nothing is sent before the first call.
func NewDaemon(targets []string, options ...Option) (*Daemon, error) {
	settings, all, err := connect(targets, options)
	if err != nil {
		return nil, err
	}
	return &Daemon{settings, all}, nil
}

// Close ends the connection and every call on it.
func (d *Daemon) Close() error { return d.targets.close() }

// ServerInfo gives versions, kinds and limits.
func (d *Daemon) ServerInfo(ctx context.Context) (*pb.GetServerInfoResponse, error) {
	return ask(ctx, d, pb.ConstraintServiceClient.GetServerInfo, &pb.GetServerInfoRequest{})
}

// CompileLimits are what trying a new grammar may take before it is refused; 0 is the server's default, and each is cut
// to its cap.
type CompileLimits struct {
	// Time in all, counted in whole milliseconds, rounded up.
	Time time.Duration
	// MemoryBytes that it may take.
	MemoryBytes uint64
	// Step is the slowest one, a mask or an advance, that it may have; counted likewise.
	Step time.Duration
}

// CompiledGrammar is what became of a grammar.
type CompiledGrammar struct {
	// ID names it in sessions of its vocabulary.
	ID GrammarID
	// Cached: it was compiled already.
	Cached bool
	// Took is the time of compiling; 0 if it was cached.
	Took time.Duration
	// Report has what is made of each keyword of a JSON Schema; empty for other kinds, which are enforced as they stand.
	Report []KeywordReport
}

// KeywordReport is one keyword of a schema at one place.
type KeywordReport struct {
	// Pointer is its JSON pointer.
	Pointer string
	Keyword string
	Verdict KeywordVerdict
	// Detail says why, in one sentence; may be empty.
	Detail string
}

// KeywordVerdict says what is made of a keyword. A server that is newer than this client may give others.
type KeywordVerdict string

const (
	// VerdictEnforced: exactly the keyword's meaning.
	VerdictEnforced KeywordVerdict = "ENFORCED"
	// VerdictNarrowed: never an invalid output, but some valid spelling is not produced.
	VerdictNarrowed KeywordVerdict = "NARROWED"
	// VerdictApproximated: the output may violate it.
	VerdictApproximated KeywordVerdict = "APPROXIMATED"
	// VerdictAnnotation: it asserts nothing.
	VerdictAnnotation KeywordVerdict = "ANNOTATION"
)

// CompileGrammar compiles a grammar for a vocabulary. Idempotent by content.
func (d *Daemon) CompileGrammar(
	ctx context.Context, vocabularyID string, grammar Grammar, limits CompileLimits,
) (*CompiledGrammar, error) {
	answer, err := ask(ctx, d, pb.ConstraintServiceClient.CompileGrammar, &pb.CompileGrammarRequest{
		VocabularyId: vocabularyID,
		Grammar:      grammar.message,
		Limits: &pb.CompileLimits{
			TimeMs: milliseconds(limits.Time), MemoryBytes: limits.MemoryBytes, StepMs: milliseconds(limits.Step),
		},
	})
	if err != nil {
		return nil, err
	}
	compiled := &CompiledGrammar{
		ID: GrammarID(answer.GetGrammarId()), Cached: answer.GetCached(),
		Took: time.Duration(answer.GetCompileUs()) * time.Microsecond,
	}
	for _, each := range answer.GetReport() {
		compiled.Report = append(compiled.Report, KeywordReport{
			Pointer: each.GetPointer(), Keyword: each.GetKeyword(), Detail: each.GetDetail(),
			Verdict: KeywordVerdict(enumName(pb.KeywordVerdict_name, int32(each.GetVerdict()), "KEYWORD_VERDICT_")),
		})
	}
	return compiled, nil
}

func milliseconds(duration time.Duration) uint32 {
	return uint32(min((max(duration, 0)+time.Millisecond-1)/time.Millisecond, math.MaxUint32))
}

// ask calls at the present target, within the call timeout.
func ask[Request, Answer any](
	ctx context.Context, d *Daemon,
	method func(pb.ConstraintServiceClient, context.Context, Request, ...grpc.CallOption) (Answer, error), request Request,
) (Answer, error) {
	return call(ctx, d.settings, d.targets, func(ctx context.Context, connection *grpc.ClientConn) (Answer, error) {
		return method(pb.NewConstraintServiceClient(connection), ctx, request)
	})
}

// call makes one unary call, and leaves the target where that is gone.
func call[Answer any](
	ctx context.Context, settings *settings, targets *targets,
	do func(context.Context, *grpc.ClientConn) (Answer, error),
) (Answer, error) {
	var none Answer
	address, connection, err := targets.connection()
	if err != nil {
		return none, errorOf(err)
	}
	bounded, cancel := settings.bounded(ctx)
	defer cancel()
	answer, err := do(bounded, connection)
	if err = errorOf(err); err != nil {
		leaveIfLost(targets, address, err, ctx)
		return none, err
	}
	return answer, nil
}
