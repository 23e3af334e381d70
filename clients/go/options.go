package constraintd

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"os"
	"time"

	"google.golang.org/grpc"
	grpcbackoff "google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
)

// AffinityHeader goes with every call. By its value a proxy in front of several daemons keeps a client's stream and its
// unary calls at one of them.
const AffinityHeader = "x-constraintd-affinity"

const defaultCallTimeout = 30 * time.Second

// Option changes how a [Daemon] or a [Runner] connects.
type Option func(*settings) error

type settings struct {
	affinity           string
	callTimeout        time.Duration
	tls                *tls.Config
	token              string
	tokenOverPlaintext bool
	extra              []grpc.DialOption
}

// WithAffinity sets the value of [AffinityHeader]. Default: a random one, one a client.
func WithAffinity(value string) Option {
	return func(s *settings) error {
		for _, char := range []byte(value) {
			if char < ' ' || char > '~' {
				return fmt.Errorf("constraintd: affinity %q; expected printable ASCII", value)
			}
		}
		if value == "" {
			return errors.New("constraintd: the affinity is empty; leave it out for a random one")
		}
		s.affinity = value
		return nil
	}
}

// WithCallTimeout bounds each unary call whose context has no deadline. Default: 30 s; 0 is no bound.
func WithCallTimeout(timeout time.Duration) Option {
	return func(s *settings) error {
		if timeout < 0 {
			return fmt.Errorf("constraintd: call timeout %s; expected 0 or more", timeout)
		}
		s.callTimeout = timeout
		return nil
	}
}

// TLS names the files of an encrypted connection, in PEM.
type TLS struct {
	// CAFile has the certificates that the server's must be signed by. Default: the system's.
	CAFile string
	// CertFile and KeyFile have the client's certificate and key, for mutual TLS. They are read again for every
	// connection, so that they may be renewed. Default: none.
	CertFile, KeyFile string
	// ServerName is what the server's certificate must name. Default: the target's host.
	ServerName string
}

// WithTLS encrypts, and checks the server's certificate. Fails for files that can't be read.
func WithTLS(files TLS) Option {
	return func(s *settings) error {
		config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: files.ServerName}
		if files.CAFile != "" {
			pem, err := os.ReadFile(files.CAFile)
			if err != nil {
				return fmt.Errorf("constraintd: CA file: %w", err)
			}
			config.RootCAs = x509.NewCertPool()
			if !config.RootCAs.AppendCertsFromPEM(pem) {
				return fmt.Errorf("constraintd: CA file %s has no certificate in PEM", files.CAFile)
			}
		}
		if (files.CertFile == "") != (files.KeyFile == "") {
			return errors.New("constraintd: a client certificate takes both CertFile and KeyFile")
		}
		if files.CertFile != "" {
			read := func() (*tls.Certificate, error) {
				pair, err := tls.LoadX509KeyPair(files.CertFile, files.KeyFile)
				if err != nil {
					return nil, fmt.Errorf("constraintd: client certificate: %w", err)
				}
				return &pair, nil
			}
			if _, err := read(); err != nil {
				return err
			}
			config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return read() }
		}
		s.tls = config
		return nil
	}
}

// WithTLSConfig encrypts by a configuration of the caller's.
func WithTLSConfig(config *tls.Config) Option {
	return func(s *settings) error {
		s.tls = config.Clone()
		return nil
	}
}

// WithToken sends a bearer token with every call. Without TLS it is refused, unless all targets are Unix sockets or
// loopback addresses, or [WithTokenOverPlaintext] is given too.
func WithToken(token string) Option {
	return func(s *settings) error {
		if token == "" {
			return errors.New("constraintd: the token is empty")
		}
		for _, char := range []byte(token) {
			// The token itself is not told: errors end up in logs.
			if char <= ' ' || char > '~' {
				return errors.New("constraintd: the token has a character that is not printable ASCII; a line end, perhaps")
			}
		}
		s.token = token
		return nil
	}
}

// WithTokenOverPlaintext lets the token go unencrypted to any target: for networks that encrypt by themselves.
func WithTokenOverPlaintext() Option {
	return func(s *settings) error {
		s.tokenOverPlaintext = true
		return nil
	}
}

// WithDialOptions adds options of gRPC's own, after this package's.
func WithDialOptions(options ...grpc.DialOption) Option {
	return func(s *settings) error {
		s.extra = append(s.extra, options...)
		return nil
	}
}

func settingsOf(options []Option) (*settings, error) {
	random := make([]byte, 16)
	rand.Read(random)
	made := &settings{affinity: hex.EncodeToString(random), callTimeout: defaultCallTimeout}
	for _, option := range options {
		if err := option(made); err != nil {
			return nil, err
		}
	}
	return made, nil
}

func (s *settings) mayCarryToken(target string) error {
	if s.token == "" || s.tls != nil || s.tokenOverPlaintext || isLocal(target) {
		return nil
	}
	return fmt.Errorf("constraintd: the token would go to %s unencrypted; use TLS, or WithTokenOverPlaintext", target)
}

func (s *settings) dialOptions() []grpc.DialOption {
	secured := insecure.NewCredentials()
	if s.tls != nil {
		secured = credentials.NewTLS(s.tls)
	}
	return append([]grpc.DialOption{
		grpc.WithTransportCredentials(secured),
		grpc.WithUserAgent("constraintd-go/" + Version),
		// The server's own limits are smaller and answer with a typed error; the transport's would only break the call.
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32), grpc.MaxCallSendMsgSize(math.MaxInt32)),
		// A daemon that restarts is back within a second; gRPC's defaults would look again after up to two minutes.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: grpcbackoff.Config{
				BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second,
			},
			MinConnectTimeout: 5 * time.Second,
		}),
		// Also without calls: a server that vanished without a word is found out before the next call waits for it.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{
			Time: 30 * time.Second, Timeout: 10 * time.Second, PermitWithoutStream: true,
		}),
		// The connection stays up between calls, as its keepalive says.
		grpc.WithIdleTimeout(0),
		grpc.WithDisableServiceConfig(),
		grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, request, reply any, cc *grpc.ClientConn,
			invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
			if message, ok := request.(proto.Message); ok {
				if err := sendable(message); err != nil {
					return err
				}
			}
			return invoke(s.withHeaders(ctx), method, request, reply, cc, options...)
		}),
		grpc.WithChainStreamInterceptor(func(ctx context.Context, description *grpc.StreamDesc, cc *grpc.ClientConn,
			method string, open grpc.Streamer, options ...grpc.CallOption) (grpc.ClientStream, error) {
			return open(s.withHeaders(ctx), description, cc, method, options...)
		}),
	}, s.extra...)
}

func (s *settings) withHeaders(ctx context.Context) context.Context {
	ctx = metadata.AppendToOutgoingContext(ctx, AffinityHeader, s.affinity)
	if s.token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+s.token)
	}
	return ctx
}

// bounded gives a unary call its deadline.
func (s *settings) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, has := ctx.Deadline(); has || s.callTimeout == 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, s.callTimeout)
}

// sendable tells what keeps a message from being sent at all, such as an id that is no UTF-8. gRPC would say INTERNAL,
// which reads as a stream that was reset on the way, and is retried.
func sendable(message proto.Message) error {
	if _, err := proto.Marshal(message); err != nil {
		return fmt.Errorf("constraintd: %s: %w", message.ProtoReflect().Descriptor().Name(), err)
	}
	return nil
}
