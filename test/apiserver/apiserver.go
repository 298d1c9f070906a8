// SPDX-License-Identifier: Apache-2.0

// Package apiserver is a small API server in memory, for tests. It has the nodes, pods, resource claims and
// resource slices that a test puts into it or a client creates: with versions, conflicts, watches that select
// by field, and the fields of those feature gates alone that are on. What the server does not imitate, such
// as labels and dry runs of changes, it refuses; it validates nothing.
//
// A client in the same process (package client) uses the server as a transport, also in a bubble of package
// testing/synctest. [Serve] serves programs over HTTPS.
package apiserver

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// Server is an API server. A test changes its objects directly, clients by requests.
type Server struct {
	// Refuse sees each request that is about to have an effect, unless nil. Its error is the answer; one that
	// is none of the API breaks the connection. It has to be set before the first request.
	Refuse func(*http.Request) error

	mu       sync.Mutex
	features Features
	entries  map[string]*entry // by path
	versions int
	oldest   int      // version from which changes are known
	deleted  []Object // with the version of the deletion
	names    int      // that were made
	streams  map[*stream]bool
	troubles
}

// entry is an object, which is replaced and never changed, and what the server knows of it.
type entry struct {
	Object
	created int                                            // version
	applied map[string][]resourceapi.AllocatedDeviceStatus // by field manager
}

// Features are the version of a server, and its feature gates.
type Features struct {
	Version  string
	Counters bool // DRAPartitionableDevices
	Taints   bool // DRADeviceTaints
}

// New returns a server of Kubernetes 1.37 with objects.
func New(objects ...Object) *Server {
	s := &Server{
		features: Features{Version: "v1.37.0", Counters: true, Taints: true},
		entries:  map[string]*entry{}, streams: map[*stream]bool{},
	}
	s.Put(objects...)
	return s
}

// Features returns the features.
func (s *Server) Features() Features {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.features
}

// SetFeatures changes the features for later requests.
func (s *Server) SetFeatures(to Features) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.features = to
}

// Put writes copies of objects, new or in the place of those with the same name.
func (s *Server) Put(objects ...Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range objects {
		s.put(o.DeepCopyObject().(Object))
	}
}

// Remove removes an object if the server has it.
func Remove[T Object](s *Server, namespace, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remove(pathOf[T](namespace, name))
}

// Change changes an object if the server has it.
func Change[T Object](s *Server, namespace, name string, change func(T)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.entries[pathOf[T](namespace, name)]; e != nil {
		changed := e.DeepCopyObject().(T)
		change(changed)
		s.put(changed)
	}
}

// Get returns an object, which nobody may change, and nil without the object.
func Get[T Object](s *Server, namespace, name string) (o T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.entries[pathOf[T](namespace, name)]; e != nil {
		o = e.Object.(T)
	}
	return o
}

// List returns all objects of a kind, which nobody may change, by namespace and name.
func List[T Object](s *Server) (all []T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, path := range slices.Sorted(maps.Keys(s.entries)) {
		if o, ok := s.entries[path].Object.(T); ok {
			all = append(all, o)
		}
	}
	return all
}

// put writes an object. Must be called with the mutex.
func (s *Server) put(o Object) {
	of := collectionOf(o)
	path := of.path(o.GetNamespace(), o.GetName())
	s.versions++
	o.SetResourceVersion(fmt.Sprint(s.versions))
	o.GetObjectKind().SetGroupVersionKind(of.version.WithKind(of.kind))
	e := s.entries[path]
	if e == nil {
		e = &entry{created: s.versions, applied: map[string][]resourceapi.AllocatedDeviceStatus{}}
		s.entries[path] = e
	}
	before := e.Object
	e.Object = o
	s.tell(before, o)
}

// remove removes an object. Must be called with the mutex.
func (s *Server) remove(path string) {
	e := s.entries[path]
	if e == nil {
		return
	}
	delete(s.entries, path)
	s.versions++
	s.deleted = append(s.deleted, s.gone(e.Object))
	s.tell(e.Object, nil)
}

// gone returns an object with the version of its deletion, the latest. Must be called with the mutex.
func (s *Server) gone(o Object) Object {
	gone := o.DeepCopyObject().(Object)
	gone.SetResourceVersion(fmt.Sprint(s.versions))
	return gone
}

// tell sends a change to the watches that select the object before or after the change, nil for no object.
// Must be called with the mutex.
func (s *Server) tell(before, after Object) {
	for w := range s.streams {
		was, is := before != nil && w.selects(before), after != nil && w.selects(after)
		switch {
		case was && is:
			w.send(watch.Modified, after)
		case is:
			w.send(watch.Added, after)
		case was:
			w.send(watch.Deleted, s.gone(before))
		}
	}
}

// drop drops the fields whose feature gates are off. Must be called with the mutex.
func (s *Server) drop(o Object) {
	slice, ok := o.(*resourceapi.ResourceSlice)
	if !ok {
		return
	}
	if !s.features.Counters {
		slice.Spec.SharedCounters = nil
	}
	for i := range slice.Spec.Devices {
		if !s.features.Counters {
			slice.Spec.Devices[i].ConsumesCounters = nil
		}
		if !s.features.Taints {
			slice.Spec.Devices[i].Taints = nil
		}
	}
}
