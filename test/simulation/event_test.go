// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"reflect"
	"testing"

	"github.com/tandem-k8s/tandem/coordination/intent"
	kubeletmodel "github.com/tandem-k8s/tandem/coordination/kubelet/model"
	"github.com/tandem-k8s/tandem/test/model"
)

// TestEventIsItsText: the text of an event has each of its fields.
func TestEventIsItsText(t *testing.T) {
	t.Parallel()
	e := Event{Containers: []intent.Container{
		{Name: "a", Role: kubeletmodel.Sidecar, Requests: map[string]int{model.GPUs: 2, model.VFs: 1}},
		{Name: "b", Role: kubeletmodel.Init, Requests: map[string]int{}},
	}}
	for _, field := range reflect.ValueOf(&e).Elem().Fields() {
		switch field.Kind() {
		case reflect.String:
			field.SetString("x-y_z")
		case reflect.Int64:
			field.SetInt(1_234_567)
		case reflect.Uint64:
			field.SetUint(7)
		case reflect.Bool:
			field.SetBool(true)
		default:
		}
		if field.IsZero() {
			t.Fatalf("a field of type %s has no value", field.Type())
		}
	}
	e.Kind, e.Alignment, e.What = podArrives, intent.Required, "a well-known fault"
	got, err := parseEvent(e.String())
	if err != nil || !reflect.DeepEqual(got, e) {
		t.Errorf("%s is %+v, %v; want %+v", e, got, err, e)
	}
}

// TestUnknownFault: an event whose fault nobody knows is an error, not a quiet life.
func TestUnknownFault(t *testing.T) {
	t.Parallel()
	for _, kind := range []Kind{callFails, recordDisturbs, machineChanges} {
		e := Event{Kind: kind, Name: "c0", Resource: model.GPUs, Method: "Prefer", What: "x"}
		_, err := play(t, Script{Node: OptionsOf(0), Events: []Event{e}})
		if err == nil {
			t.Errorf("%s: no error", kind)
		}
	}
}
