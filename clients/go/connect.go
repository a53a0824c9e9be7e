package kpng

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"

	"github.com/kpng-project/kpng/clients/go/localv1"
)

// address of a watcher.
type address struct {
	network, host, port string
	// Host that the certificate must name; "" without TLS.
	tlsName string
}

func (a address) String() string {
	if a.network == "unix" {
		return a.host
	}
	return net.JoinHostPort(a.host, a.port)
}

func parseAPI(options Options) ([]address, error) {
	hasTLSFiles := options.TLSCA != "" || options.TLSCert != "" || options.TLSKey != ""
	if (options.TLSCert == "") != (options.TLSKey == "") {
		return nil, errors.New("kpng: a client certificate needs both TLSCert and TLSKey")
	}
	var result []address
	for _, text := range strings.Split(options.API, ",") {
		text = strings.TrimSpace(text)
		if path, isUnix := strings.CutPrefix(text, "unix:"); isUnix {
			result = append(result, address{network: "unix", host: strings.TrimPrefix(path, "//")})
			continue
		}
		scheme, hostPort, hasScheme := strings.Cut(text, "://")
		if !hasScheme {
			scheme, hostPort = "", text
		}
		hostPort = strings.TrimSuffix(hostPort, "/")
		host, port, err := net.SplitHostPort(hostPort)
		if err != nil {
			host, port = strings.Trim(hostPort, "[]"), "12090"
		}
		if host == "" || strings.Contains(host, "/") || (scheme != "" && scheme != "http" && scheme != "https" && scheme != "tcp") {
			return nil, fmt.Errorf("kpng: %q is not an address: write host:port, https://host:port or unix:///path", text)
		}
		one := address{network: "tcp", host: host, port: port}
		if scheme == "https" || hasTLSFiles {
			one.tlsName = host
		}
		if one.tlsName != "" && scheme == "http" {
			return nil, fmt.Errorf("kpng: %q disables TLS, but TLS files are given", text)
		}
		if one.tlsName == "" && options.TokenFile != "" {
			return nil, fmt.Errorf("kpng: %q is plain TCP, which would reveal the token: use https:// or a unix socket", text)
		}
		result = append(result, one)
	}
	return result, nil
}

// candidates returns the addresses of all watchers in random order, the last used one at the end.
func (c *Client) candidates(ctx context.Context, last string) ([]address, error) {
	named, err := parseAPI(c.options)
	if err != nil {
		return nil, err
	}
	var result, previous []address
	for _, one := range named {
		hosts := []string{one.host}
		if one.network == "tcp" {
			if found, lookupErr := net.DefaultResolver.LookupHost(ctx, one.host); lookupErr == nil {
				hosts = found
			} else {
				err = lookupErr
				continue
			}
		}
		for _, host := range hosts {
			resolved := one
			resolved.host = host
			if resolved.String() == last {
				previous = append(previous, resolved)
			} else {
				result = append(result, resolved)
			}
		}
	}
	rand.Shuffle(len(result), func(i, j int) { result[i], result[j] = result[j], result[i] })
	if result = append(result, previous...); len(result) == 0 {
		return nil, err
	}
	return result, nil
}

// connect opens a stream to the first watcher that can be reached, and calls follow.
func (c *Client) connect(ctx context.Context, last *string, follow func(watchStream) error) error {
	candidates, err := c.candidates(ctx, *last)
	if err != nil {
		return err
	}
	for _, one := range candidates {
		var isReached bool
		if isReached, err = c.attempt(ctx, one, follow); isReached || ctx.Err() != nil {
			*last = one.String()
			return err
		}
	}
	return err
}

// attempt follows one watcher; false if it cannot be reached.
//
// Each attempt has a connection of its own: the files are read again, and gRPC's own delays do not add to ours.
func (c *Client) attempt(ctx context.Context, to address, follow func(watchStream) error) (isReached bool, err error) {
	transport := insecure.NewCredentials()
	if to.tlsName != "" {
		config, err := tlsConfig(c.options, to.tlsName)
		if err != nil {
			return false, err
		}
		transport = credentials.NewTLS(config)
	}
	if c.options.TokenFile != "" {
		token, err := os.ReadFile(c.options.TokenFile)
		if err != nil {
			return false, err
		}
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+strings.TrimSpace(string(token)))
	}
	reads := &atomic.Int64{}
	var dialErr atomic.Pointer[error]
	conn, err := grpc.NewClient("passthrough:///"+to.String(),
		grpc.WithTransportCredentials(transport),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			conn, err := dial(ctx, to)
			if err != nil {
				dialErr.Store(&err)
				return nil, err
			}
			return countingConn{conn, reads}, nil
		}),
		grpc.WithNoProxy(),
		// A Go server closes a connection that pings more than once in five minutes.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 330 * time.Second, Timeout: 20 * time.Second}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)),
		// Delays between streams are this package's, and gRPC's own retries would hide the reason of a failure.
		grpc.WithDisableRetry(),
		grpc.WithDisableServiceConfig(),
	)
	if err != nil {
		return false, err
	}
	defer conn.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stream, err := localv1.NewSetsClient(conn).Watch(ctx)
	if err != nil {
		if cause := dialErr.Load(); cause != nil {
			return false, *cause
		}
		return false, err
	}
	go guard(ctx, cancel, stream, reads)
	isStale := func() bool {
		// The headers have arrived, because the first state has.
		header, err := stream.Header()
		return err == nil && len(header.Get("kpng-stale")) > 0
	}
	err = follow(watchStream{stream, isStale, func() { cancel(nil) }})
	if cause := context.Cause(ctx); errors.Is(cause, errSilent) {
		err = cause
	}
	return true, err
}

func tlsConfig(options Options, name string) (*tls.Config, error) {
	config := &tls.Config{ServerName: name, MinVersion: tls.VersionTLS12}
	if options.TLSCA != "" {
		pem, err := os.ReadFile(options.TLSCA)
		if err != nil {
			return nil, err
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("kpng: %s contains no certificate", options.TLSCA)
		}
	}
	if options.TLSCert != "" {
		certificate, err := tls.LoadX509KeyPair(options.TLSCert, options.TLSKey)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{certificate}
	}
	return config, nil
}

// dial opens a connection that the kernel probes: a watcher that lost power never closes one.
func dial(ctx context.Context, to address) (net.Conn, error) {
	dialer := net.Dialer{
		Timeout:         5 * time.Second,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second, Interval: 10 * time.Second, Count: 3},
	}
	return dialer.DialContext(ctx, to.network, to.String())
}

// countingConn counts reads, to detect a silent peer.
type countingConn struct {
	net.Conn
	reads *atomic.Int64
}

func (c countingConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.reads.Add(1)
	return n, err
}

var errSilent = errors.New("kpng: the watcher is silent")

// answerLimit is the maximum time from opening a stream to its first message.
const answerLimit = 30 * time.Second

// guard ends a stream whose watcher does not answer, or no longer pings as often as it has announced. It counts checks,
// not time: after a pause of this process, what has arrived is read before the next check.
func guard(ctx context.Context, cancel context.CancelCauseFunc, stream grpc.ClientStream, reads *atomic.Int64) {
	unanswered := time.AfterFunc(answerLimit, func() { cancel(errSilent) })
	header, err := stream.Header()
	unanswered.Stop()
	if err != nil || len(header.Get("kpng-ping-ms")) == 0 {
		return
	}
	pingMs, err := strconv.Atoi(header.Get("kpng-ping-ms")[0])
	if err != nil || pingMs < 1 || pingMs > 3_600_000 {
		return
	}
	const checksPerPing, missingPings = 2, 3
	ticker := time.NewTicker(time.Duration(pingMs) * time.Millisecond / checksPerPing)
	defer ticker.Stop()
	seen, unchanged := int64(-1), 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if now := reads.Load(); now != seen {
			seen, unchanged = now, 0
		} else if unchanged++; unchanged > checksPerPing*missingPings {
			cancel(fmt.Errorf("%w: no ping for %d times %d ms", errSilent, missingPings, pingMs))
			return
		}
	}
}

// pushbackError carries the delay that a watcher asks for (gRFC A6).
type pushbackError struct {
	error
	text string
}

func (e pushbackError) Unwrap() error { return e.error }

// backoff doubles delays from min to max, each shortened by a random part of up to jitter.
type backoff struct {
	min, max time.Duration
	jitter   float64
	step     time.Duration
}

func (b *backoff) next() time.Duration {
	step := max(b.step, b.min)
	b.step = min(2*step, b.max)
	return time.Duration(float64(step) * (1 - b.jitter*rand.Float64()))
}

func (b *backoff) reset() { b.step = 0 }

// reconnect decides how long to wait before the next stream: the time that the watcher asks for, otherwise a random
// part of a delay that doubles. While nothing listens at the address, the delay is at most 3 s, because a refused
// connection costs no watcher anything.
//
// Delays start at the shortest again after a stream that has worked for the longest delay. A first state alone is not
// enough: a watcher that fails after each one would send all its nodes the whole state once a second.
type reconnect struct {
	lost, absent backoff
	// Time at which the stream delivered its first state; zero before.
	workingSince time.Time
}

func newReconnect(shortest, longest time.Duration) reconnect {
	return reconnect{
		lost:   backoff{min: shortest, max: longest, jitter: 1},
		absent: backoff{min: shortest, max: max(shortest, 3*time.Second), jitter: 0.5},
	}
}

func (r *reconnect) opening() { r.workingSince = time.Time{} }

// progressed records that the stream has delivered a state.
func (r *reconnect) progressed() {
	if r.workingSince.IsZero() {
		r.workingSince = time.Now()
	}
}

// maxPushback bounds the delay that a watcher asks for: a defect of one must not keep a node away for hours.
const maxPushback = 150 * time.Second

var milliseconds = regexp.MustCompile(`^\d{1,9}$`)

// ended returns whether the stream is lost, refused by a busy watcher, or moved to another one, and the delay.
func (r *reconnect) ended(err error) (string, time.Duration) {
	hasWorked := !r.workingSince.IsZero()
	var worked time.Duration
	if hasWorked {
		worked = time.Since(r.workingSince)
	}
	if worked >= r.lost.max {
		r.lost.reset()
		r.absent.reset()
	}
	if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ENOENT) {
		return "lost", r.absent.next()
	}
	var pushback pushbackError
	if !errors.As(err, &pushback) {
		return "lost", r.lost.next()
	}
	delay := maxPushback
	// A watcher that asks not to retry, by a negative number, gets its client back after the longest delay.
	if milliseconds.MatchString(pushback.text) {
		number, _ := strconv.ParseInt(pushback.text, 10, 64)
		delay = min(delay, time.Duration(min(number, math.MaxInt32))*time.Millisecond)
	}
	// Two watchers must not send a client back and forth without a pause.
	if delay == 0 && worked < time.Second {
		delay = r.lost.next()
	}
	if hasWorked {
		return "moved", delay
	}
	return "refused", delay
}
