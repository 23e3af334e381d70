package constraintd

import (
	"context"
	"fmt"
	"iter"

	pb "github.com/constraintd/constraintd/clients/go/gen/constraintd/v1"
)

// OpenRequest opens a session.
type OpenRequest struct {
	// VocabularyID is the model's. Required.
	VocabularyID string
	// Constraint is what the text must satisfy. Required: say [Unconstrained] for nothing.
	Constraint Constraint
	// Sampler is how tokens are picked. Default: by draw from the masked logits.
	Sampler *SamplerConfig
	// PromptTokens are kept so that any runner can resume the session.
	PromptTokens []uint32
	// SessionID is the session's. Default: a random one.
	SessionID SessionID
	// ReasoningEnd is where the model's reasoning ends. Default: it does not reason.
	ReasoningEnd *ReasoningEnd
}

// OpenSession opens a session; it has its first Directive. The same request again gives the same session.
func (d *Daemon) OpenSession(ctx context.Context, request OpenRequest) (*Session, error) {
	id := request.SessionID.orNew()
	answer, err := ask(ctx, d, pb.ConstraintServiceClient.OpenSession, &pb.OpenSessionRequest{
		SessionId: id[:], VocabularyId: request.VocabularyID, Constraint: constraintMessage(request.Constraint),
		Sampler: request.Sampler, PromptTokens: request.PromptTokens, ReasoningEnd: request.ReasoningEnd.message(),
	})
	if err != nil {
		return nil, err
	}
	session, err := openedBy(id, answer)
	if err == nil {
		session.Seed = answer.GetSeed()
	}
	return session, err
}

// Step reports accepted tokens with a call of their own, and moves the session on. Slower than a [DecodeStream].
func (d *Daemon) Step(ctx context.Context, report Report) (*Directive, error) {
	step, err := report.step()
	if err != nil {
		return nil, err
	}
	answer, err := ask(ctx, d, pb.ConstraintServiceClient.Step, &pb.StepRequest{Step: step})
	if err != nil {
		return nil, err
	}
	directive, err := directiveOf(answer.GetDirective())
	if err != nil {
		return nil, err
	}
	report.Session.Directive = directive
	return directive, nil
}

// UpdateRequest changes a session from its present position on; what is left out stays as it is.
type UpdateRequest struct {
	Constraint   Constraint
	Sampler      *SamplerConfig
	ReasoningEnd *ReasoningEnd
	// NewTurn begins a new turn: constraints begin anew, and a finished session goes on.
	NewTurn *NewTurn
	// Seed of the draws from here on.
	Seed *uint64
	// RequestID makes the call one that may be repeated. Default: a random one.
	RequestID RequestID
}

// NewTurn begins a turn.
type NewTurn struct {
	// PromptTokens stand between the last turn's text and this one's; may be none.
	PromptTokens []uint32
}

// UpdateSession changes a session, and moves it on to a new epoch.
func (d *Daemon) UpdateSession(ctx context.Context, session *Session, request UpdateRequest) (*Directive, error) {
	message := &pb.UpdateSessionRequest{
		SessionId: session.ID[:], Epoch: session.Epoch, Position: session.Position(), RequestId: request.RequestID.orNew(),
		Sampler: request.Sampler, ReasoningEnd: request.ReasoningEnd.message(), Seed: request.Seed,
	}
	if request.Constraint != nil {
		message.Constraint = request.Constraint.constraint()
	}
	if request.NewTurn != nil {
		message.NewTurn = &pb.NewTurn{PromptTokens: request.NewTurn.PromptTokens}
	}
	answer, err := ask(ctx, d, pb.ConstraintServiceClient.UpdateSession, message)
	if err != nil {
		return nil, err
	}
	return session.moveTo(answer)
}

// RollbackRequest returns a session to an earlier position.
type RollbackRequest struct {
	ToPosition uint64
	// Seed of the draws from there on. Default: a new one where the session's caller gave none; else its own.
	Seed *uint64
	// RequestID makes the call one that may be repeated. Default: a random one.
	RequestID RequestID
}

// RollbackSession returns a session to an earlier position, as if nothing after it had happened, and moves it there.
func (d *Daemon) RollbackSession(ctx context.Context, session *Session, request RollbackRequest) (*Directive, error) {
	answer, err := ask(ctx, d, pb.ConstraintServiceClient.RollbackSession, &pb.RollbackSessionRequest{
		SessionId: session.ID[:], Epoch: session.Epoch, Position: session.Position(), RequestId: request.RequestID.orNew(),
		ToPosition: request.ToPosition, Seed: request.Seed,
	})
	if err != nil {
		return nil, err
	}
	return session.moveTo(answer)
}

// ForkRequest opens a session that shares another's history.
type ForkRequest struct {
	// Position is where the two part.
	Position uint64
	// NewSessionID is the fork's. Default: a random one.
	NewSessionID SessionID
	// Seed of the fork's draws. Default: a new one where the parent's caller gave none; else the parent's.
	Seed *uint64
}

// ForkSession opens a session of its own that shares the history up to a position; the parent is left alone.
func (d *Daemon) ForkSession(ctx context.Context, parent SessionID, request ForkRequest) (*Session, error) {
	id := request.NewSessionID.orNew()
	answer, err := ask(ctx, d, pb.ConstraintServiceClient.ForkSession, &pb.ForkSessionRequest{
		SessionId: parent[:], Position: request.Position, NewSessionId: id[:], Seed: request.Seed,
	})
	if err != nil {
		return nil, err
	}
	return openedBy(id, answer)
}

// Resumed is a session that was taken over, with all that a runner needs to go on.
type Resumed struct {
	*Session
	VocabularyID string
	// Turns are the turns' prompts, by ascending position; the first at position 0.
	Turns []Turn
	// Tokens are all that were accepted.
	Tokens []uint32
	// Passes are the lengths of the forward passes as they were reported; empty if they weren't.
	Passes []uint32
	// Constraint is the one in force, as it was given.
	Constraint Constraint
	// ReasoningEnd is where the model's reasoning ends; nil: it does not reason.
	ReasoningEnd *ReasoningEnd
}

// Turn is one turn's beginning.
type Turn struct {
	// Position is the number of tokens accepted before it.
	Position uint64
	// PromptTokens stand between the token before that position and the one at it.
	PromptTokens []uint32
}

// ModelInput gives prompts and tokens in order: what the model has to be fed before the next token.
func (r *Resumed) ModelInput() []uint32 {
	var fed []uint32
	var taken uint64
	for _, turn := range r.Turns {
		fed = append(fed, r.Tokens[taken:turn.Position]...)
		fed = append(fed, turn.PromptTokens...)
		taken = turn.Position
	}
	return append(fed, r.Tokens[taken:]...)
}

// ResumeSession takes a session over; whoever held it is fenced off.
func (d *Daemon) ResumeSession(ctx context.Context, id SessionID) (*Resumed, error) {
	answer, err := ask(ctx, d, pb.ConstraintServiceClient.ResumeSession, &pb.ResumeSessionRequest{SessionId: id[:]})
	if err != nil {
		return nil, err
	}
	session, err := openedBy(id, answer)
	if err != nil {
		return nil, err
	}
	resumed := &Resumed{
		Session: session, VocabularyID: answer.GetVocabularyId(), Tokens: answer.GetTokens(), Passes: answer.GetPasses(),
		Constraint: ConstraintOf(answer.GetConstraint()), ReasoningEnd: reasoningEndOf(answer.GetReasoningEnd()),
	}
	var before uint64
	for _, turn := range answer.GetTurns() {
		if turn.GetPosition() < before || turn.GetPosition() > uint64(len(resumed.Tokens)) {
			return nil, fmt.Errorf("%w: a turn of session %s begins at %d, behind %d, of %d tokens", ErrMalformedAnswer, id,
				turn.GetPosition(), before, len(resumed.Tokens))
		}
		before = turn.GetPosition()
		resumed.Turns = append(resumed.Turns, Turn{turn.GetPosition(), turn.GetPromptTokens()})
	}
	return resumed, nil
}

// ExportSession gives a session as bytes, for ImportSession of any daemon that knows its vocabulary.
func (d *Daemon) ExportSession(ctx context.Context, id SessionID) ([]byte, error) {
	answer, err := ask(ctx, d, pb.ConstraintServiceClient.ExportSession, &pb.ExportSessionRequest{SessionId: id[:]})
	return answer.GetEnvelope(), err
}

// ImportSession opens an exported session under its own id.
func (d *Daemon) ImportSession(ctx context.Context, envelope []byte) (*Session, error) {
	answer, err := ask(ctx, d, pb.ConstraintServiceClient.ImportSession, &pb.ImportSessionRequest{Envelope: envelope})
	if err != nil {
		return nil, err
	}
	if len(answer.GetSessionId()) != len(SessionID{}) {
		return nil, fmt.Errorf("%w: a session id of %d bytes", ErrMalformedAnswer, len(answer.GetSessionId()))
	}
	return openedBy(SessionID(answer.GetSessionId()), answer)
}

// CloseSession forgets a session. False if there was none.
func (d *Daemon) CloseSession(ctx context.Context, id SessionID) (bool, error) {
	answer, err := ask(ctx, d, pb.ConstraintServiceClient.CloseSession, &pb.CloseSessionRequest{SessionId: id[:]})
	return answer.GetClosed(), err
}

// GetSession gives what is known of a session, with its tokens.
func (d *Daemon) GetSession(ctx context.Context, id SessionID) (*pb.GetSessionResponse, error) {
	return ask(ctx, d, pb.ConstraintServiceClient.GetSession, &pb.GetSessionRequest{SessionId: id[:]})
}

// ListSessions goes through all open sessions by ascending id, page by page. It ends at the first error.
func (d *Daemon) ListSessions(ctx context.Context) iter.Seq2[*pb.Session, error] {
	return func(yield func(*pb.Session, error) bool) {
		request := &pb.ListSessionsRequest{}
		for {
			answer, err := ask(ctx, d, pb.ConstraintServiceClient.ListSessions, request)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, session := range answer.GetSessions() {
				if !yield(session, nil) {
					return
				}
			}
			if request.PageToken = answer.GetNextPageToken(); len(request.PageToken) == 0 {
				return
			}
		}
	}
}

// moved is what answers have in common.
type moved interface {
	GetEpoch() uint64
	GetDirective() *pb.Directive
	GetSampler() *pb.SamplerConfig
}

func openedBy(id SessionID, answer moved) (*Session, error) {
	session := &Session{ID: id}
	_, err := session.moveTo(answer)
	if err != nil {
		return nil, err
	}
	return session, nil
}

func (s *Session) moveTo(answer moved) (*Directive, error) {
	directive, err := directiveOf(answer.GetDirective())
	if err != nil {
		return nil, err
	}
	s.Epoch, s.Directive, s.Sampler = answer.GetEpoch(), directive, answer.GetSampler()
	s.Seed = s.Sampler.GetSeed()
	return directive, nil
}
