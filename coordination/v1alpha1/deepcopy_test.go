// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/randfill"
)

// A copy is equal and shares no memory: no pointers are equal.
func TestDeepCopySharesNothing(t *testing.T) {
	fill := randfill.NewWithSeed(1).NilChance(0).NumElements(1, 3)
	for _, original := range []runtime.Object{&NodeTopology{}, &NodeTopologyList{}} {
		fill.Fill(original)
		c := original.DeepCopyObject()
		if !reflect.DeepEqual(original, c) {
			t.Errorf("%T: the copy differs", original)
		}
		if at := shared(reflect.ValueOf(original).Elem(), reflect.ValueOf(c).Elem(), ""); at != "" {
			t.Errorf("%T: the copy shares %s", original, at)
		}
	}
}

func shared(a, b reflect.Value, at string) string {
	switch a.Kind() {
	case reflect.Struct:
		if a.Type().PkgPath() == "time" {
			return ""
		}
		for i := range a.NumField() {
			if s := shared(a.Field(i), b.Field(i), at+"."+a.Type().Field(i).Name); s != "" {
				return s
			}
		}
	case reflect.Pointer, reflect.Map, reflect.Slice:
		if !a.IsNil() && a.Pointer() == b.Pointer() {
			return at
		}
		switch a.Kind() {
		case reflect.Pointer:
			if !a.IsNil() {
				return shared(a.Elem(), b.Elem(), at)
			}
		case reflect.Slice:
			for i := range a.Len() {
				if s := shared(a.Index(i), b.Index(i), at+"[]"); s != "" {
					return s
				}
			}
		}
	}
	return ""
}
