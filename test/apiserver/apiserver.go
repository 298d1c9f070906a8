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
	objects  map[string]Object // by path; an object is replaced, and never changed
	versions int
	oldest   int            // version from which changes are known
	deleted  []Object       // with the version of the deletion
	created  map[string]int // version of an object's creation, by path
	names    int            // that were made
	applied  map[applier][]resourceapi.AllocatedDeviceStatus
	streams  map[*stream]bool
	troubles
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
		objects:  map[string]Object{}, streams: map[*stream]bool{},
		created: map[string]int{}, applied: map[applier][]resourceapi.AllocatedDeviceStatus{},
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
	if o, ok := s.objects[pathOf[T](namespace, name)]; ok {
		changed := o.DeepCopyObject().(T)
		change(changed)
		s.put(changed)
	}
}

// Get returns an object, which nobody may change, and nil without the object.
func Get[T Object](s *Server, namespace, name string) T {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, _ := s.objects[pathOf[T](namespace, name)].(T)
	return o
}

// List returns all objects of a kind, which nobody may change, by namespace and name.
func List[T Object](s *Server) (all []T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, path := range slices.Sorted(maps.Keys(s.objects)) {
		if o, ok := s.objects[path].(T); ok {
			all = append(all, o)
		}
	}
	return all
}

// put writes an object. Must be called with the mutex.
func (s *Server) put(o Object) {
	of := collectionOf(o)
	path := of.path(o.GetNamespace(), o.GetName())
	before := s.objects[path]
	s.versions++
	if before == nil {
		s.created[path] = s.versions
	}
	o.SetResourceVersion(fmt.Sprint(s.versions))
	o.GetObjectKind().SetGroupVersionKind(of.version.WithKind(of.kind))
	s.objects[path] = o
	for w := range s.streams {
		was, is := before != nil && w.selects(before), w.selects(o)
		switch {
		case was && is:
			w.send(watch.Modified, o)
		case is:
			w.send(watch.Added, o)
		case was:
			w.send(watch.Deleted, o)
		}
	}
}

// remove removes an object. Must be called with the mutex.
func (s *Server) remove(path string) {
	o, ok := s.objects[path]
	if !ok {
		return
	}
	delete(s.objects, path)
	s.versions++
	gone := o.DeepCopyObject().(Object)
	gone.SetResourceVersion(fmt.Sprint(s.versions))
	s.deleted = append(s.deleted, gone)
	for w := range s.streams {
		if w.selects(gone) {
			w.send(watch.Deleted, gone)
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
