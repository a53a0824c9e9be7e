package kpng

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/kpng-project/kpng/clients/go/localv1"
)

// position returns the position of a state; nil if the watcher cannot tell.
func position(mark *localv1.EmptyOp) *localv1.Position {
	if mark.GetPosition() == nil {
		return nil
	}
	result := proto.CloneOf(mark.GetPosition())
	if result.Source == "" {
		result.Source = mark.GetInstance()
	}
	// Without a version of its own, a state is known to be current up to its last change.
	result.CurrentServices = max(result.CurrentServices, result.Services)
	result.CurrentSlices = max(result.CurrentSlices, result.Slices)
	result.CurrentNodes = max(result.CurrentNodes, result.Nodes)
	return result
}

// relation of an offered state to the held one.
type relation int

const (
	// unrelated: a position is unknown, or counts the revisions of one watcher.
	unrelated relation = iota
	// covers: the offered state is not older.
	covers
	// behind: the offered state may be older for at least one kind.
	behind
	// foreign: the offered state comes from another cluster.
	foreign
)

func relate(offered, held *localv1.Position) relation {
	if offered == nil || held == nil {
		return unrelated
	}
	if offered.Source != held.Source {
		if !isKube(offered.Source) || !isKube(held.Source) {
			return unrelated
		}
		// A watcher that may not read the cluster's identity is assumed to serve the same cluster.
		if offered.Source != "kube" && held.Source != "kube" {
			return foreign
		}
	}
	if offered.CurrentServices < held.Services || offered.CurrentSlices < held.Slices || offered.CurrentNodes < held.Nodes {
		return behind
	}
	return covers
}

func isKube(source string) bool {
	return source == "kube" || strings.HasPrefix(source, "kube:")
}

// errBehind ends a stream whose state is in doubt; another watcher may have a newer one.
var errBehind = errors.New("kpng: the watcher offers a state that may be older")

// gate admits only states that are not older than the held one. A state in doubt is refused until all offers have been
// in doubt for acceptAfter; then the best offered state is accepted. It outlives streams.
type gate struct {
	acceptAfter time.Duration
	held        *localv1.Position
	// The series of refusals; it ends when nothing has been offered for twice acceptAfter.
	firstRefusal, lastRefusal time.Time
	best                      rank
	bestAt                    time.Time
}

// rank orders states in doubt: those of a watcher that is not stale, of the same cluster, with higher versions.
type rank struct {
	isFresh, isOurs bool
	versions        uint64
}

func (a rank) isLess(b rank) bool {
	if a.isFresh != b.isFresh {
		return b.isFresh
	}
	if a.isOurs != b.isOurs {
		return b.isOurs
	}
	return a.versions < b.versions
}

// admit returns how to record that an offered state was taken, or an error if the state is refused. isSame says that
// the node already has this state.
func (g *gate) admit(offered *localv1.Position, isStale, isSame bool) (func(), error) {
	taken := func(next *localv1.Position) (func(), error) {
		return func() {
			g.held, g.firstRefusal, g.lastRefusal, g.bestAt = next, time.Time{}, time.Time{}, time.Time{}
		}, nil
	}
	relation := relate(offered, g.held)
	if relation == unrelated || (relation == covers && !isStale) {
		return taken(offered)
	}
	// The node keeps its own position, which is higher.
	if isSame {
		return taken(g.held)
	}
	now := time.Now()
	if !g.isRecent(g.lastRefusal, now) {
		g.firstRefusal = now
	}
	g.lastRefusal = now
	ours := rank{!isStale, relation != foreign, offered.CurrentServices + offered.CurrentSlices + offered.CurrentNodes}
	if g.isRecent(g.bestAt, now) && ours.isLess(g.best) {
		return nil, g.refusal(offered)
	}
	if now.Sub(g.firstRefusal) >= g.acceptAfter {
		return taken(offered)
	}
	g.best, g.bestAt = ours, now
	return nil, g.refusal(offered)
}

func (g *gate) refusal(offered *localv1.Position) error {
	return fmt.Errorf("%w: {%v} after {%v}", errBehind, offered, g.held)
}

func (g *gate) isRecent(at, now time.Time) bool {
	return !at.IsZero() && now.Sub(at) <= 2*g.acceptAfter
}

// retryDelay shortens a delay while states are refused, so that one is accepted soon after acceptAfter. A random part
// is added, because after an etcd restore all nodes wait for the same moment.
func (g *gate) retryDelay(delay time.Duration) time.Duration {
	now := time.Now()
	if !g.isRecent(g.bestAt, now) {
		return delay
	}
	remaining := max(0, g.firstRefusal.Add(g.acceptAfter).Sub(now))
	return min(delay, remaining+time.Duration(rand.Float64()*float64(g.acceptAfter)/10))
}
