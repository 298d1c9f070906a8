// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"fmt"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Object is an object of the API.
type Object interface {
	runtime.Object
	metav1.Object
}

// collection is the objects of a kind.
type collection struct {
	version    schema.GroupVersion
	kind, name string
	namespaced bool
	empty      Object
}

var collections = []*collection{
	{corev1.SchemeGroupVersion, "Node", "nodes", false, &corev1.Node{}},
	{corev1.SchemeGroupVersion, "Pod", "pods", true, &corev1.Pod{}},
	{resourceapi.SchemeGroupVersion, "ResourceClaim", "resourceclaims", true, &resourceapi.ResourceClaim{}},
	{resourceapi.SchemeGroupVersion, "ResourceSlice", "resourceslices", false, &resourceapi.ResourceSlice{}},
}

// collectionOf returns the collection of an object.
func collectionOf(o Object) *collection {
	for _, c := range collections {
		if reflect.TypeOf(c.empty) == reflect.TypeOf(o) {
			return c
		}
	}
	panic(fmt.Sprintf("the API server has no %T", o))
}

// make returns an empty object.
func (c *collection) make() Object {
	o := c.empty.DeepCopyObject().(Object)
	o.GetObjectKind().SetGroupVersionKind(c.version.WithKind(c.kind))
	return o
}

// resource returns the name of the collection for errors.
func (c *collection) resource() schema.GroupResource {
	return c.version.WithResource(c.name).GroupResource()
}

// root returns the path of the collection's API.
func (c *collection) root() string {
	if c.version.Group == "" {
		return "/api/" + c.version.Version
	}
	return "/apis/" + c.version.String()
}

// path returns the path of an object.
func (c *collection) path(namespace, name string) string {
	if c.namespaced {
		return c.root() + "/namespaces/" + namespace + "/" + c.name + "/" + name
	}
	return c.root() + "/" + c.name + "/" + name
}

// pathOf returns the path of an object of a kind.
func pathOf[T Object](namespace, name string) string {
	var none T
	return collectionOf(none).path(namespace, name)
}

// target is what a request is about: an object, a part of an object, or a collection.
type target struct {
	*collection        // nil for an unknown one
	namespace   string // "" for all
	object      string // "" for the collection
	part        string
}

// targetOf returns the target of a path.
func targetOf(path string) target {
	for _, c := range collections {
		rest, ok := strings.CutPrefix(path, c.root()+"/")
		if !ok {
			continue
		}
		at := target{collection: c}
		if within, ok := strings.CutPrefix(rest, "namespaces/"); ok {
			at.namespace, rest, _ = strings.Cut(within, "/")
		}
		name, object, _ := strings.Cut(rest, "/")
		at.object, at.part, _ = strings.Cut(object, "/")
		if name == c.name {
			return at
		}
	}
	return target{}
}

// isCollection reports whether a request is about a collection.
func (t target) isCollection() bool { return t.collection != nil && t.object == "" }

// fieldsOf returns the fields of an object for selectors.
func fieldsOf(o Object) fields.Set {
	of := fields.Set{"metadata.name": o.GetName(), "metadata.namespace": o.GetNamespace()}
	if slice, ok := o.(*resourceapi.ResourceSlice); ok {
		of[resourceapi.ResourceSliceSelectorDriver] = slice.Spec.Driver
		of[resourceapi.ResourceSliceSelectorPoolName] = slice.Spec.Pool.Name
		of[resourceapi.ResourceSliceSelectorNodeName] = ""
		if slice.Spec.NodeName != nil {
			of[resourceapi.ResourceSliceSelectorNodeName] = *slice.Spec.NodeName
		}
	}
	return of
}
