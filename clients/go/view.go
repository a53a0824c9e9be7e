package kpng

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/kpng-project/kpng/clients/go/localv1"
)

// View is the complete state of a node. It never changes; two views share the Services that are equal in both.
type View struct {
	// Services by "namespace/name".
	Services map[string]*Service
	// Node is nil if the cluster does not know it.
	Node *localv1.Node
	// Revision counts the states of the watcher's run Instance. 0 and "" from a Go watcher.
	Revision uint64
	Instance string
}

// Service is a Service with its endpoints, in the order of their keys.
type Service struct {
	*localv1.Service
	Endpoints []Endpoint
}

// Endpoint is an endpoint with its key, which is unique in its Service and has no other meaning.
//
// Before it uses an endpoint, a program must look at Use: an endpoint in neither set gets no new traffic.
type Endpoint struct {
	*localv1.Endpoint
	Key string
}

// readBatch reads operations up to Sync, and stages them beside the view.
func readBatch(stream watchStream, view *View, node string, isFirst bool) (*staged, *localv1.EmptyOp, error) {
	batch := &staged{base: view, node: view.Node, services: map[string]*Service{}, nodeName: node}
	for {
		item, err := stream.Recv()
		if err != nil {
			return nil, nil, err
		}
		switch op := item.GetOp().(type) {
		case *localv1.OpItem_Reset_:
			// The new state is built beside the old one: only Sync says that it is complete.
			batch = &staged{base: &View{}, services: map[string]*Service{}, nodeName: node, isReset: true}
		case *localv1.OpItem_Set:
			err = batch.set(op.Set.GetRef(), op.Set.GetBytes())
		case *localv1.OpItem_Delete:
			err = batch.delete(op.Delete)
		case *localv1.OpItem_Sync:
			if isFirst && !batch.isReset {
				return nil, nil, errors.New("kpng: the watcher did not start the stream with Reset")
			}
			return batch, op.Sync, nil
		case *localv1.OpItem_Keep, *localv1.OpItem_Batch:
			return nil, nil, fmt.Errorf("kpng: the watcher sent %T, which was not requested", op)
		default:
			// An operation of a newer watcher.
		}
		if err != nil {
			return nil, nil, fmt.Errorf("kpng: bad stream: %w", err)
		}
	}
}

// staged is a view while a batch changes it.
type staged struct {
	base     *View
	nodeName string
	node     *localv1.Node
	// Changed Services, copied from base; nil for a deleted one.
	services map[string]*Service
	isReset  bool
}

// service returns the copy of a Service that this batch may change; nil if the view does not contain the Service.
func (s *staged) service(path string) *Service {
	if service, ok := s.services[path]; ok {
		return service
	}
	service := s.base.Services[path]
	if service == nil {
		return nil
	}
	service = &Service{Service: service.Service, Endpoints: slices.Clone(service.Endpoints)}
	s.services[path] = service
	return service
}

func (s *staged) set(ref *localv1.Ref, bytes []byte) error {
	path := ref.GetPath()
	switch ref.GetSet() {
	case localv1.Set_ServicesSet:
		message := &localv1.Service{}
		if err := proto.Unmarshal(bytes, message); err != nil {
			return fmt.Errorf("Service %q: %w", path, err)
		}
		if service := s.service(path); service != nil {
			service.Service = message
		} else {
			s.services[path] = &Service{Service: message}
		}
	case localv1.Set_EndpointsSet:
		message := &localv1.Endpoint{}
		if err := proto.Unmarshal(bytes, message); err != nil {
			return fmt.Errorf("endpoint %q: %w", path, err)
		}
		name, key := splitEndpoint(path)
		service := s.service(name)
		if service == nil {
			return fmt.Errorf("endpoint %q arrived without its Service", path)
		}
		at, found := service.find(key)
		if found {
			service.Endpoints[at].Endpoint = message
		} else {
			service.Endpoints = slices.Insert(service.Endpoints, at, Endpoint{Endpoint: message, Key: key})
		}
	case localv1.Set_NodesSet:
		message := &localv1.Node{}
		if err := proto.Unmarshal(bytes, message); err != nil {
			return fmt.Errorf("Node %q: %w", path, err)
		}
		if message.GetName() != s.nodeName {
			return fmt.Errorf("Node %q arrived at node %q", message.GetName(), s.nodeName)
		}
		s.node = message
	default:
		// A kind of item of a newer watcher.
	}
	return nil
}

// delete ignores items that the view does not contain.
func (s *staged) delete(ref *localv1.Ref) error {
	path := ref.GetPath()
	switch ref.GetSet() {
	case localv1.Set_ServicesSet:
		s.services[path] = nil
	case localv1.Set_EndpointsSet:
		name, key := splitEndpoint(path)
		if service := s.service(name); service != nil {
			if at, found := service.find(key); found {
				service.Endpoints = slices.Delete(service.Endpoints, at, at+1)
			}
		}
	case localv1.Set_NodesSet:
		s.node = nil
	}
	return nil
}

// finish returns the complete view, and the Services in which it differs from before.
func (s *staged) finish(before *View, mark *localv1.EmptyOp) (*View, map[string]struct{}) {
	view := &View{
		Services: make(map[string]*Service, len(s.base.Services)+len(s.services)),
		Node:     s.node,
		Revision: mark.GetRevision(),
		Instance: mark.GetInstance(),
	}
	maps.Copy(view.Services, s.base.Services)
	touched := map[string]struct{}{}
	for path, service := range s.services {
		old := before.Services[path]
		switch {
		case service == nil:
			delete(view.Services, path)
		case equal(old, service):
			view.Services[path] = old
		default:
			view.Services[path] = service
		}
		if view.Services[path] != old {
			touched[path] = struct{}{}
		}
	}
	if s.isReset {
		for path := range before.Services {
			if view.Services[path] == nil {
				touched[path] = struct{}{}
			}
		}
	}
	if proto.Equal(before.Node, view.Node) {
		view.Node = before.Node
	}
	return view, touched
}

func (s *Service) find(key string) (int, bool) {
	return slices.BinarySearchFunc(s.Endpoints, key, func(e Endpoint, key string) int { return strings.Compare(e.Key, key) })
}

// splitEndpoint returns the path of the Service, and the key. Keys may contain slashes.
func splitEndpoint(path string) (service, key string) {
	namespace, rest, _ := strings.Cut(path, "/")
	name, key, _ := strings.Cut(rest, "/")
	return namespace + "/" + name, key
}

func equal(a, b *Service) bool {
	return a != nil && proto.Equal(a.Service, b.Service) && slices.EqualFunc(a.Endpoints, b.Endpoints,
		func(a, b Endpoint) bool { return a.Key == b.Key && proto.Equal(a.Endpoint, b.Endpoint) })
}
