// Package kpng follows the view of a node that a kpng watcher serves, and calls a function with each new state.
//
// It performs the duties of a client (docs/writing-a-backend.md): one request for each batch, states that are applied
// as a whole, a view that outlives streams, delays that spare the watcher, acknowledgements, and no way back to an
// older state.
package kpng

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/kpng-project/kpng/clients/go/localv1"
)

// Options of a client. NodeName and one of OnState and OnChange are required.
type Options struct {
	// API lists the addresses of watchers, separated by commas: host:port, https://host:port or unix:///path. A host
	// name with several addresses stands for several watchers. Default "127.0.0.1:12090".
	API string
	// NodeName is the node of the view. The cluster may not know it.
	NodeName string
	// ServiceProxyName selects Services by the label service.kubernetes.io/service-proxy-name. Default: the watcher's.
	ServiceProxyName string
	// Program and Version of the caller appear in `kpng get nodes`. Default "go-client", without a version.
	Program, Version string

	// TLSCA, TLSCert and TLSKey are PEM files, read for each connection. With any of them, or with https://, the
	// connection uses TLS; without TLSCA, the CAs of the system verify the watcher.
	TLSCA, TLSCert, TLSKey string
	// TokenFile holds a ServiceAccount token. It is read for each stream, and sent only over TLS or a unix socket.
	TokenFile string

	// OnState puts a state into effect. Calls never overlap, and a view equal to the last successful one leads to none.
	// After an error, the call is repeated with the newest view, at first after about a second, later after 30 s. The
	// context is that of Run.
	OnState func(ctx context.Context, view *View) error
	// OnChange is called instead of OnState, if it is set, with the Services that may have changed.
	OnChange func(ctx context.Context, change Change) error

	// Log receives the loss of streams and failed calls. Default slog.Default().
	Log *slog.Logger
}

// Change is the difference between View and the view of the last successful call.
type Change struct {
	View *View
	// Touched has the sorted keys of the Services that may differ. View.Services lacks those that were deleted.
	Touched []string
	// NodeChanged says that View.Node may differ.
	NodeChanged bool
	// First is true until a call has succeeded.
	First bool
}

// Status describes a client, for health checks. A lost stream is not a failure: what was applied remains in effect.
type Status struct {
	// Connected says that a stream is open and has delivered a state.
	Connected bool
	// StreamErr is the reason why the last stream ended; nil while connected.
	StreamErr error
	// Received is the newest view; nil before the first one.
	Received *View
	// Applied is the view of the last successful call; nil before it. A node is ready once it is set.
	Applied *View
	// Err is the error of the last call; nil if the call succeeded. FailingSince is the time of the first error.
	Err          error
	FailingSince time.Time
}

// Client follows the view of a node. Use New, or Run if nobody asks for the status.
type Client struct {
	options   Options
	gate      gate
	reconnect reconnect
	offers    chan *offer
	// Wakes the sender of the stream. Buffered, so that a result that is reported meanwhile is not lost.
	wake chan struct{}
	// Delay before a failed call is repeated.
	retry backoff

	mu     sync.Mutex
	status Status
	result ackResult
}

// Run follows the view of a node until ctx is done, and waits for a running call to end. Its error is that of the
// options, or that of ctx.
func Run(ctx context.Context, options Options) error {
	client, err := New(options)
	if err != nil {
		return err
	}
	return client.Run(ctx)
}

// New checks the options. Nothing is connected before Client.Run.
func New(options Options) (*Client, error) {
	if options.NodeName == "" || len(options.NodeName) > 253 {
		return nil, errors.New("kpng: NodeName must have 1 to 253 characters")
	}
	if (options.OnState == nil) == (options.OnChange == nil) {
		return nil, errors.New("kpng: set one of OnState and OnChange")
	}
	options.API = cmp.Or(options.API, "127.0.0.1:12090")
	options.Program = cmp.Or(options.Program, "go-client")
	options.Log = cmp.Or(options.Log, slog.Default())
	if _, err := parseAPI(options); err != nil {
		return nil, err
	}
	return &Client{
		options:   options,
		gate:      gate{acceptAfter: time.Minute},
		reconnect: newReconnect(time.Second, 30*time.Second),
		offers:    make(chan *offer),
		wake:      make(chan struct{}, 1),
		retry:     backoff{min: time.Second, max: 30 * time.Second, jitter: 0.5},
	}, nil
}

// Status returns a snapshot.
func (c *Client) Status() Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.status
}

// Run follows the view until ctx is done. It must be called once only.
func (c *Client) Run(ctx context.Context) error {
	applied := make(chan struct{})
	go func() {
		defer close(applied)
		c.apply(ctx)
	}()
	defer func() { <-applied }()
	view := &View{}
	last := ""
	for {
		c.reconnect.opening()
		err := c.connect(ctx, &last, func(stream watchStream) error { return c.follow(ctx, stream, &view) })
		if ctx.Err() != nil {
			return ctx.Err()
		}
		kind, delay := c.reconnect.ended(err)
		// A delay that the watcher asked for is not shortened.
		if kind == "lost" {
			delay = c.gate.retryDelay(delay)
		}
		c.update(func(s *Status) { s.Connected, s.StreamErr = false, err })
		c.options.Log.Warn("kpng stream "+kind, "reason", err, "delay", delay)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(delay):
		}
	}
}

func (c *Client) update(change func(*Status)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(&c.status)
}

// watchStream is one stream of a watcher.
type watchStream struct {
	grpc.BidiStreamingClient[localv1.WatchReq, localv1.OpItem]
	// Returns whether the watcher has announced that its state may be out of date.
	isStale func() bool
	close   func()
}

// Recv also returns the delay that the watcher asks for, whatever the status. Only here may the trailer be read: before
// the end of the stream, gRPC may be writing it.
func (s watchStream) Recv() (*localv1.OpItem, error) {
	item, err := s.BidiStreamingClient.Recv()
	if err == nil {
		return item, nil
	}
	if pushback := s.Trailer().Get("grpc-retry-pushback-ms"); len(pushback) > 0 {
		err = pushbackError{err, pushback[0]}
	}
	return nil, err
}

// follow reads one stream until it breaks. view is the newest admitted state, and remains when the stream ends.
func (c *Client) follow(ctx context.Context, stream watchStream, view **View) error {
	sending, stop := context.WithCancel(ctx)
	var sender sync.WaitGroup
	requests := &requests{}
	defer sender.Wait()
	defer stop()
	// Also when this client ends the stream: a Send that waits for the watcher would otherwise never return.
	defer stream.close()
	sender.Add(1)
	go func() {
		defer sender.Done()
		c.send(sending, stream, requests)
	}()
	for isFirst := true; ; isFirst = false {
		// The only place that asks for a batch: the one before has been applied, or has failed.
		c.request(requests)
		batch, mark, err := readBatch(stream, *view, c.options.NodeName, isFirst)
		if err != nil {
			return err
		}
		next, touched := batch.finish(*view, mark)
		isSame := len(touched) == 0 && next.Node == (*view).Node && c.Status().Received != nil
		// The header is about the first state of the stream.
		commit, err := c.gate.admit(position(mark), isFirst && stream.isStale(), isSame)
		if err != nil {
			return err
		}
		commit()
		offered := &offer{view: next, touched: touched, nodeChanged: next.Node != (*view).Node, handled: make(chan struct{})}
		*view = next
		c.reconnect.progressed()
		c.mu.Lock()
		c.status.Connected, c.status.StreamErr, c.status.Received = true, nil, next
		requests.mark = mark
		c.mu.Unlock()
		select {
		case c.offers <- offered:
		case <-ctx.Done():
			return ctx.Err()
		}
		select {
		case <-offered.handled:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// offer is a view on its way from a stream to the callbacks.
type offer struct {
	view        *View
	touched     map[string]struct{}
	nodeChanged bool
	// Closed after the next call, whether or not it succeeded. The stream then asks for the next batch, so a newer state
	// can replace one that fails.
	handled chan struct{}
}

// apply makes the calls, one at a time, each with the newest view, until ctx is done.
func (c *Client) apply(ctx context.Context) {
	change := Change{First: true}
	touched := map[string]struct{}{}
	var handled []chan struct{}
	// Set after a failed call, until it is repeated.
	var retry <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case offered := <-c.offers:
			change.View = offered.view
			change.NodeChanged = change.NodeChanged || offered.nodeChanged
			maps.Copy(touched, offered.touched)
			handled = append(handled, offered.handled)
			if retry != nil {
				continue
			}
		case <-retry:
			retry = nil
		}
		var err error
		// A pending failure has touched Services; without a difference, the view is in effect already.
		if change.First || change.NodeChanged || len(touched) > 0 {
			change.Touched = slices.Sorted(maps.Keys(touched))
			err = c.call(ctx, change)
		}
		c.report(change.View, err)
		if err != nil && ctx.Err() == nil {
			delay := c.retry.next()
			retry = time.After(delay)
			c.options.Log.Error("kpng state not applied", "error", err, "delay", delay)
		} else if err == nil {
			c.retry.reset()
			change = Change{}
			clear(touched)
		}
		for _, one := range handled {
			close(one)
		}
		handled = nil
	}
}

func (c *Client) call(ctx context.Context, change Change) error {
	if c.options.OnChange != nil {
		return c.options.OnChange(ctx, change)
	}
	return c.options.OnState(ctx, change.View)
}

// ackResult is the result of the last call, for an acknowledgement.
type ackResult struct {
	instance        string
	applied, failed uint64
	err             string
	at              time.Time
	isUnsent        bool
}

// report records the result of a call.
func (c *Client) report(view *View, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.status.Err = err
	next := ackResult{instance: view.Instance, applied: view.Revision, at: time.Now(), isUnsent: true}
	if err == nil {
		c.status.Applied, c.status.FailingSince = view, time.Time{}
	} else {
		if c.status.FailingSince.IsZero() {
			c.status.FailingSince = next.at
		}
		next.applied, next.failed, next.err = 0, view.Revision, err.Error()
		if c.result.instance == next.instance {
			next.applied = c.result.applied
		}
		// The protocol counts characters.
		if text := []rune(strings.ToValidUTF8(next.err, "?")); len(text) > 1000 {
			next.err = string(text[:1000])
		} else {
			next.err = string(text)
		}
	}
	c.result = next
	c.wakeSender()
}

// requests is the state of a stream's sender, under Client.mu.
type requests struct {
	isDue bool
	// Marker of the last batch.
	mark *localv1.EmptyOp
}

func (c *Client) request(requests *requests) {
	c.mu.Lock()
	defer c.mu.Unlock()
	requests.isDue = true
	c.wakeSender()
}

func (c *Client) wakeSender() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// send sends requests and acknowledgements when they are due. A failed Send needs no answer: Recv has its reason.
func (c *Client) send(ctx context.Context, stream watchStream, requests *requests) {
	first := c.firstRequest()
	var nextAck time.Time
	for {
		message, wait := c.nextMessage(requests, first, &nextAck)
		if message == nil {
			var timer <-chan time.Time
			if wait > 0 {
				timer = time.After(wait)
			}
			select {
			case <-ctx.Done():
				return
			case <-c.wake:
			case <-timer:
			}
			continue
		}
		if message == first {
			first = nil
		}
		if stream.Send(message) != nil {
			return
		}
	}
}

// firstRequest returns the first request of a stream, which tells a restarted watcher about a failure at once.
func (c *Client) firstRequest() *localv1.WatchReq {
	c.mu.Lock()
	defer c.mu.Unlock()
	request := c.newRequest()
	request.Subscriber = &localv1.Subscriber{Name: c.options.Program, Version: c.options.Version}
	if c.result.failed > 0 {
		age := uint64(time.Since(c.result.at).Microseconds())
		request.LastFailure = &localv1.ApplyFailure{Error: c.result.err, AgeMicros: age}
	}
	// The same run of the watcher may not have received the result on the previous stream.
	c.result.isUnsent = c.result.instance != ""
	return request
}

func (c *Client) newRequest() *localv1.WatchReq {
	return &localv1.WatchReq{
		NodeName:         c.options.NodeName,
		ServiceProxyName: c.options.ServiceProxyName,
		Features:         []localv1.Feature{localv1.Feature_Extended, localv1.Feature_NodeItem},
	}
}

// nextMessage returns what is to be sent now; otherwise nil, and the delay of an acknowledgement that must wait.
func (c *Client) nextMessage(requests *requests, first *localv1.WatchReq, nextAck *time.Time) (*localv1.WatchReq, time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	mark, result := requests.mark, &c.result
	// Other watchers would answer an acknowledgement with a batch.
	isAckDue := mark.GetTakesAcks() && result.isUnsent && result.instance == mark.GetInstance()
	wait := time.Until(*nextAck)
	if isAckDue && wait <= 0 {
		result.isUnsent = false
		interval := time.Duration(cmp.Or(mark.GetAckIntervalMs(), 100)) * time.Millisecond
		// All nodes apply a change at the same time; their acknowledgements should not arrive together.
		*nextAck = time.Now().Add(interval + time.Duration(rand.Int64N(int64(interval)/2+1)))
		age := uint64(time.Since(result.at).Microseconds())
		ack := &localv1.Ack{Applied: result.applied, Failed: result.failed, Error: result.err, AgeMicros: age}
		return &localv1.WatchReq{Ack: ack}, 0
	}
	if requests.isDue {
		requests.isDue = false
		if first != nil {
			return first, 0
		}
		return c.newRequest(), 0
	}
	if isAckDue {
		return nil, wait
	}
	return nil, 0
}
