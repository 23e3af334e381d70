package constraintd_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/constraintd/constraintd/clients/go"
	"github.com/constraintd/constraintd/clients/go/internal/live"
)

// authority signs certificates, as files.
type authority struct {
	t           *testing.T
	folder      string
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, folder: t.TempDir()}
	a.key = newKey(t)
	a.certificate = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	a.write("ca", a.certificate, a.key)
	return a
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// issue writes NAME.pem and NAME.key for 127.0.0.1, good until then.
func (a *authority) issue(name string, until time.Time) (certFile, keyFile string) {
	a.t.Helper()
	return a.write(name, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: until,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, newKey(a.t))
}

func (a *authority) write(name string, certificate *x509.Certificate, key *ecdsa.PrivateKey) (certFile, keyFile string) {
	a.t.Helper()
	signed, err := x509.CreateCertificate(rand.Reader, certificate, a.certificate, &key.PublicKey, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	certFile, keyFile = filepath.Join(a.folder, name+".pem"), filepath.Join(a.folder, name+".key")
	for file, block := range map[string]*pem.Block{
		certFile: {Type: "CERTIFICATE", Bytes: signed}, keyFile: {Type: "PRIVATE KEY", Bytes: private},
	} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			a.t.Fatal(err)
		}
	}
	return certFile, keyFile
}

func (a *authority) file() string { return filepath.Join(a.folder, "ca.pem") }

func serverInfo(t *testing.T, target string, options ...constraintd.Option) error {
	t.Helper()
	daemon, err := constraintd.NewDaemon([]string{target}, options...)
	if err != nil {
		return err
	}
	defer daemon.Close()
	_, err = daemon.ServerInfo(within(t, 30*time.Second))
	return err
}

func TestMutualTLSLetsInOnlyThoseWithACertificateOfTheAuthority(t *testing.T) {
	ours, others := newAuthority(t), newAuthority(t)
	hour := time.Now().Add(time.Hour)
	serverCert, serverKey := ours.issue("server", hour)
	daemon := live.StartDaemonAt(t, "127.0.0.1:0", "memory", "--tls-cert", serverCert, "--tls-key", serverKey,
		"--tls-client-ca", ours.file())
	goodCert, goodKey := ours.issue("client", hour)
	expiredCert, expiredKey := ours.issue("expired", time.Now().Add(-time.Hour))
	strangeCert, strangeKey := others.issue("stranger", hour)

	presenting := func(authority *authority, cert, key, server string) constraintd.Option {
		return constraintd.WithTLS(constraintd.TLS{CAFile: authority.file(), CertFile: cert, KeyFile: key, ServerName: server})
	}
	if err := serverInfo(t, daemon.Address, presenting(ours, goodCert, goodKey, "")); err != nil {
		t.Errorf("with a certificate: %v", err)
	}
	for name, option := range map[string]constraintd.Option{
		"without TLS":              constraintd.WithAffinity("a"),
		"without a certificate":    presenting(ours, "", "", ""),
		"with an expired one":      presenting(ours, expiredCert, expiredKey, ""),
		"with a stranger's":        presenting(ours, strangeCert, strangeKey, ""),
		"trusting others":          presenting(others, goodCert, goodKey, ""),
		"expecting another server": presenting(ours, goodCert, goodKey, "elsewhere"),
		"trusting nobody":          constraintd.WithTLSConfig(&tls.Config{}),
	} {
		err := serverInfo(t, daemon.Address, option)
		if refusal, ok := errors.AsType[*constraintd.Error](err); !ok || refusal.Code != codes.Unavailable {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestATokenIsAskedForAndSent(t *testing.T) {
	tokens := filepath.Join(t.TempDir(), "tokens")
	good := live.NewToken(t, tokens)
	file, err := os.OpenFile(tokens, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := fmt.Fprintf(file, "former %x until=2001-01-01T00:00:00Z\n", sha256.Sum256([]byte("expired"))); err != nil {
		t.Fatal(err)
	}
	daemon := live.StartDaemonAt(t, "127.0.0.1:0", "memory", "--tokens-file", tokens)
	if err := serverInfo(t, daemon.Address, constraintd.WithToken(good)); err != nil {
		t.Errorf("with a token: %v", err)
	}
	for name, options := range map[string][]constraintd.Option{
		"without a token": nil, "with an expired one": {constraintd.WithToken("expired")},
		"with another": {constraintd.WithToken("another")},
	} {
		refusal := refused(t, serverInfo(t, daemon.Address, options...), constraintd.ReasonUnauthenticated)
		if refusal.Code != codes.Unauthenticated || refusal.Retryable() {
			t.Errorf("%s: %v, retryable %v", name, refusal.Code, refusal.Retryable())
		}
	}
}

func TestATokenNeverGoesOutUnencryptedUnlessItIsSaid(t *testing.T) {
	for target, local := range map[string]bool{
		"unix:/run/d.sock": true, "127.0.0.1:1": true, "127.9.9.9:1": true, "[::1]:1": true, "localhost:1": true,
		"daemon:1": false, "10.0.0.1:1": false, "[2001:db8::1]:1": false, "0.0.0.0:1": false, "localhost.example:1": false,
	} {
		_, err := constraintd.NewDaemon([]string{"unix:/a", target}, constraintd.WithToken("secret-word"))
		if (err == nil) != local {
			t.Errorf("%s: %v", target, err)
		}
		if err != nil && strings.Contains(err.Error(), "secret-word") {
			t.Errorf("the token stands in the error: %v", err)
		}
		for _, option := range []constraintd.Option{
			constraintd.WithTokenOverPlaintext(), constraintd.WithTLS(constraintd.TLS{}),
		} {
			if _, err := constraintd.NewRunner([]string{target}, constraintd.WithToken("secret-word"), option); err != nil {
				t.Errorf("%s, allowed: %v", target, err)
			}
		}
	}
}

func TestWhatCanNotBeUsedToConnectIsRefusedAtOnce(t *testing.T) {
	ours := newAuthority(t)
	cert, key := ours.issue("client", time.Now().Add(time.Hour))
	_, otherKey := ours.issue("other", time.Now().Add(time.Hour))
	for name, option := range map[string]constraintd.Option{
		"no CA file":              constraintd.WithTLS(constraintd.TLS{CAFile: "/nonexistent"}),
		"a CA file without any":   constraintd.WithTLS(constraintd.TLS{CAFile: key}),
		"a certificate, no key":   constraintd.WithTLS(constraintd.TLS{CertFile: cert}),
		"another's key":           constraintd.WithTLS(constraintd.TLS{CertFile: cert, KeyFile: otherKey}),
		"a token with a line end": constraintd.WithToken("token\n"),
		"an empty token":          constraintd.WithToken(""),
		"an empty affinity":       constraintd.WithAffinity(""),
		"a binary affinity":       constraintd.WithAffinity("\x00"),
		"a timeout in the past":   constraintd.WithCallTimeout(-1),
	} {
		if _, err := constraintd.NewDaemon([]string{"unix:/a"}, option); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
	for _, targets := range [][]string{nil, {""}, {"unix:"}, {"host"}, {"host:"}, {":1"}, {"dns:///host:1"}, {"unix:/a", "b"}} {
		if _, err := constraintd.NewDaemon(targets); err == nil {
			t.Errorf("targets %q were taken", targets)
		}
	}
}

func TestEveryCallHasTheAffinityOfItsClient(t *testing.T) {
	daemon := startScripted(t, func(_ int, stream decodeServer) error {
		<-stream.Context().Done()
		return nil
	})
	var values []string
	for _, options := range [][]constraintd.Option{nil, nil, {constraintd.WithAffinity("runner-7"), constraintd.WithToken("t")}} {
		client, err := constraintd.NewDaemon([]string{daemon.target}, options...)
		if err != nil {
			t.Fatal(err)
		}
		stream, err := client.Decode(t.Context(), "v", 32)
		if err != nil {
			t.Fatal(err)
		}
		before := len(values)
		for len(values) < before+2 { // the unary call and the stream
			time.Sleep(time.Millisecond)
			values = daemon.headerValues(constraintd.AffinityHeader)
		}
		stream.Close()
		client.Close()
		if values[before] == "" || values[before] != values[before+1] {
			t.Errorf("affinities %q", values[before:])
		}
		if _, err := client.ServerInfo(t.Context()); !errors.Is(err, constraintd.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	}
	if values[0] == values[2] || values[4] != "runner-7" {
		t.Errorf("affinities %q", values)
	}
	if tokens := daemon.headerValues("authorization"); tokens[3] != "" || tokens[4] != "Bearer t" || tokens[5] != "Bearer t" {
		t.Errorf("tokens %q", tokens)
	}
}
