package kpng

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/kpng-project/kpng/clients/go/localv1"
	"github.com/kpng-project/kpng/clients/go/planv1"
)

// patience is the time after which a test gives up. No test waits for it to pass.
const patience = 20 * time.Second

// fakeWatcher is a gRPC server whose streams the test serves itself.
type fakeWatcher struct {
	localv1.UnimplementedSetsServer
	address string
	streams chan *fakeStream
}

type fakeStream struct {
	grpc.BidiStreamingServer[localv1.WatchReq, localv1.OpItem]
	t        *testing.T
	received chan *localv1.WatchReq
	ended    chan error
}

func startWatcher(t *testing.T, options ...grpc.ServerOption) *fakeWatcher {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	watcher := &fakeWatcher{address: listener.Addr().String(), streams: make(chan *fakeStream, 100)}
	server := grpc.NewServer(options...)
	localv1.RegisterSetsServer(server, watcher)
	go server.Serve(listener)
	t.Cleanup(server.Stop)
	return watcher
}

func (w *fakeWatcher) Watch(stream grpc.BidiStreamingServer[localv1.WatchReq, localv1.OpItem]) error {
	one := &fakeStream{BidiStreamingServer: stream, received: make(chan *localv1.WatchReq, 100), ended: make(chan error, 1)}
	go func() {
		defer close(one.received)
		for {
			request, err := stream.Recv()
			if err != nil {
				return
			}
			one.received <- request
		}
	}()
	w.streams <- one
	select {
	case err := <-one.ended:
		return err
	case <-stream.Context().Done():
		return stream.Context().Err()
	}
}

// stream returns the next stream that a client opens.
func (w *fakeWatcher) stream(t *testing.T) *fakeStream {
	t.Helper()
	stream := next(t, w.streams, "stream")
	stream.t = t
	return stream
}

// batch waits for the next request, and answers it.
func (s *fakeStream) batch(ops ...*localv1.OpItem) *localv1.WatchReq {
	s.t.Helper()
	request := s.request()
	s.send(ops...)
	return request
}

// request returns the next message, which must not be an acknowledgement.
func (s *fakeStream) request() *localv1.WatchReq {
	s.t.Helper()
	request := next(s.t, s.received, "request")
	if request.GetAck() != nil {
		s.t.Fatalf("acknowledgement instead of a request: %v", request)
	}
	return request
}

func (s *fakeStream) ack() *localv1.Ack {
	s.t.Helper()
	for {
		if request := next(s.t, s.received, "acknowledgement"); request.GetAck() != nil {
			return request.GetAck()
		}
	}
}

func (s *fakeStream) send(ops ...*localv1.OpItem) {
	s.t.Helper()
	for _, op := range ops {
		must(s.t, s.Send(op))
	}
}

func (s *fakeStream) end(err error) { s.ended <- err }

// closedByClient waits until the client has closed the stream.
func (s *fakeStream) closedByClient() {
	s.t.Helper()
	select {
	case <-s.Context().Done():
	case <-time.After(patience):
		s.t.Fatal("the client did not close the stream")
	}
}

func next[T any](t *testing.T, from <-chan T, what string) T {
	t.Helper()
	select {
	case one, ok := <-from:
		if !ok {
			t.Fatalf("the client closed the stream instead of: %s", what)
		}
		return one
	case <-time.After(patience):
		t.Fatalf("no %s", what)
		panic("unreachable")
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func reset() *localv1.OpItem {
	return &localv1.OpItem{Op: &localv1.OpItem_Reset_{Reset_: &localv1.EmptyOp{}}}
}

func syncAt(revision uint64) *localv1.OpItem {
	return marker(&localv1.EmptyOp{Revision: revision, Instance: "run"})
}

func marker(mark *localv1.EmptyOp) *localv1.OpItem {
	return &localv1.OpItem{Op: &localv1.OpItem_Sync{Sync: mark}}
}

func set(kind localv1.Set, path string, message proto.Message) *localv1.OpItem {
	bytes, err := proto.Marshal(message)
	if err != nil {
		panic(err)
	}
	ref := &localv1.Ref{Set: kind, Path: path}
	return &localv1.OpItem{Op: &localv1.OpItem_Set{Set: &localv1.Value{Ref: ref, Bytes: bytes}}}
}

func service(name string) *localv1.OpItem {
	return set(localv1.Set_ServicesSet, "default/"+name, &localv1.Service{Namespace: "default", Name: name})
}

func endpoint(service, key, ip string) *localv1.OpItem {
	message := &localv1.Endpoint{IPs: &localv1.IPSet{V4: []string{ip}}}
	return set(localv1.Set_EndpointsSet, "default/"+service+"/"+key, message)
}

func remove(kind localv1.Set, path string) *localv1.OpItem {
	return &localv1.OpItem{Op: &localv1.OpItem_Delete{Delete: &localv1.Ref{Set: kind, Path: path}}}
}

// text describes a view, e.g. "api: b 10.0.0.2, web:".
func text(view *View) string {
	var services []string
	for path, one := range view.Services {
		var endpoints []string
		for _, endpoint := range one.Endpoints {
			endpoints = append(endpoints, " "+endpoint.Key+" "+strings.Join(endpoint.GetIPs().GetV4(), " "))
		}
		services = append(services, strings.TrimPrefix(path, "default/")+":"+strings.Join(endpoints, ""))
	}
	slices.Sort(services)
	return strings.Join(services, ", ")
}

// start runs a client with short delays. Each call is offered to the test, which answers with its result.
func start(t *testing.T, api string, change func(*Client)) (*Client, <-chan call) {
	t.Helper()
	calls := make(chan call)
	options := Options{API: api, NodeName: "n1", Log: slog.New(slog.DiscardHandler)}
	options.OnChange = func(ctx context.Context, change Change) error {
		one := call{Change: change, result: make(chan error)}
		select {
		case calls <- one:
		case <-ctx.Done():
			return ctx.Err()
		}
		select {
		case err := <-one.result:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	client, err := New(options)
	must(t, err)
	client.reconnect = newReconnect(time.Millisecond, 10*time.Millisecond)
	client.retry = backoff{min: time.Millisecond, max: 10 * time.Millisecond}
	if change != nil {
		change(client)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- client.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := next(t, ended, "end of Run"); !errors.Is(err, context.Canceled) {
			t.Errorf("Run returned %v", err)
		}
	})
	return client, calls
}

type call struct {
	Change
	result chan error
}

// applied waits for a call, checks its view, and lets it succeed.
func applied(t *testing.T, calls <-chan call, want string) Change {
	t.Helper()
	return answer(t, calls, want, nil)
}

func answer(t *testing.T, calls <-chan call, want string, result error) Change {
	t.Helper()
	one := next(t, calls, "call")
	if got := text(one.View); got != want {
		t.Fatalf("view is %q instead of %q", got, want)
	}
	one.result <- result
	return one.Change
}

func TestAStateIsAppliedOnlyAtItsMarker(t *testing.T) {
	watcher := startWatcher(t)
	client, calls := start(t, watcher.address, nil)
	stream := watcher.stream(t)
	stream.batch(reset(), service("web"), endpoint("web", "a", "10.0.0.1"), syncAt(1))
	applied(t, calls, "web: a 10.0.0.1")
	// The stream breaks between two operations: neither the deletion nor the new endpoint takes effect.
	stream.batch(remove(localv1.Set_EndpointsSet, "default/web/a"), endpoint("web", "b", "10.0.0.2"))
	stream.end(status.Error(codes.Unavailable, "cut"))
	stream = watcher.stream(t)
	if got := text(client.Status().Received); got != "web: a 10.0.0.1" {
		t.Fatalf("after the cut, the view is %q", got)
	}
	stream.batch(reset(), service("web"), endpoint("web", "b", "10.0.0.2"), syncAt(2))
	change := applied(t, calls, "web: b 10.0.0.2")
	if !slices.Equal(change.Touched, []string{"default/web"}) || change.First {
		t.Fatalf("touched %v, first %v", change.Touched, change.First)
	}
}

func TestResetAndSyncAreAnEmptyView(t *testing.T) {
	watcher := startWatcher(t)
	_, calls := start(t, watcher.address, nil)
	stream := watcher.stream(t)
	stream.batch(reset(), service("web"), syncAt(1))
	applied(t, calls, "web:")
	stream.batch(reset(), syncAt(2))
	if change := applied(t, calls, ""); !slices.Equal(change.Touched, []string{"default/web"}) {
		t.Fatalf("touched %v", change.Touched)
	}
}

func TestAFirstEmptyViewIsApplied(t *testing.T) {
	watcher := startWatcher(t)
	client, calls := start(t, watcher.address, nil)
	stream := watcher.stream(t)
	stream.batch(reset(), syncAt(1))
	if change := applied(t, calls, ""); !change.First {
		t.Fatal("the first call is not marked as first")
	}
	stream.request()
	if applied := client.Status().Applied; applied == nil || applied.Revision != 1 {
		t.Fatalf("applied %v", applied)
	}
}

func TestAnEqualViewOfANewStreamLeadsToNoCall(t *testing.T) {
	watcher := startWatcher(t)
	_, calls := start(t, watcher.address, nil)
	view := []*localv1.OpItem{reset(), service("api"), service("web"), endpoint("web", "a", "10.0.0.1")}
	stream := watcher.stream(t)
	stream.batch(append(view, syncAt(1))...)
	before := applied(t, calls, "api:, web: a 10.0.0.1").View
	stream.end(nil)
	stream = watcher.stream(t)
	stream.batch(append(view, syncAt(2))...)
	stream.batch(endpoint("web", "b", "10.0.0.2"), syncAt(3))
	change := applied(t, calls, "api:, web: a 10.0.0.1 b 10.0.0.2")
	if !slices.Equal(change.Touched, []string{"default/web"}) {
		t.Fatalf("touched %v", change.Touched)
	}
	if change.View.Services["default/api"] != before.Services["default/api"] {
		t.Fatal("an unchanged Service is a new object")
	}
	if len(before.Services["default/web"].Endpoints) != 1 {
		t.Fatal("the previous view has changed")
	}
}

func TestTheNextBatchIsRequestedAfterTheCall(t *testing.T) {
	watcher := startWatcher(t)
	_, calls := start(t, watcher.address, nil)
	stream := watcher.stream(t)
	for revision := uint64(1); revision <= 3; revision++ {
		stream.batch(reset(), service(fmt.Sprint("web", revision)), syncAt(revision))
		one := next(t, calls, "call")
		if len(stream.received) > 0 {
			t.Fatal("a batch was requested before the previous one was applied")
		}
		one.result <- nil
	}
}

func TestARequestNamesTheNodeAndTheFeatures(t *testing.T) {
	watcher := startWatcher(t)
	_, _ = start(t, watcher.address, func(c *Client) { c.options.ServiceProxyName = "other" })
	got := watcher.stream(t).request()
	want := &localv1.WatchReq{
		NodeName:         "n1",
		ServiceProxyName: "other",
		Features:         []localv1.Feature{localv1.Feature_Extended, localv1.Feature_NodeItem},
		Subscriber:       &localv1.Subscriber{Name: "go-client"},
	}
	if !proto.Equal(got, want) {
		t.Fatalf("request %v", got)
	}
}

func TestUnknownSetsAndOperationsAreIgnored(t *testing.T) {
	watcher := startWatcher(t)
	_, calls := start(t, watcher.address, nil)
	future := &localv1.OpItem{}
	future.ProtoReflect().SetUnknown(protowire.AppendBytes(protowire.AppendTag(nil, 199, protowire.BytesType), []byte("new")))
	watcher.stream(t).batch(
		reset(), set(77, "something", &localv1.Service{Name: "x"}), future, remove(77, "else"), service("web"), syncAt(1))
	applied(t, calls, "web:")
}

func TestAFaultyStreamIsClosedAndChangesNothing(t *testing.T) {
	for name, faulty := range map[string][]*localv1.OpItem{
		"an endpoint without its Service":           {endpoint("gone", "a", "10.0.0.9")},
		"an endpoint of a Service that was deleted": {remove(localv1.Set_ServicesSet, "default/web"), endpoint("web", "b", "10.0.0.9")},
		"a Service that cannot be decoded": {{Op: &localv1.OpItem_Set{Set: &localv1.Value{
			Ref: &localv1.Ref{Set: localv1.Set_ServicesSet, Path: "default/web"}, Bytes: []byte{0xff}}}}},
		"the Node of another node": {set(localv1.Set_NodesSet, "n2", &localv1.Node{Name: "n2"})},
		"a packed message":         {{Op: &localv1.OpItem_Batch{Batch: &localv1.BatchOp{}}}},
	} {
		t.Run(name, func(t *testing.T) {
			watcher := startWatcher(t)
			_, calls := start(t, watcher.address, nil)
			stream := watcher.stream(t)
			stream.batch(reset(), service("web"), endpoint("web", "a", "10.0.0.1"), syncAt(1))
			applied(t, calls, "web: a 10.0.0.1")
			stream.batch(faulty...)
			stream.closedByClient()
			watcher.stream(t).batch(reset(), service("api"), syncAt(3))
			applied(t, calls, "api:")
		})
	}
}

func TestAStreamThatDoesNotBeginWithResetIsClosed(t *testing.T) {
	watcher := startWatcher(t)
	_, _ = start(t, watcher.address, nil)
	stream := watcher.stream(t)
	stream.batch(service("web"), syncAt(1))
	stream.closedByClient()
}

func TestTheNodeIsPartOfTheView(t *testing.T) {
	watcher := startWatcher(t)
	_, calls := start(t, watcher.address, nil)
	stream := watcher.stream(t)
	stream.batch(reset(), set(localv1.Set_NodesSet, "n1", &localv1.Node{Name: "n1", Zone: "z1"}), syncAt(1))
	if change := applied(t, calls, ""); change.View.Node.GetZone() != "z1" || !change.NodeChanged {
		t.Fatalf("node %v", change.View.Node)
	}
	stream.batch(remove(localv1.Set_NodesSet, "n1"), syncAt(2))
	if change := applied(t, calls, ""); change.View.Node != nil || len(change.Touched) > 0 {
		t.Fatalf("change %v", change)
	}
}

func TestTheWatcherChoosesTheTimeOfTheNextStream(t *testing.T) {
	watcher := startWatcher(t)
	_, _ = start(t, watcher.address, func(c *Client) { c.reconnect = newReconnect(time.Hour, time.Hour) })
	// Without the trailer, the next stream would be opened within an hour.
	for _, end := range []error{status.Error(codes.Unavailable, "busy"), nil} {
		stream := watcher.stream(t)
		stream.SetTrailer(metadata.Pairs("grpc-retry-pushback-ms", "1"))
		stream.end(end)
	}
	watcher.stream(t)
}

func TestDelays(t *testing.T) {
	lost := errors.New("lost")
	for _, one := range []struct {
		name     string
		err      error
		progress time.Duration
		kind     string
		min, max time.Duration
	}{
		{"a lost stream waits for a random part of a second", lost, 0, "lost", 0, time.Second},
		{"nobody listens", fmt.Errorf("dial: %w", syscall.ECONNREFUSED), 0, "lost", 500 * time.Millisecond, time.Second},
		{"a busy watcher names the delay", pushbackError{lost, "40000"}, 0, "refused", 40 * time.Second, 40 * time.Second},
		{"a long delay is bounded", pushbackError{lost, "999999999"}, 0, "refused", maxPushback, maxPushback},
		{"a negative delay is the longest one", pushbackError{lost, "-1"}, 0, "refused", maxPushback, maxPushback},
		{"a working stream moves at once", pushbackError{lost, "0"}, 2 * time.Second, "moved", 0, 0},
		{"a stream that just began moves after a delay", pushbackError{lost, "0"}, time.Nanosecond, "moved", 1, time.Second},
	} {
		t.Run(one.name, func(t *testing.T) {
			r := newReconnect(time.Second, 30*time.Second)
			r.opening()
			if one.progress > 0 {
				r.workingSince = time.Now().Add(-one.progress)
			}
			kind, delay := r.ended(one.err)
			if kind != one.kind || delay < one.min || delay > one.max {
				t.Fatalf("%s after %v", kind, delay)
			}
		})
	}
	r := newReconnect(time.Second, 30*time.Second)
	for range 20 {
		if _, delay := r.ended(syscall.ECONNREFUSED); delay > 3*time.Second {
			t.Fatalf("while nobody listens, the delay is %v", delay)
		}
		r.ended(lost)
	}
	// A stream that works for less than 30 s does not shorten the delays.
	r.workingSince = time.Now().Add(-29 * time.Second)
	r.ended(lost)
	if r.lost.step != 30*time.Second {
		t.Fatalf("delays grow to %v", r.lost.step)
	}
	r.workingSince = time.Now().Add(-30 * time.Second)
	if _, delay := r.ended(lost); delay > time.Second {
		t.Fatalf("after a stream that has worked for 30 s, the delay is %v", delay)
	}
}

func TestAClientConnectsOnceSomebodyListens(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	address := listener.Addr().String()
	must(t, listener.Close())
	client, calls := start(t, address, nil)
	for client.Status().StreamErr == nil {
		time.Sleep(time.Millisecond)
	}
	if err := client.Status().StreamErr; !errors.Is(err, syscall.ECONNREFUSED) {
		t.Fatalf("reason %v", err)
	}
	listener, err = net.Listen("tcp", address)
	must(t, err)
	watcher := &fakeWatcher{address: address, streams: make(chan *fakeStream, 100)}
	server := grpc.NewServer()
	localv1.RegisterSetsServer(server, watcher)
	go server.Serve(listener)
	t.Cleanup(server.Stop)
	watcher.stream(t).batch(reset(), service("web"), syncAt(1))
	applied(t, calls, "web:")
}

func TestAnAddressWhereNobodyListensIsSkipped(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	must(t, listener.Close())
	watcher := startWatcher(t)
	_, calls := start(t, listener.Addr().String()+","+watcher.address, func(c *Client) {
		// No delay would end before the test gives up.
		c.reconnect = newReconnect(time.Hour, time.Hour)
	})
	watcher.stream(t).batch(reset(), service("web"), syncAt(1))
	applied(t, calls, "web:")
}

func TestTheNextStreamPrefersAnotherWatcher(t *testing.T) {
	watchers := []*fakeWatcher{startWatcher(t), startWatcher(t)}
	_, _ = start(t, watchers[0].address+","+watchers[1].address, nil)
	var last *fakeWatcher
	for range 6 {
		var stream *fakeStream
		var current *fakeWatcher
		select {
		case stream = <-watchers[0].streams:
			current = watchers[0]
		case stream = <-watchers[1].streams:
			current = watchers[1]
		case <-time.After(patience):
			t.Fatal("no stream")
		}
		if current == last {
			t.Fatal("the client returned to the watcher that had ended its stream")
		}
		last = current
		stream.end(nil)
	}
}

func TestAFailedCallIsRepeatedWithTheNewestView(t *testing.T) {
	watcher := startWatcher(t)
	client, calls := start(t, watcher.address, func(c *Client) { c.retry = backoff{min: time.Millisecond, max: time.Millisecond} })
	stream := watcher.stream(t)
	stream.batch(reset(), service("web"), syncAt(1))
	answer(t, calls, "web:", errors.New("no space left"))
	// The failed state does not keep the next one away.
	stream.request()
	if got := client.Status(); got.Err == nil || got.FailingSince.IsZero() || got.Applied != nil {
		t.Fatalf("status %v", got)
	}
	answer(t, calls, "web:", errors.New("no space left"))
	stream.send(service("api"), syncAt(2))
	var change Change
	for {
		one := next(t, calls, "call")
		if text(one.View) == "api:, web:" {
			one.result <- nil
			change = one.Change
			break
		}
		one.result <- errors.New("no space left")
	}
	// Touched begins at the last success.
	if !change.First || !slices.Equal(change.Touched, []string{"default/api", "default/web"}) {
		t.Fatalf("change %v", change)
	}
	stream.request()
	if got := client.Status(); got.Err != nil || !got.FailingSince.IsZero() || got.Applied != change.View {
		t.Fatalf("status %v", got)
	}
}

func TestResultsAreAcknowledged(t *testing.T) {
	watcher := startWatcher(t)
	_, calls := start(t, watcher.address, nil)
	acks := func(revision uint64) *localv1.OpItem {
		return marker(&localv1.EmptyOp{Revision: revision, Instance: "run", TakesAcks: true, AckIntervalMs: 1})
	}
	stream := watcher.stream(t)
	stream.batch(reset(), service("web"), acks(7))
	applied(t, calls, "web:")
	if ack := stream.ack(); ack.Applied != 7 || ack.Failed != 0 || ack.Error != "" {
		t.Fatalf("acknowledgement %v", ack)
	}
	stream.send(service("api"), acks(8))
	answer(t, calls, "api:, web:", errors.New(strings.Repeat("ä", 2000)))
	if ack := stream.ack(); ack.Applied != 7 || ack.Failed != 8 || ack.Error != strings.Repeat("ä", 1000) {
		t.Fatalf("acknowledgement %v", ack)
	}
	// The next stream, perhaps of a restarted watcher, begins with the failure.
	stream.end(nil)
	stream = watcher.stream(t)
	if request := stream.request(); len([]rune(request.GetLastFailure().GetError())) != 1000 {
		t.Fatalf("request %v", request)
	}
	applied(t, calls, "api:, web:")
	stream.send(reset(), service("api"), service("web"), acks(9))
	// An equal view is in effect without a call.
	if ack := stream.ack(); ack.Applied != 9 && ack.Applied != 8 {
		t.Fatalf("acknowledgement %v", ack)
	}
}

func TestAcknowledgementsAreLimited(t *testing.T) {
	watcher := startWatcher(t)
	_, calls := start(t, watcher.address, nil)
	stream := watcher.stream(t)
	mark := func(revision uint64) *localv1.OpItem {
		return marker(&localv1.EmptyOp{Revision: revision, Instance: "run", TakesAcks: true, AckIntervalMs: 300})
	}
	var revisions []uint64
	startedAt := time.Now()
	stream.batch(reset(), service("web0"), mark(1))
	for revision := uint64(1); len(revisions) < 3; {
		select {
		case one := <-calls:
			one.result <- nil
		case request := <-stream.received:
			if ack := request.GetAck(); ack != nil {
				revisions = append(revisions, ack.Applied)
				continue
			}
			revision++
			stream.send(service(fmt.Sprint("web", revision)), mark(revision))
		case <-time.After(patience):
			t.Fatal("no acknowledgement")
		}
	}
	if took := time.Since(startedAt); took < 600*time.Millisecond {
		t.Fatalf("three acknowledgements within %v", took)
	}
	// Each covers everything that was applied in between.
	if revisions[2] < revisions[0]+4 {
		t.Fatalf("acknowledged %v", revisions)
	}
}

func TestAWatcherThatTakesNoAcknowledgementsGetsNone(t *testing.T) {
	watcher := startWatcher(t)
	_, calls := start(t, watcher.address, nil)
	stream := watcher.stream(t)
	for revision := uint64(1); revision <= 3; revision++ {
		// batch fails if it finds an acknowledgement.
		stream.batch(reset(), service(fmt.Sprint("web", revision)), syncAt(revision))
		applied(t, calls, fmt.Sprintf("web%d:", revision))
	}
}

func at(version uint64) *localv1.OpItem {
	return marker(&localv1.EmptyOp{Revision: version, Instance: "run", Position: &localv1.Position{
		Source: "kube:1", Services: version, Slices: version, Nodes: version}})
}

func TestAnOlderStateIsRefused(t *testing.T) {
	watcher := startWatcher(t)
	client, calls := start(t, watcher.address, nil)
	stream := watcher.stream(t)
	stream.batch(reset(), service("new"), at(20))
	applied(t, calls, "new:")
	stream.end(nil)
	stream = watcher.stream(t)
	stream.batch(reset(), service("old"), at(19))
	stream.closedByClient()
	stream = watcher.stream(t)
	if err := client.Status().StreamErr; !errors.Is(err, errBehind) {
		t.Fatalf("reason %v", err)
	}
	stream.batch(reset(), service("newer"), at(21))
	applied(t, calls, "newer:")
}

func TestAnOlderStateIsAcceptedIfNothingNewerIsOffered(t *testing.T) {
	watcher := startWatcher(t)
	_, calls := start(t, watcher.address, func(c *Client) { c.gate.acceptAfter = 300 * time.Millisecond })
	stream := watcher.stream(t)
	stream.batch(reset(), service("new"), at(20))
	applied(t, calls, "new:")
	stream.end(nil)
	refusedAt := time.Time{}
	giveUp := time.After(patience)
	for {
		select {
		case <-giveUp:
			t.Fatal("the state was not accepted")
		case stream := <-watcher.streams:
			stream.t = t
			stream.batch(reset(), service("old"), at(19))
			if refusedAt.IsZero() {
				refusedAt = time.Now()
			}
			continue
		case one := <-calls:
			one.result <- nil
			if got := text(one.View); got != "old:" {
				t.Fatalf("view %q", got)
			}
		}
		break
	}
	if took := time.Since(refusedAt); took < 290*time.Millisecond {
		t.Fatalf("accepted after %v", took)
	}
}

func TestPositions(t *testing.T) {
	version := func(source string, services, current uint64) *localv1.Position {
		return position(&localv1.EmptyOp{Instance: "i1", Position: &localv1.Position{Source: source, Services: services, CurrentServices: current}})
	}
	for _, one := range []struct {
		name          string
		offered, held *localv1.Position
		want          relation
	}{
		{"the current version counts", version("kube:1", 100, 180), version("kube:1", 150, 150), covers},
		{"without a current version, that of the last change counts", version("kube:1", 100, 0), version("kube:1", 150, 0), behind},
		{"another cluster", version("kube:2", 100, 0), version("kube:1", 10, 0), foreign},
		{"a cluster that may be the same", version("kube", 9, 0), version("kube:1", 10, 0), behind},
		{"another watcher's files", version("i2", 1, 0), version("", 10, 0), unrelated},
		{"the files of the same watcher", version("i1", 1, 0), version("", 10, 0), behind},
		{"a watcher without positions", nil, version("kube:1", 10, 0), unrelated},
	} {
		if got := relate(one.offered, one.held); got != one.want {
			t.Errorf("%s: %v instead of %v", one.name, got, one.want)
		}
	}
}

func TestASilentWatcherIsLeft(t *testing.T) {
	watcher := startWatcher(t)
	client, calls := start(t, watcher.address, nil)
	stream := watcher.stream(t)
	// A Go server does not send the pings that this header announces.
	must(t, stream.SetHeader(metadata.Pairs("kpng-ping-ms", "20")))
	stream.batch(reset(), service("web"), syncAt(1))
	applied(t, calls, "web:")
	stream.closedByClient()
	watcher.stream(t)
	if err := client.Status().StreamErr; !errors.Is(err, errSilent) {
		t.Fatalf("reason %v", err)
	}
}

func TestTLSFilesAndTokensAreReadAgain(t *testing.T) {
	folder := t.TempDir()
	caFile, tokenFile := filepath.Join(folder, "ca.crt"), filepath.Join(folder, "token")
	var current atomic.Pointer[tls.Certificate]
	issue := func(token string) {
		certificate, ca := issueCertificate(t)
		must(t, os.WriteFile(caFile, ca, 0o600))
		must(t, os.WriteFile(tokenFile, []byte(token+"\n"), 0o600))
		current.Store(&certificate)
	}
	issue("one")
	config := &tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return current.Load(), nil }}
	watcher := startWatcher(t, grpc.Creds(credentials.NewTLS(config)))
	_, calls := start(t, "https://"+watcher.address, func(c *Client) { c.options.TLSCA, c.options.TokenFile = caFile, tokenFile })
	for _, token := range []string{"one", "two"} {
		stream := watcher.stream(t)
		stream.batch(reset(), service(token), syncAt(1))
		applied(t, calls, token+":")
		sent, _ := metadata.FromIncomingContext(stream.Context())
		if got := sent.Get("authorization"); !slices.Equal(got, []string{"Bearer " + token}) {
			t.Fatalf("authorization %q", got)
		}
		if token == "one" {
			issue("two")
		}
		stream.end(nil)
	}
}

func issueCertificate(t *testing.T) (tls.Certificate, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(time.Now().UnixNano()),
		NotAfter:              time.Now().Add(time.Hour),
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA:                  true,
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	must(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func TestOptions(t *testing.T) {
	apply := func(context.Context, *View) error { return nil }
	for _, one := range []struct {
		options Options
		want    string
	}{
		{Options{OnState: apply}, "NodeName"},
		{Options{NodeName: "n1"}, "OnState"},
		{Options{NodeName: "n1", OnState: apply, API: "ftp://a"}, "not an address"},
		{Options{NodeName: "n1", OnState: apply, API: "10.0.0.1:1", TokenFile: "/token"}, "plain TCP"},
		{Options{NodeName: "n1", OnState: apply, API: "http://a:1", TLSCA: "/ca"}, "disables TLS"},
		{Options{NodeName: "n1", OnState: apply, TLSKey: "/key"}, "TLSCert"},
		{Options{NodeName: "n1", OnState: apply, API: "unix:///run/kpng.sock,[::1]:1, a", TLSCA: "/ca", TokenFile: "/token"}, ""},
	} {
		_, err := New(one.options)
		if (err == nil) != (one.want == "") || (err != nil && !strings.Contains(err.Error(), one.want)) {
			t.Errorf("%v instead of %q", err, one.want)
		}
	}
}

// KPNG_DESCRIPTORS names a file that `buf build` made from the proto files.
func TestGeneratedCodeIsUpToDate(t *testing.T) {
	path := os.Getenv("KPNG_DESCRIPTORS")
	if path == "" {
		t.Skip("KPNG_DESCRIPTORS is not set")
	}
	bytes, err := os.ReadFile(path)
	must(t, err)
	files := &descriptorpb.FileDescriptorSet{}
	must(t, proto.Unmarshal(bytes, files))
	for _, generated := range []protoreflect.FileDescriptor{localv1.File_localv1_api_proto, planv1.File_kpng_plan_v1_plan_proto} {
		ours := protodesc.ToFileDescriptorProto(generated)
		if !slices.ContainsFunc(files.GetFile(), func(file *descriptorpb.FileDescriptorProto) bool { return proto.Equal(file, ours) }) {
			t.Errorf("generated code of %s is out of date", ours.GetName())
		}
	}
}
