package constraintd_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/constraintd/constraintd/clients/go"
	"github.com/constraintd/constraintd/clients/go/internal/bytevocabulary"
	"github.com/constraintd/constraintd/clients/go/internal/live"
)

// written drives sessions whose masks leave one way on, and gives what each wrote. between is called after each round.
func written(
	t *testing.T, stream *constraintd.DecodeStream, sessions []*constraintd.Session, between func(round int),
) []string {
	t.Helper()
	texts := make([]string, len(sessions))
	for round := 0; ; round++ {
		var reports []constraintd.Report
		var live []int
		for i, session := range sessions {
			if session.Directive.Finish != nil {
				continue
			}
			token := session.Directive.Mask.IDs()[0]
			texts[i] += string(rune(token))
			reports = append(reports, report(session, token))
			live = append(live, i)
		}
		if len(reports) == 0 {
			return texts
		}
		if err := stream.Send(reports...); err != nil {
			t.Fatal(err)
		}
		between(round)
		for _, i := range live {
			if _, err := stream.Take(within(t, 60*time.Second), sessions[i]); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func (f *fixture) openTexts(t *testing.T, count int) (sessions []*constraintd.Session, texts []string) {
	t.Helper()
	for i := range count {
		texts = append(texts, fmt.Sprintf("%d cheers for the long line number %d", i, i))
		sessions = append(sessions, f.open(t, constraintd.Choice(texts[i]), nil))
	}
	return sessions, texts
}

func TestManySessionsOnOneStreamEachKeepTheirOwnPlace(t *testing.T) {
	f := newFixture(t, "--max-batch-steps", "7")
	sessions, texts := f.openTexts(t, 40)
	if got := written(t, f.stream(t), sessions, func(int) {}); !slices.Equal(got, texts) {
		t.Errorf("wrote %q, expected %q", got, texts)
	}
}

func TestADaemonThatIsKilledOrStoppedInTheMiddleLosesNothing(t *testing.T) {
	for name, end := range map[string]func(*live.Process){"SIGKILL": (*live.Process).Kill, "SIGTERM": (*live.Process).Stop} {
		t.Run(name, func(t *testing.T) {
			process := live.StartDaemon(t, "sqlite:"+t.TempDir()+"/sessions.sqlite")
			f := connect(t, process)
			sessions, texts := f.openTexts(t, 12)
			got := written(t, f.stream(t), sessions, func(round int) {
				if round%12 == 5 {
					// Some Steps are answered by now, some applied, some on their way.
					time.Sleep(time.Duration(round) * time.Millisecond / 10)
					end(process)
					process.Start()
				}
			})
			if !slices.Equal(got, texts) {
				t.Errorf("wrote %q, expected %q", got, texts)
			}
			for i, session := range sessions {
				found, err := f.GetSession(t.Context(), session.ID)
				if err != nil || !slices.Equal(found.GetTokens(), text(texts[i])) {
					t.Errorf("the daemon has %v, %v, expected %q", found.GetTokens(), err, texts[i])
				}
			}
		})
	}
}

func TestTheNextDaemonOfTheListGoesOn(t *testing.T) {
	store := "sqlite:" + t.TempDir() + "/sessions.sqlite"
	first := live.StartDaemon(t, store)
	vocabulary := registerBytes(t, newDaemon(t, first.Address))
	absent := "unix:" + t.TempDir() + "/none.sock"
	f := &fixture{newDaemon(t, first.Address, absent), vocabulary}
	sessions, texts := f.openTexts(t, 3)
	stream := f.stream(t)
	got := written(t, stream, sessions, func(round int) {
		if round == 5 {
			// While it is away the stream goes round the list, and finds it where it comes back.
			first.Kill()
			if _, err := stream.Take(within(t, 300*time.Millisecond), sessions[0]); err == nil {
				t.Log("the first answer was there already")
			}
			first.Start()
		}
	})
	if !slices.Equal(got, texts) {
		t.Errorf("wrote %q, expected %q", got, texts)
	}
}

func TestARefusedStepHarmsItsOwnSessionOnly(t *testing.T) {
	f := newFixture(t)
	stream := f.stream(t)
	aPlus := constraintd.Regex("a+")
	good, bad, gone := f.open(t, aPlus, nil), f.open(t, aPlus, nil), f.open(t, aPlus, nil)
	if _, err := f.ResumeSession(t.Context(), gone.ID); err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(report(bad, 'x'), report(good, 'a'), report(gone, 'a')); err != nil {
		t.Fatal(err)
	}
	ctx := within(t, 30*time.Second)
	_, err := stream.Take(ctx, bad)
	if refusal := refused(t, err, constraintd.ReasonTokenNotAllowed); refusal.Code != codes.InvalidArgument {
		t.Errorf("code %s", refusal.Code)
	}
	_, err = stream.Take(ctx, gone)
	refused(t, err, constraintd.ReasonStaleEpoch)
	if directive, err := stream.Take(ctx, good); err != nil || directive.Position != 1 || good.Position() != 1 {
		t.Errorf("%+v, %v", directive, err)
	}
	// The refused one stands where it stood, and goes on.
	if err := stream.Send(report(bad, 'a')); err != nil {
		t.Fatal(err)
	}
	if directive, err := stream.Take(ctx, bad); err != nil || directive.Position != 1 {
		t.Errorf("%+v, %v", directive, err)
	}
}

func TestWhatIsNotSentOrSentTwiceIsTheCallersMistake(t *testing.T) {
	f := newFixture(t)
	stream := f.stream(t)
	session := f.open(t, constraintd.Regex("a+"), nil)
	if _, err := stream.Take(t.Context(), session); !errors.Is(err, constraintd.ErrNothingSent) {
		t.Errorf("take before send: %v", err)
	}
	if err := stream.Send(report(session, 'a'), report(session, 'a')); !errors.Is(err, constraintd.ErrStepUnanswered) {
		t.Errorf("twice in a batch: %v", err)
	}
	if err := stream.Send(report(session, 'a')); err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(report(session, 'a')); !errors.Is(err, constraintd.ErrStepUnanswered) {
		t.Errorf("twice: %v", err)
	}
	if _, err := stream.Take(within(t, 30*time.Second), session); err != nil {
		t.Fatal(err)
	}
	stream.Forget(session.ID)
	stream.Close()
	if err := stream.Send(report(session, 'a')); !errors.Is(err, constraintd.ErrStreamClosed) {
		t.Errorf("send after close: %v", err)
	}
	if err := stream.Close(); err != nil || !errors.Is(stream.Err(), constraintd.ErrStreamClosed) {
		t.Errorf("closed twice: %v, %v", err, stream.Err())
	}
}

func TestAnAnswerThatIsLateIsTakenLater(t *testing.T) {
	process := live.StartDaemon(t, "memory")
	f := connect(t, process)
	stream := f.stream(t)
	session := f.open(t, constraintd.Regex("a+"), nil)
	process.Freeze()
	if err := stream.Send(report(session, 'a')); err != nil {
		t.Fatal(err)
	}
	_, err := stream.Take(within(t, 100*time.Millisecond), session)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), session.ID.String()) {
		t.Errorf("while the daemon is frozen: %v", err)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := stream.Take(cancelled, session); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	process.Thaw()
	if directive, err := stream.Take(within(t, 30*time.Second), session); err != nil || directive.Position != 1 {
		t.Errorf("%+v, %v", directive, err)
	}
}

func TestAStreamThatIsWrongItselfFailsAndGoesOnOnceItIsMended(t *testing.T) {
	process := live.StartDaemon(t, "memory")
	f := connect(t, process)
	narrow, err := f.Decode(t.Context(), f.vocabulary, bytevocabulary.Width-1)
	if err != nil {
		t.Fatal(err)
	}
	defer narrow.Close()
	session := f.open(t, constraintd.Regex("a+"), nil)
	if err := narrow.Send(report(session, 'a')); err != nil {
		t.Fatal(err)
	}
	_, err = narrow.Take(within(t, 30*time.Second), session)
	refused(t, err, constraintd.ReasonLogitsWidthMismatch)
	refused(t, narrow.Err(), constraintd.ReasonLogitsWidthMismatch)

	stream := f.stream(t)
	process.Kill()
	process.Start() // in memory: it has forgotten the vocabulary
	stranger := *session
	if err := stream.Send(report(&stranger, 'a')); err != nil {
		t.Fatal(err)
	}
	_, err = stream.Take(within(t, 20*time.Second), &stranger)
	refused(t, err, constraintd.ReasonUnknownVocabulary)
	registerBytes(t, f.Daemon)
	if err := stream.Reconnect(); err != nil {
		t.Fatal(err)
	}
	_, err = stream.Take(within(t, 30*time.Second), &stranger)
	refused(t, err, constraintd.ReasonUnknownSession)
	reopened := f.open(t, constraintd.Regex("a+"), nil)
	if err := stream.Send(report(reopened, 'a')); err != nil {
		t.Fatal(err)
	}
	if directive, err := stream.Take(within(t, 30*time.Second), reopened); err != nil || directive.Position != 1 {
		t.Errorf("%+v, %v", directive, err)
	}
}

func TestAStepOfTooManyTokensIsRefused(t *testing.T) {
	f := newFixture(t, "--max-step-tokens", "3")
	stream := f.stream(t)
	session := f.open(t, constraintd.Regex("a+"), nil)
	if err := stream.Send(report(session, text("aaaa")...)); err != nil {
		t.Fatal(err)
	}
	_, err := stream.Take(within(t, 30*time.Second), session)
	refused(t, err, constraintd.ReasonTooLarge)
}
