// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Reasons for refusing a change.
var (
	errChanged = errors.New("the object has been changed")
	errDryRun  = apierrors.NewBadRequest("this server has no dry runs of changes")
)

// isAnother reports whether a request is about another object of the name, or another version; "" is any.
func isAnother(o Object, uid types.UID, version string) bool {
	return uid != "" && uid != o.GetUID() || version != "" && version != o.GetResourceVersion()
}

// create creates an object, or with a dry run only returns the object. Must be called with the mutex.
func (s *Server) create(at target, r *http.Request, content []byte) (any, error) {
	o, err := s.decode(at, content)
	if err != nil {
		return nil, err
	}
	o.SetNamespace(at.namespace)
	switch {
	case s.entries[at.path(at.namespace, o.GetName())] != nil:
		return nil, apierrors.NewAlreadyExists(at.resource(), o.GetName())
	case o.GetResourceVersion() != "":
		return nil, apierrors.NewBadRequest("a new object has no version")
	case r.URL.Query().Get("dryRun") != "":
		return o, nil
	case o.GetName() == "":
		s.names++
		o.SetName(fmt.Sprintf("%s%05d", o.GetGenerateName(), s.names))
	}
	o.SetUID(types.UID(fmt.Sprint("uid-", s.versions+1)))
	o.SetCreationTimestamp(metav1.Now())
	s.put(o)
	return o, nil
}

// update replaces an object. Must be called with the mutex.
func (s *Server) update(at target, before Object, content []byte) (any, error) {
	o, err := s.decode(at, content)
	switch {
	case err != nil:
		return nil, err
	case at.part != "":
		return nil, apierrors.NewMethodNotSupported(at.resource(), "update "+at.part)
	case isAnother(before, o.GetUID(), o.GetResourceVersion()):
		return nil, apierrors.NewConflict(at.resource(), at.object, errChanged)
	}
	o.SetUID(before.GetUID())
	o.SetCreationTimestamp(before.GetCreationTimestamp())
	o.SetResourceVersion(before.GetResourceVersion())
	if reflect.DeepEqual(o, before) {
		return before, nil
	}
	s.put(o)
	return o, nil
}

// delete removes an object. Must be called with the mutex.
func (s *Server) delete(at target, o Object, content []byte) (any, error) {
	var options metav1.DeleteOptions
	if len(content) > 0 {
		if err := json.Unmarshal(content, &options); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
	}
	var uid types.UID
	var version string
	if p := options.Preconditions; p != nil && p.UID != nil {
		uid = *p.UID
	}
	if p := options.Preconditions; p != nil && p.ResourceVersion != nil {
		version = *p.ResourceVersion
	}
	switch {
	case len(options.DryRun) > 0:
		return nil, errDryRun
	case isAnother(o, uid, version):
		return nil, apierrors.NewConflict(at.resource(), at.object, errChanged)
	}
	s.remove(at.path(at.namespace, at.object))
	return metav1.Status{Status: metav1.StatusSuccess}, nil
}

// apply applies a manager's devices to the status of a claim, in place of those that the manager has applied
// before. Must be called with the mutex.
func (s *Server) apply(at target, e *entry, r *http.Request, content []byte) (any, error) {
	o, err := s.decode(at, content)
	if err != nil {
		return nil, err
	}
	claim, ok := e.DeepCopyObject().(*resourceapi.ResourceClaim)
	if !ok || at.part != "status" || r.Header.Get("Content-Type") != string(types.ApplyYAMLPatchType) {
		return nil, apierrors.NewMethodNotSupported(at.resource(), "patch "+at.part)
	}
	manager := r.URL.Query().Get("fieldManager")
	switch {
	case manager == "":
		return nil, apierrors.NewBadRequest("fieldManager is required for apply patch")
	case isAnother(claim, o.GetUID(), ""):
		return nil, apierrors.NewConflict(at.resource(), at.object, errChanged)
	}
	applied := o.(*resourceapi.ResourceClaim).Status.Devices
	replaced := slices.Concat(e.applied[manager], applied)
	e.applied[manager] = applied
	isReplaced := func(old resourceapi.AllocatedDeviceStatus) bool {
		return slices.ContainsFunc(replaced, func(d resourceapi.AllocatedDeviceStatus) bool {
			return d.Driver == old.Driver && d.Pool == old.Pool && d.Device == old.Device
		})
	}
	claim.Status.Devices = append(slices.DeleteFunc(claim.Status.Devices, isReplaced), applied...)
	s.put(claim)
	return claim, nil
}

// decode returns the object of a request, with the fields of the features. Must be called with the mutex.
func (s *Server) decode(at target, content []byte) (Object, error) {
	o := at.make()
	if err := json.Unmarshal(content, o); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	s.drop(o)
	return o, nil
}
