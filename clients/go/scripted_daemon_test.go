package constraintd_test

import (
	"context"
	"net"
	"path/filepath"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	pb "github.com/constraintd/constraintd/clients/go/gen/constraintd/v1"
)

// scriptedDaemon is a gRPC server that does on its Decode streams what a test says, for what a real daemon does only by
// accident of time. Its streams are numbered from 0.
type scriptedDaemon struct {
	pb.UnimplementedConstraintServiceServer
	target  string
	mu      sync.Mutex
	streams int
	headers []metadata.MD
	script  func(number int, stream grpc.BidiStreamingServer[pb.DecodeRequest, pb.DecodeResponse]) error
}

func startScripted(
	t *testing.T, script func(int, grpc.BidiStreamingServer[pb.DecodeRequest, pb.DecodeResponse]) error,
	options ...grpc.ServerOption,
) *scriptedDaemon {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	daemon := &scriptedDaemon{target: "unix:" + socket, script: script}
	server := grpc.NewServer(options...)
	pb.RegisterConstraintServiceServer(server, daemon)
	go server.Serve(listener)
	t.Cleanup(server.Stop)
	return daemon
}

func (d *scriptedDaemon) GetServerInfo(ctx context.Context, _ *pb.GetServerInfoRequest) (*pb.GetServerInfoResponse, error) {
	d.note(ctx)
	return &pb.GetServerInfoResponse{Limits: &pb.ServerLimits{MaxBatchSteps: 100}}, nil
}

func (d *scriptedDaemon) Decode(stream grpc.BidiStreamingServer[pb.DecodeRequest, pb.DecodeResponse]) error {
	number := d.note(stream.Context()) - 2 // behind GetServerInfo
	if _, err := stream.Recv(); err != nil {
		return err
	}
	return d.script(number, stream)
}

func (d *scriptedDaemon) note(ctx context.Context) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	headers, _ := metadata.FromIncomingContext(ctx)
	d.headers = append(d.headers, headers)
	return len(d.headers)
}

// openEpoch is that of every session of a scripted daemon.
const openEpoch = 1

func (d *scriptedDaemon) OpenSession(_ context.Context, request *pb.OpenSessionRequest) (*pb.OpenSessionResponse, error) {
	return &pb.OpenSessionResponse{Epoch: openEpoch, Directive: maskAt(0)}, nil
}

func maskAt(position uint64) *pb.Directive {
	return &pb.Directive{Position: position, Outcome: &pb.Directive_Mask{
		Mask: &pb.Mask{Encoding: &pb.Mask_Dense{Dense: []byte{2, 0, 0, 0}}},
	}}
}

// applied is the answer to a step.
func applied(step *pb.Step) *pb.StepAnswer {
	position := step.GetPosition() + uint64(len(step.GetTokens()))
	return &pb.StepAnswer{SessionId: step.GetSessionId(), Answer: &pb.StepAnswer_Directive{Directive: maskAt(position)}}
}

func refusedAs(step *pb.Step, reason pb.ErrorReason) *pb.StepAnswer {
	return &pb.StepAnswer{SessionId: step.GetSessionId(), Answer: &pb.StepAnswer_Error{
		Error: &pb.StepError{Reason: reason, Message: "no"},
	}}
}

func answers(all ...*pb.StepAnswer) *pb.DecodeResponse {
	batch := &pb.DirectiveBatch{Answers: all}
	return &pb.DecodeResponse{Message: &pb.DecodeResponse_DirectiveBatch{DirectiveBatch: batch}}
}

// headerValues gives a header of every call so far, "" where a call had none.
func (d *scriptedDaemon) headerValues(name string) []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	values := make([]string, len(d.headers))
	for i, headers := range d.headers {
		if found := headers.Get(name); len(found) > 0 {
			values[i] = found[0]
		}
	}
	return values
}
