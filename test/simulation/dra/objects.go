// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strconv"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tandem-k8s/tandem/plugins/dra/pool"
	"github.com/tandem-k8s/tandem/test/simulation/seeds"
)

// Types of objects in answers.
var (
	sliceType = metav1.TypeMeta{Kind: "ResourceSlice", APIVersion: "resource.k8s.io/v1"}
	claimType = metav1.TypeMeta{Kind: "ResourceClaim", APIVersion: "resource.k8s.io/v1"}
	podType   = metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}
	nodeType  = metav1.TypeMeta{Kind: "Node", APIVersion: "v1"}
)

func resource(at string) schema.GroupResource {
	return schema.GroupResource{Resource: path.Base(path.Dir(at))}
}

// create creates a slice, or with a dry run only returns the slice.
func (s *server) create(r *http.Request, content []byte) (any, error) {
	slice := &resourceapi.ResourceSlice{}
	if err := json.Unmarshal(content, slice); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	slice.TypeMeta = sliceType
	s.drop(slice)
	if r.URL.Query().Get("dryRun") != "" {
		return slice, nil
	}
	s.names++
	slice.Name = fmt.Sprintf("%s%05d", slice.GenerateName, s.names)
	s.put(slicesPath+"/"+slice.Name, slice)
	return slice, nil
}

// update replaces a slice of the same version.
func (s *server) update(at string, content []byte) (any, error) {
	slice := &resourceapi.ResourceSlice{}
	if err := json.Unmarshal(content, slice); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	before, ok := s.objects[at]
	switch {
	case !ok:
		return nil, apierrors.NewNotFound(resource(at), path.Base(at))
	case before.GetResourceVersion() != slice.ResourceVersion:
		return nil, apierrors.NewConflict(resource(at), path.Base(at), errRefused)
	}
	slice.TypeMeta = sliceType
	s.drop(slice)
	s.put(at, slice)
	return slice, nil
}

// apply applies the driver's devices to the status of a claim.
func (s *server) apply(at string, content []byte) (any, error) {
	applied := &resourceapi.ResourceClaim{}
	if err := json.Unmarshal(content, applied); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	claim, ok := s.objects[at].(*resourceapi.ResourceClaim)
	switch {
	case !ok:
		return nil, apierrors.NewNotFound(resource(at), path.Base(at))
	case applied.UID != "" && applied.UID != claim.UID:
		return nil, apierrors.NewConflict(resource(at), path.Base(at), errRefused)
	}
	claim = claim.DeepCopy()
	claim.Status.Devices = slices.DeleteFunc(claim.Status.Devices,
		func(d resourceapi.AllocatedDeviceStatus) bool { return d.Driver == pool.Driver })
	claim.Status.Devices = append(claim.Status.Devices, applied.Status.Devices...)
	s.put(at, claim)
	return claim, nil
}

// read answers a list or a watch of slices.
func (s *server) read(p *process, r *http.Request) (*http.Response, error) {
	if err := s.await(p, r); err != nil {
		return nil, err
	}
	query := r.URL.Query()
	selector, err := fields.ParseSelector(query.Get("fieldSelector"))
	if err != nil {
		return failed(r, apierrors.NewBadRequest(err.Error()))
	}
	selects := func(slice *resourceapi.ResourceSlice) bool { return selector.Matches(fieldsOf(slice)) }
	s.mu.Lock()
	defer s.mu.Unlock()
	if query.Get("watch") == "" {
		list := resourceapi.ResourceSliceList{
			TypeMeta: metav1.TypeMeta{Kind: "ResourceSliceList", APIVersion: sliceType.APIVersion},
			ListMeta: metav1.ListMeta{ResourceVersion: fmt.Sprint(s.versions)},
		}
		for _, slice := range s.slices(selects) {
			list.Items = append(list.Items, *slice)
		}
		return encoded(r, http.StatusOK, list)
	}
	w := &stream{
		server: s, selects: selects, began: time.Now(), ctx: r.Context(), latency: p.latency,
		woken: make(chan struct{}, 1),
	}
	s.streams[w] = true
	if query.Get("sendInitialEvents") == "true" {
		w.sendInitial(s.slices(selects), fmt.Sprint(s.versions))
	} else {
		s.catchUp(w, query.Get("resourceVersion"))
	}
	return response(r, http.StatusOK, w), nil
}

// awaitVoice waits while the server answers no request.
func (s *server) awaitVoice(p *process, r *http.Request) error {
	s.mu.Lock()
	silent := s.silent
	s.mu.Unlock()
	if !silent {
		return nil
	}
	return s.await(p, r)
}

// await waits until the server answers lists and watches.
func (s *server) await(p *process, r *http.Request) error {
	s.mu.Lock()
	healed := s.healed
	s.mu.Unlock()
	if healed == nil {
		return nil
	}
	select {
	case <-healed:
		seeds.Pause(r.Context(), p.latency)
		return nil
	case <-r.Context().Done():
		return r.Context().Err()
	case <-p.dead:
		return errKilled
	}
}

// catchUp sends the changes since a version.
func (s *server) catchUp(w *stream, version string) {
	since, err := strconv.Atoi(version) // none: from the beginning
	if err == nil && since > 0 && since < s.oldest {
		w.expire()
		return
	}
	newer := func(slice *resourceapi.ResourceSlice) bool {
		at, err := strconv.Atoi(slice.ResourceVersion)
		return err == nil && at > since && w.selects(slice)
	}
	for _, slice := range s.deleted {
		if newer(slice) {
			w.send("DELETED", slice)
		}
	}
	for _, slice := range s.slices(newer) {
		w.send("MODIFIED", slice)
	}
}

// fieldsOf returns the fields of a slice for selectors.
func fieldsOf(slice *resourceapi.ResourceSlice) fields.Set {
	node := ""
	if slice.Spec.NodeName != nil {
		node = *slice.Spec.NodeName
	}
	return fields.Set{
		resourceapi.ResourceSliceSelectorDriver: slice.Spec.Driver, resourceapi.ResourceSliceSelectorNodeName: node,
		resourceapi.ResourceSliceSelectorPoolName: slice.Spec.Pool.Name,
	}
}

// isOwn reports whether a slice belongs to the driver on the node.
func isOwn(slice *resourceapi.ResourceSlice) bool {
	return slice.Spec.Driver == pool.Driver && slice.Spec.NodeName != nil && *slice.Spec.NodeName == nodeName
}
